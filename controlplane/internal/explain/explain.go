// Package explain says what would happen to a request now. The proxies make the checks: each with its own catalog,
// circuit breakers and cooldowns, by the code that checks real requests. This package tells them what the pools of the
// account have, and compares their answers.
package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// Query is the request to explain.
type Query struct {
	// Account or Key is set; if both are, the key is one of the account.
	Account *account.ID
	Key     *key.ID
	Model   string
	Format  catalogkv.Format
	Stream  bool
	// MaxTokens, N and InputTokens are zero if the request states none.
	MaxTokens, N, InputTokens int64
	// Parameters are further members of the body, an object; empty without any.
	Parameters string
}

// maxParameters bounds Query.Parameters, in bytes.
const maxParameters = 4096

// maxInputTokens bounds Query.InputTokens. The proxies write a prompt of that length.
const maxInputTokens = 1_000_000

func (q *Query) check() error {
	var invalid validation.Errors
	if q.Account == nil && q.Key == nil {
		invalid.Add("account_id", "is necessary without key_id")
	}
	if q.Model == "" {
		invalid.Add("model", "is missing")
	}
	if !slices.Contains(catalogkv.Formats, q.Format) {
		invalid.Add("format", "must be chat, responses, messages, images or videos")
	}
	if q.MaxTokens < 0 {
		invalid.Add("max_tokens", "must not be negative")
	}
	if q.N < 0 {
		invalid.Add("n", "must not be negative")
	}
	if q.InputTokens < 0 || q.InputTokens > maxInputTokens {
		invalid.Add("input_tokens", "must be at most 1000000 and not negative")
	}

	if q.Parameters != "" {
		var members map[string]json.RawMessage
		if len(q.Parameters) > maxParameters || json.Unmarshal([]byte(q.Parameters), &members) != nil || members == nil {
			invalid.Add("parameters", "must be a JSON object of at most 4096 bytes")
		}
	}

	return invalid.Err()
}

// Explanation is what would happen to a request.
type Explanation struct {
	At         time.Time
	Record     *wire.KeyRecord
	Visibility Visibility
	Currency   string
	// Proxies are the answers of the proxies, by name. Silent are the names of those that did not answer.
	Proxies []wire.ExplainResponse
	Silent  []string
	Outcome Outcome
	// Refusal is set if the outcome is Refused.
	Refusal *wire.ExplainRefusal
	// Priced is the answer of a proxy that knows the price; nil if none does.
	Priced *wire.ExplainResponse
	Needs  []Need
}

// Visibility says why the account sees the model or not.
type Visibility struct{ Exists, Enabled, Public, Granted, SupportsFormat bool }

// Need is what the request needs of a pool. Available and Reserved are zero if the pool is unlimited.
type Need struct {
	wire.Need
	// OfKey reports that it is of a pool of the key, not of the account.
	OfKey               bool
	Available, Reserved int64
	Enough, Unlimited   bool
	// Limit is the limit whose current window the pool is, nil for other pools: also for the spend limit of the key. ResetsAt is when
	// the window ends, zero if it does not.
	Limit    *limit.Limit
	ResetsAt time.Time
}

// Outcome is what the proxies would do together.
type Outcome string

// The outcomes.
const (
	Sent    Outcome = "sent"
	Refused Outcome = "refused"
	Differs Outcome = "differs"
	Unknown Outcome = "unknown"
)

// Store reads the records of keys and the pools of accounts.
type Store interface {
	// KeyRecord returns the record of a key, or without one that of a key of the account without a spend limit, and whether
	// the account is suspended. The error is key.ErrNotFound or account.ErrNotFound.
	KeyRecord(ctx context.Context, ofAccount *account.ID, ofKey *key.ID) (record *wire.KeyRecord, suspended bool, err error)
	// Windows returns the windows of limits, by number, in which a request would count now.
	Windows(ctx context.Context, numbers []int64) ([]Window, error)
}

// Window is the current window of a limit.
type Window struct {
	Limit int64
	// Pool is zero if no request has needed the window yet: then all of Amount is left.
	Pool   wire.PoolID
	Amount int64
	// EndMS is zero if the window does not end, or does not exist.
	EndMS int64
}

// Videos knows the video jobs that are not billed yet.
type Videos interface {
	// WouldRefuse returns why the creation of a job would be refused now, nil if it would not.
	WouldRefuse(ctx context.Context, v *event.Video) (*event.VideoRefusal, error)
}

// Proxies are asked what they would do.
type Proxies interface {
	Explain(ctx context.Context, q *wire.ExplainRequest) (answers map[wire.SessionID]wire.ExplainResponse, silent []string, err error)
}

