// Package pulse defines the messages by which proxies show what they do now: the report that each of them sends every
// two seconds, and the tail of finished requests that an operator watches.
//
// Nothing depends on their arrival: money and admission have messages of their own (package wire). A report may be lost,
// so it carries totals, not differences.
package pulse

import (
	"cmp"
	"time"

	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// Version is the version of all messages.
const Version = 1

const (
	// Interval is the time between two reports of a proxy.
	Interval = 2 * time.Second
	// MaxReport bounds a report, in bytes. A proxy with more totals than fit sends them in turns.
	MaxReport = 64 << 10
	// MaxRefusals bounds the combinations of account, key and code that a proxy counts in a minute. Further ones are
	// counted together, as those of no account.
	MaxRefusals = 1000
)

// Measure names what a total counts.
type Measure string

// The measures, with the labels that they have.
const (
	// Requests are answered requests, by endpoint, status, code and outcome.
	Requests Measure = "requests"
	// ModelRequests are answered requests for a model of the catalog, by model and outcome.
	ModelRequests Measure = "model_requests"
	// Attempts are calls of providers, by provider, route and outcome: "ok" or the error class.
	Attempts Measure = "attempts"
	// Tokens are used tokens, by model, provider and kind, which is the outcome: input, cached_input, cache_write, output.
	Tokens Measure = "tokens"
	// Charges are charges in nano-units of the currency, by model and provider.
	Charges Measure = "charges"
	// Doubts are charged answers whose usage the provider has not reported, or not credibly, by provider and outcome: the
	// reason.
	Doubts Measure = "doubts"
	// LeftOut are calls without a member that the gateway otherwise adds and the provider refuses, by provider, route and
	// outcome: the member.
	LeftOut Measure = "left_out"
	// StreamEnds are ended streams, by outcome: the reason.
	StreamEnds Measure = "stream_ends"
	// FirstToken has the times to the first bytes of streams, by provider and route, in buckets.
	FirstToken Measure = "ttft"
	// Duration has the durations of requests by endpoint, and provider and route of the last attempt, in buckets.
	Duration Measure = "duration"
)

// Bounds returns the upper bounds of a measure's buckets in milliseconds; there is one bucket more, without a bound. It
// returns nil for a measure without buckets.
func (m Measure) Bounds() []int64 {
	switch m {
	case FirstToken:
		return firstTokenBounds
	case Duration:
		return durationBounds
	default:
		return nil
	}
}

var (
	firstTokenBounds = []int64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000}
	durationBounds   = []int64{5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000}
)

// Series is what a total counts: a measure, and its labels. Labels that the measure does not have are empty.
type Series struct {
	Measure  Measure `json:"measure"`
	Endpoint string  `json:"endpoint,omitempty"`
	Model    string  `json:"model,omitempty"`
	Provider string  `json:"provider,omitempty"`
	Route    string  `json:"route,omitempty"`
	Status   int     `json:"status,omitempty"`
	Code     string  `json:"code,omitempty"`
	Outcome  string  `json:"outcome,omitempty"`
}

// Compare orders series.
func (s Series) Compare(other Series) int {
	return cmp.Or(
		cmp.Compare(s.Measure, other.Measure), cmp.Compare(s.Endpoint, other.Endpoint), cmp.Compare(s.Model, other.Model),
		cmp.Compare(s.Provider, other.Provider), cmp.Compare(s.Route, other.Route), cmp.Compare(s.Status, other.Status),
		cmp.Compare(s.Code, other.Code), cmp.Compare(s.Outcome, other.Outcome),
	)
}

// Total is the count of a series since the start of the process. It never falls.
type Total struct {
	Series
	N int64 `json:"n"`
	// SumMS is the sum of the times in milliseconds, Buckets their distribution: see Measure.Bounds.
	SumMS   int64   `json:"sum_ms,omitempty"`
	Buckets []int64 `json:"buckets,omitempty"`
}

