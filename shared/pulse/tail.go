package pulse

import (
	"cmp"
	"strings"
	"time"
)

const (
	// TailBatch is how long a proxy collects the lines of a tail before it sends them.
	TailBatch = 200 * time.Millisecond
	// TailRenewal is how often the watcher of a tail asks for it again.
	TailRenewal = 10 * time.Second
	// TailEnd is when a proxy ends a tail that nobody has asked for again.
	TailEnd = 25 * time.Second
	// MaxLines bounds the lines of a tail in a second; further ones are counted as dropped.
	MaxLines = 200
)

// Tail asks every proxy for a line per finished request. It is sent again every TailRenewal, from the same reply subject.
type Tail struct {
	V int `json:"v"`
	// ID is a random name of the tail.
	ID string `json:"id"`
	Filter
	// Closed ends the tail.
	Closed bool `json:"closed,omitempty"`
}

// Filter selects requests. A request is selected if it matches all members that are not empty.
type Filter struct {
	Account string `json:"account,omitempty"`
	// Project is an id, or NoProject.
	Project string `json:"project,omitempty"`
	Key     string `json:"key,omitempty"`
	Model   string `json:"model,omitempty"`
	Route   string `json:"route,omitempty"`
	Code    string `json:"code,omitempty"`
	// Class is the first digit of the status.
	Class int `json:"class,omitempty"`
}

// NoProject selects the requests with keys that are in no project.
const NoProject = "none"

// inProject reports whether the line is of a wanted project.
func (f *Filter) inProject(l *Line) bool {
	if f.Project == NoProject {
		return l.Project == "" && l.Key != ""
	}
	return f.Project == "" || f.Project == l.Project
}

// Matches reports whether a line is selected.
func (f *Filter) Matches(l *Line) bool {
	same := func(wanted, found string) bool { return wanted == "" || wanted == found }
	return same(f.Account, l.Account) && f.inProject(l) && same(f.Key, l.Key) && same(f.Model, l.Model) &&
		same(f.Route, l.Route) && same(f.Code, l.Code) && (f.Class == 0 || f.Class == l.Status/100)
}

// Lines are the lines of one proxy since its last message.
type Lines struct {
	V  int    `json:"v"`
	ID string `json:"id"`
	// Dropped is how many lines were left out since the last message, because there were more than MaxLines in a second.
	Dropped int64  `json:"dropped,omitempty"`
	Lines   []Line `json:"lines,omitempty"`
}

// Line is a finished request, with what the access log has of it.
type Line struct {
	// EndedMS is the time of its end in milliseconds since 1970, by the clock of the proxy.
	EndedMS    int64  `json:"ended_ms"`
	RequestID  string `json:"request_id"`
	Method     string `json:"method"`
	Endpoint   string `json:"endpoint,omitempty"`
	Status     int    `json:"status"`
	Outcome    string `json:"outcome"`
	Code       string `json:"code,omitempty"`
	Account    string `json:"account,omitempty"`
	Project    string `json:"project,omitempty"`
	Key        string `json:"key,omitempty"`
	Model      string `json:"model,omitempty"`
	Stream     bool   `json:"stream,omitempty"`
	End        string `json:"end,omitempty"`
	Provider   string `json:"provider,omitempty"`
	Route      string `json:"route,omitempty"`
	Attempts   int    `json:"attempts,omitempty"`
	DurationUS int64  `json:"duration_us"`
	// UpstreamUS is the time spent waiting for providers, FirstByteUS the time to the first byte of an answer.
	UpstreamUS  int64 `json:"upstream_us,omitempty"`
	FirstByteUS int64 `json:"first_byte_us,omitempty"`
	// Charged reports whether the request has a usage event: then tokens and cost, in nano-units of the currency, are known.
	Charged      bool   `json:"charged,omitempty"`
	InputTokens  int64  `json:"input_tokens,omitempty"`
	OutputTokens int64  `json:"output_tokens,omitempty"`
	CostNano     int64  `json:"cost_nano,omitempty"`
	Short        *Short `json:"short,omitempty"`
}

// Compare orders lines by the time of their end.
func (l *Line) Compare(other *Line) int {
	return cmp.Or(cmp.Compare(l.EndedMS, other.EndedMS), strings.Compare(l.RequestID, other.RequestID))
}
