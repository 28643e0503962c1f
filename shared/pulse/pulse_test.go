package pulse_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"modelgateway/shared/limit"
	"modelgateway/shared/pulse"
)

var update = flag.Bool("update", false, "write the golden files of the current version")

// short is what a request lacked.
var short = &pulse.Short{
	Pool: pulse.Limit, Reason: "limit_insufficient", Wanted: 1_300_000, Free: 200_000, Reserved: 5, Scope: limit.Project, LimitID: "lim_1", ResetsMS: 1_795_000_000_000,
}

// report returns a report with every member set.
func report() pulse.Report {
	return pulse.Report{
		V: 1, Proxy: "proxy-1", Process: "process", Session: 7, UptimeMS: 61_000, Partial: true, Draining: true, Last: true,
		InFlight: map[string]int64{"/v1/chat/completions": 3}, Spool: pulse.Spool{Used: 4, Capacity: 1000, Bytes: 5, MaxBytes: 6, UnsettledMS: 300},
		Totals: []pulse.Total{
			{Series: pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/chat/completions", Status: 402, Code: "insufficient_quota", Outcome: "refused"}, N: 2},
			{Series: pulse.Series{Measure: pulse.ModelRequests, Model: "model/one", Outcome: "completed"}, N: 3},
			{Series: pulse.Series{Measure: pulse.Attempts, Provider: "prv_1", Route: "rte_1", Outcome: "ok"}, N: 4},
			{Series: pulse.Series{Measure: pulse.Tokens, Model: "model/one", Provider: "prv_1", Outcome: "output"}, N: 5},
			{Series: pulse.Series{Measure: pulse.Charges, Model: "model/one", Provider: "prv_1"}, N: 120_000},
			{Series: pulse.Series{Measure: pulse.StreamEnds, Outcome: "completed"}, N: 1},
			{Series: pulse.Series{Measure: pulse.FirstToken, Provider: "prv_1", Route: "rte_1"}, N: 1, SumMS: 20, Buckets: []int64{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		},
		Breakers: []pulse.Breaker{{Route: "rte_1", State: pulse.Open, SinceMS: 1, NextTryMS: 2, Failures: 3, Class: "unavailable", FailedMS: 4, CooldownMS: 5}},
		Refusals: []pulse.Refusal{{
			Account: "acc_1", Key: "key_1", Code: "insufficient_quota", Status: 402, Other: true, N: 2, FirstMS: 1900, LastMS: 10, RequestID: "req_1", Model: "model/one", Short: short,
		}},
	}
}

// golden holds messages of version 1. Planes of other releases send them and must understand them.
var golden = []struct {
	file string
	want any
}{
	{"report_full", report()},
	{"report_least", pulse.Report{V: 1, Proxy: "proxy-1", Process: "process", UptimeMS: 0}},
	{"tail_full", pulse.Tail{V: 1, ID: "tail", Filter: pulse.Filter{Account: "a", Project: "p", Key: "k", Model: "m", Route: "r", Code: "c", Class: 4}, Closed: true}},
	{"tail_least", pulse.Tail{V: 1, ID: "tail"}},
	{"lines_full", pulse.Lines{V: 1, ID: "tail", Dropped: 3, Lines: []pulse.Line{{
		EndedMS: 1_795_000_000_000, RequestID: "req_1", Method: "POST", Endpoint: "/v1/chat/completions", Status: 200, Outcome: "completed", Code: "c", Account: "a",
		Project: "p", Key: "k", Model: "m", Stream: true, End: "completed", Provider: "prv_1", Route: "rte_1", Attempts: 2, DurationUS: 1, UpstreamUS: 2, FirstByteUS: 3,
		Charged: true, InputTokens: 4, OutputTokens: 5, CostNano: 6, Short: short,
	}}}},
	{"lines_least", pulse.Lines{V: 1, ID: "tail", Lines: []pulse.Line{{RequestID: "req_1", Method: "GET", Status: 401, Outcome: "refused"}}}},
}

func TestGoldenMessagesAreEncodedAndDecodedAlike(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		path := filepath.Join("testdata", "v1_"+g.file+".json")
		written, err := json.MarshalIndent(g.want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, '\n')
		if *update {
			if err := os.WriteFile(path, written, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(stored, written) {
			t.Errorf("%s: the encoding has changed:\n%s", path, written)
		}
		got := reflect.New(reflect.TypeOf(g.want))
		if err := json.Unmarshal(bytes.Replace(stored, []byte("{"), []byte(`{"added_later": [1],`), 1), got.Interface()); err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !reflect.DeepEqual(got.Elem().Interface(), g.want) {
			t.Errorf("%s: decoded %+v; want %+v", path, got.Elem().Interface(), g.want)
		}
	}
}

func TestFilterSelectsRequestsThatMatchAllItsMembers(t *testing.T) {
	t.Parallel()
	line := pulse.Line{Account: "a", Project: "p", Key: "k", Model: "m", Route: "r", Code: "c", Status: 429}
	for _, f := range []pulse.Filter{
		{}, {Account: "a"}, {Project: "p"}, {Key: "k"}, {Model: "m"}, {Route: "r"}, {Code: "c"}, {Class: 4}, {Account: "a", Key: "k", Model: "m", Route: "r", Code: "c", Class: 4},
	} {
		if !f.Matches(&line) {
			t.Errorf("%+v does not select the request", f)
		}
	}
	for _, f := range []pulse.Filter{{Account: "b"}, {Project: "b"}, {Project: pulse.NoProject}, {Key: "b"}, {Model: "b"}, {Route: "b"}, {Code: "b"}, {Class: 5}, {Account: "a", Class: 2}} {
		if f.Matches(&line) {
			t.Errorf("%+v selects the request", f)
		}
	}
}

func TestFilterSelectsRequestsWithoutAProject(t *testing.T) {
	t.Parallel()
	f := pulse.Filter{Project: pulse.NoProject}
	if !f.Matches(&pulse.Line{Account: "a", Key: "k"}) {
		t.Error("a request with a key in no project is not selected")
	}
	if f.Matches(&pulse.Line{Status: 401}) {
		t.Error("a request without a key is selected")
	}
}

func TestBoundsAscend(t *testing.T) {
	t.Parallel()
	for _, m := range []pulse.Measure{pulse.FirstToken, pulse.Duration} {
		if bounds := m.Bounds(); len(bounds) == 0 || !slices.IsSorted(bounds) {
			t.Errorf("%s: %v", m, bounds)
		}
	}
	if bounds := pulse.Requests.Bounds(); bounds != nil {
		t.Errorf("requests have no buckets; got %v", bounds)
	}
}