// Service explains requests.
type Service struct {
	Store    Store
	Videos   Videos
	Holdings *holding.Service
	Catalog  *catalog.Service
	Proxies  Proxies
}

// Explain returns what would happen to a request now. It changes nothing.
func (s *Service) Explain(ctx context.Context, q *Query) (*Explanation, error) {
	if err := q.check(); err != nil {
		return nil, err
	}

	record, suspended, err := s.Store.KeyRecord(ctx, q.Account, q.Key)
	if err != nil {
		return nil, err
	}

	owner, err := account.ParseID(record.AccountID)
	if err != nil {
		return nil, err
	}

	pools, err := s.pools(ctx, owner, record)
	if err != nil {
		return nil, err
	}

	e := &Explanation{At: time.Now().UTC(), Record: record}
	if e.Visibility, e.Currency, err = s.visibility(ctx, owner, q); err != nil {
		return nil, err
	}

	asked := &wire.ExplainRequest{
		V:           wire.Version,
		Record:      *record,
		Pools:       pools,
		Format:      string(q.Format),
		Model:       q.Model,
		Stream:      q.Stream,
		MaxTokens:   q.MaxTokens,
		N:           q.N,
		InputTokens: q.InputTokens,
		Parameters:  json.RawMessage(q.Parameters),
	}
	if q.Format == catalogkv.Videos {
		if err := s.askAboutVideos(ctx, asked); err != nil {
			return nil, err
		}
	}

	answers, silent, err := s.Proxies.Explain(ctx, asked)
	if err != nil {
		return nil, err
	}

	for _, a := range answers {
		for i := range a.Refusals {
			if r := &a.Refusals[i]; r.Step == wire.ExplainKey {
				r.Reason = whyInactive(suspended)
			}
		}
		e.Proxies = append(e.Proxies, a)
	}

	slices.SortFunc(e.Proxies, func(a, b wire.ExplainResponse) int { return cmp.Compare(a.Name, b.Name) })
	e.Silent = silent
	e.compare()
	e.setNeeds(asked)

	return e, nil
}

// askAboutVideos sets whether a further video job would be refused because of those that are not billed yet.
func (s *Service) askAboutVideos(ctx context.Context, q *wire.ExplainRequest) (err error) {
	v := event.Video{AccountID: q.Record.AccountID, KeyID: q.Record.KeyID, Model: q.Model}
	if q.FreeVideo, err = s.Videos.WouldRefuse(ctx, &v); err != nil {
		return err
	}
	v.ExpectedCost = 1 // how much it is does not matter
	q.Video, err = s.Videos.WouldRefuse(ctx, &v)
	return err
}

// The reasons for which a key that exists is refused. The client gets the answer for an unknown key; the explanation says more.
const (
	AccountSuspended wire.RefusalReason = "account_suspended"
	KeyRevoked       wire.RefusalReason = "key_revoked"
)

func whyInactive(suspended bool) wire.RefusalReason {
	if suspended {
		return AccountSuspended
	}
	return KeyRevoked
}

// pools returns what the pools of a key have: what is free, and what proxies hold for no request.
func (s *Service) pools(ctx context.Context, owner account.ID, record *wire.KeyRecord) ([]wire.PoolState, error) {
	wanted := []wire.PoolID{record.BalancePool, record.SlotsPool}
	for _, pool := range []wire.PoolID{record.LimitPool, record.KeySlotsPool} {
		if pool != 0 {
			wanted = append(wanted, pool)
		}
	}
	windows, err := s.windows(ctx, record)
	if err != nil {
		return nil, err
	}
	windowOf := make(map[wire.PoolID]*Window, len(windows))
	for i := range windows {
		windowOf[windows[i].Pool] = &windows[i]
		wanted = append(wanted, windows[i].Pool)
	}

	found, err := s.Holdings.Of(ctx, owner, wanted)
	if err != nil {
		return nil, err
	}

	states := make([]wire.PoolState, 0, len(wanted))
	for i := range found {
		p := &found[i]
		state := wire.PoolState{
			Pool:      p.ID,
			Kind:      p.Kind,
			Unlimited: p.Unlimited,
			Total:     p.Total,
			Free:      p.Free + p.Idle(),
			Settled:   p.Settled,
		}
		if w := windowOf[p.ID]; w != nil {
			state.Limit, state.EndMS = w.Limit, w.EndMS
			delete(windowOf, p.ID)
		}
		states = append(states, state)
	}

	for i := range windows { // those that no request has needed yet
		if w := &windows[i]; windowOf[w.Pool] != nil {
			states = append(states, wire.PoolState{
				Pool:  w.Pool,
				Kind:  wire.Limit,
				Total: w.Amount,
				Free:  w.Amount,
				Limit: w.Limit,
			})
		}
	}

	return states, nil
}