// Report is the message that a proxy sends every Interval. It may lack totals that it has sent before, if not all fit.
type Report struct {
	V     int    `json:"v"`
	Proxy string `json:"proxy"`
	// Process is a random name of the process, to which the totals belong.
	Process string `json:"process"`
	// Session is the current session, zero without one.
	Session wire.SessionID `json:"session,omitempty"`
	// UptimeMS is the time since the process started, in milliseconds.
	UptimeMS int64 `json:"uptime_ms"`
	// Partial means that not all totals fit: others follow with the next reports.
	Partial  bool `json:"partial,omitempty"`
	Draining bool `json:"draining,omitempty"`
	// Last means that the process ends and sends no further report.
	Last bool `json:"last,omitempty"`
	// InFlight has the requests that are handled now, by endpoint.
	InFlight map[string]int64 `json:"in_flight,omitempty"`
	Spool    Spool            `json:"spool"`
	Totals   []Total          `json:"totals,omitempty"`
	// Breakers has the routes that have failed since the start of the process.
	Breakers []Breaker `json:"breakers,omitempty"`
	// Refusals are those since the last report.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Spool is how full the spool of a proxy is.
type Spool struct {
	Used     int64 `json:"used"`
	Capacity int64 `json:"capacity"`
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	// UnsettledMS is how long ago the request of the oldest unsettled event finished, in milliseconds; 0 if all are settled.
	UnsettledMS int64 `json:"unsettled_ms,omitempty"`
}

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states.
const (
	Closed   BreakerState = "closed"
	HalfOpen BreakerState = "half_open"
	Open     BreakerState = "open"
)

// Breaker is the circuit breaker of a route that has failed. Times are relative to the report, because clocks differ.
type Breaker struct {
	Route string       `json:"route"`
	State BreakerState `json:"state"`
	// SinceMS is how long ago the breaker opened, NextTryMS in how long a request may call the route; both are zero while it
	// is closed.
	SinceMS   int64 `json:"since_ms,omitempty"`
	NextTryMS int64 `json:"next_try_ms,omitempty"`
	// Failures is the number of failures in a row, while it is closed.
	Failures int `json:"failures,omitempty"`
	// Class is the error class of the last failure, FailedMS how long ago that was.
	Class    string `json:"class,omitempty"`
	FailedMS int64  `json:"failed_ms,omitempty"`
	// CooldownMS is how long other routes are still preferred.
	CooldownMS int64 `json:"cooldown_ms,omitempty"`
}

// Refusal counts the refused requests of one account, key and code. A refused request ended with an error before any
// provider was called. Account and key are empty for requests without a valid key.
type Refusal struct {
	Account string `json:"account,omitempty"`
	Key     string `json:"key,omitempty"`
	Code    string `json:"code,omitempty"`
	Status  int    `json:"status"`
	// Other is set if the requests are of several accounts or keys, because MaxRefusals is reached.
	Other bool  `json:"other,omitempty"`
	N     int64 `json:"n"`
	// FirstMS and LastMS are how long before the report the first and the last came.
	FirstMS int64 `json:"first_ms"`
	LastMS  int64 `json:"last_ms"`
	// RequestID is the id of the last one, Model the model that it asked for, Short what was short for it, and Reason why it was
	// refused, if its code does not say that: one of the reasons.
	RequestID string `json:"request_id"`
	Model     string `json:"model,omitempty"`
	Short     *Short `json:"short,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// The reasons of refusals whose code, which the client gets, says less.
const (
	// ReasonKeyInactive: the key exists, but it was revoked or its account is suspended.
	ReasonKeyInactive = "key_inactive"
	// ReasonKeyPaused: the key is paused.
	ReasonKeyPaused = "key_paused"
	// ReasonKeyExpired: the key has expired.
	ReasonKeyExpired = "key_expired"
	// ReasonKeyRotated: the secret of the key was replaced, and its overlap has ended.
	ReasonKeyRotated = "key_rotated"
	// ReasonKeyNetwork: the key may not be used from the client's address.
	ReasonKeyNetwork = "key_network"
	// ReasonMaintenance: an operator has closed what it was for.
	ReasonMaintenance = "maintenance"
	// ReasonNoSession: the session of the proxy had ended.
	ReasonNoSession = "no_session"
	// ReasonNoSpool: the proxy could not store its usage.
	ReasonNoSpool = "no_spool"
	// ReasonNoRoom: there was no room for its body or answer.
	ReasonNoRoom = "no_room"
	// ReasonNoRoute: no route of the model could be called.
	ReasonNoRoute = "no_route"
	// ReasonUndecided: no control plane has decided about key or units in time.
	ReasonUndecided = "undecided"
)

// Short is what a request lacked: how much it wanted of a pool, and how much was free and reserved in it. Amounts are
// nano-units of the currency, except those of slots and video jobs, which are counts.
type Short struct {
	Pool ShortPool `json:"pool"`
	// Reason is a wire.RefusalReason, or the reason of an event.VideoRefusal.
	Reason   string `json:"reason"`
	Wanted   int64  `json:"wanted"`
	Free     int64  `json:"free"`
	Reserved int64  `json:"reserved"`
	// Scope says whose limit or slots were short, empty for other pools. LimitID and ResetsMS are only of a limit: its id in the API (of
	// the spend limit of a key, that of the key), and when its window ends, in milliseconds since 1970; zero: never, or not known.
	Scope    limit.Scope `json:"scope,omitempty"`
	LimitID  string      `json:"limit_id,omitempty"`
	ResetsMS int64       `json:"resets_ms,omitempty"`
}

// ShortPool names a pool that was short.
type ShortPool string

// The pools.
const (
	Balance   ShortPool = "balance"
	Limit     ShortPool = "limit"
	Slots     ShortPool = "slots"
	VideoJobs ShortPool = "video_jobs"
)

// Money reports whether amounts of the pool are nano-units of the currency.
func (p ShortPool) Money() bool { return p == Balance || p == Limit }