// windows returns the current windows of the limits of a record. One that does not exist yet has the id of the limit's first one, which
// is of no other limit.
func (s *Service) windows(ctx context.Context, record *wire.KeyRecord) ([]Window, error) {
	if len(record.Limits) == 0 {
		return nil, nil
	}
	numbers := make([]int64, len(record.Limits))
	for i := range record.Limits {
		numbers[i] = record.Limits[i].ID
	}
	windows, err := s.Store.Windows(ctx, numbers)
	if err != nil {
		return nil, err
	}
	for i := range windows {
		windows[i].Pool = cmp.Or(windows[i].Pool, wire.PoolID(limit.Pool(windows[i].Limit, 0)))
	}
	return windows, nil
}

// visibility says why the account sees the model or not, and returns the currency.
func (s *Service) visibility(ctx context.Context, owner account.ID, q *Query) (v Visibility, currency string, err error) {
	state, err := s.Catalog.State(ctx)
	if err != nil {
		return v, "", err
	}
	v.Granted = slices.Contains(state.Grants[owner], q.Model)
	m, exists := state.Models[q.Model]
	if !exists {
		return v, state.Currency(), nil
	}
	v.Exists, v.Enabled, v.Public = true, m.Spec.Enabled, m.Spec.Public
	for _, r := range m.Routes {
		v.SupportsFormat = v.SupportsFormat || m.Spec.Type == q.Format.Type() && slices.Contains(r.Formats, q.Format)
	}
	return v, state.Currency(), nil
}

// compare sets the outcome that the proxies have in common.
func (e *Explanation) compare() {
	e.Outcome = Unknown
	for i := range e.Proxies {
		p := &e.Proxies[i]
		if p.Needs != nil && e.Priced == nil {
			e.Priced = p
		}
		outcome, refusal := Sent, (*wire.ExplainRefusal)(nil)
		if len(p.Refusals) > 0 {
			outcome, refusal = Refused, &p.Refusals[0]
		}
		switch {
		case e.Outcome == Unknown:
			e.Outcome, e.Refusal = outcome, refusal
		case e.Outcome != outcome || refusal != nil && (refusal.Status != e.Refusal.Status || refusal.Code != e.Refusal.Code):
			e.Outcome, e.Refusal = Differs, nil
			return
		}
	}
}

// setNeeds compares what the request needs with what the pools have, each by itself.
func (e *Explanation) setNeeds(q *wire.ExplainRequest) {
	if e.Priced == nil {
		return
	}

	pools, short := q.Pools, q.Video
	if e.Priced.Reservation == 0 {
		short = q.FreeVideo
	}
	judge := allocator.New()
	for _, s := range pools {
		judge.Pools[s.Pool] = &allocator.Pool{
			ID:        s.Pool,
			Kind:      s.Kind,
			Unlimited: s.Unlimited,
			Total:     s.Total,
			Free:      s.Free,
			Settled:   s.Settled,
		}
	}

	windowOf := make(map[wire.PoolID]*wire.PoolState)
	for i := range pools {
		if pools[i].Limit != 0 {
			windowOf[pools[i].Pool] = &pools[i]
		}
	}

	for _, n := range e.Priced.Needs {
		need := Need{
			Need:   n,
			OfKey:  n.Pool == e.Record.LimitPool || n.Pool == e.Record.KeySlotsPool,
			Enough: judge.Judge([]wire.Need{n}).Granted,
		}
		if p := judge.Pools[n.Pool]; p != nil {
			need.Unlimited = p.Unlimited
			if !p.Unlimited {
				need.Available, need.Reserved = p.Free, p.Outstanding()
			}
		}
		if w := windowOf[n.Pool]; w != nil {
			if i := slices.IndexFunc(e.Record.Limits, func(l limit.Limit) bool { return l.ID == w.Limit }); i >= 0 {
				need.Limit = &e.Record.Limits[i]
			}
			if w.EndMS != 0 {
				need.ResetsAt = time.UnixMilli(w.EndMS).UTC()
			}
		}
		if short != nil && need.isThatOf(short) {
			need.Enough = false
			need.Available, need.Reserved = need.Available-int64(short.Expected), need.Reserved+int64(short.Expected)
		}
		e.Needs = append(e.Needs, need)
	}
}

// isThatOf reports whether the need is of what is short for a video job.
func (n *Need) isThatOf(short *event.VideoRefusal) bool {
	switch short.Reason {
	case event.VideoBalance:
		return n.Kind == wire.Balance
	case event.VideoKeyLimit:
		return n.Kind == wire.Limit && n.OfKey
	case event.VideoLimit:
		return n.Limit != nil && n.Limit.Name == short.LimitID
	default:
		return false
	}
}
