package event_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

var update = flag.Bool("update", false, "write the golden files of the current version")

// full returns an event of version 1 with every member set. Members that are
// added later stay out of it.
func full() event.Usage {
	return event.Usage{
		V: 1, RequestID: "req_0192f0c1d2e37a4b8c5d6e7f8091a2b3", Session: 7, Seq: 42,
		AccountID: "acc_0192f0c1d2e37a4b8c5d6e7f8091a2b4", KeyID: "key_0192f0c1d2e37a4b8c5d6e7f8091a2b5",
		Model: "model/one", Format: "chat", Provider: "prv_1", Route: "rte_1", ProviderRequestID: "upstream-1",
		Status: event.Completed, HTTPStatus: 200, Stream: true, StartedMS: 1_795_000_000_000, FinishedMS: 1_795_000_001_500, FirstByteMS: 120,
		Usage: price.Usage{
			Input: 1, CachedInput: 2, CacheWrite5m: 3, CacheWrite1h: 4, CacheWrite30m: 5, CacheWrite12h: 6, CacheWriteOther: 7,
			Output: 8, Reasoning: 9, AudioIn: 10, AudioOut: 11, ImageIn: 12, ImageOut: 13, Images: 14, Seconds: 15,
			ServerToolRequests: 16, Size: "1024x1024", Quality: "high",
		},
		Rule: event.RuleReported, Estimated: true, Doubt: "low_output", PriceVersion: 3, Cost: 123_456_789, Reservation: 200_000_000,
		VideoJob: "video_0192f0c1d2e37a4b8c5d6e7f8091a2b6",
	}
}

// least returns an event of version 1 with the required members only.
func least() event.Usage {
	e := full()
	return event.Usage{
		V: 1, RequestID: e.RequestID, Session: 1, Seq: 1, AccountID: e.AccountID, KeyID: e.KeyID, Model: "m", Format: "chat",
		Status: event.Failed, StartedMS: 1, FinishedMS: 2, Rule: event.RuleNone,
	}
}

// multiplied returns an event of an account with a price multiplier.
func multiplied() event.Usage {
	e := full()
	e.PriceMultiplier = 850_000
	return e
}

// The fingerprints of full and least in hexadecimal.
const (
	fullFingerprint  = "de69a272756520b180e78ef1f1f3a4b0b162f3c7e14815a7603a36cfb3c5e9a0"
	leastFingerprint = "94848b0223c37c0edd12c668d8b914910b484da449117064c47e6bcf2b1ee264"
)

// golden holds messages of version 1. Later versions must still decode them,
// because streams and spools contain them.
var golden = []struct {
	file string
	want any
}{
	{"usage_full", full()},
	{"usage_least", least()},
	{"usage_multiplied", multiplied()},
	{"batch", event.Batch{V: 1, BatchID: "batch-1", Session: 7, Events: []json.RawMessage{json.RawMessage(`{"v":1}`), json.RawMessage(`"anything"`)}}},
	{"settled", event.Settled{V: 1, Session: 7, Watermark: 5, Beyond: [][2]int64{{7, 9}, {11, 11}}}},
	{"settled_least", event.Settled{V: 1, Session: 7}},
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
		if string(stored) != string(written) {
			t.Errorf("%s: the encoding has changed:\n%s", path, written)
		}
		got := reflect.New(reflect.TypeOf(g.want))
		if err := json.Unmarshal(stored, got.Interface()); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := json.MarshalIndent(got.Interface(), "", "  ")
		if err != nil || string(again)+"\n" != string(stored) {
			t.Errorf("%s: decoded and encoded again, %v:\n%s", path, err, again)
		}
	}
}

func TestUnknownMembersAreIgnored(t *testing.T) {
	t.Parallel()
	stored, err := os.ReadFile(filepath.Join("testdata", "v1_usage_full.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got event.Usage
	later := strings.Replace(string(stored), "{", `{"added_later": {"x": [1]},`, 1)
	if err := json.Unmarshal([]byte(later), &got); err != nil || !reflect.DeepEqual(got, full()) {
		t.Errorf("got %+v, %v; want the event without the unknown member", got, err)
	}
}

func TestFingerprintDependsOnTheChargeAlone(t *testing.T) {
	t.Parallel()
	of := func(change func(e *event.Usage)) string {
		e := full()
		change(&e)
		sum := e.Fingerprint()
		return hex.EncodeToString(sum[:])
	}
	same := of(func(*event.Usage) {})
	if same != fullFingerprint {
		t.Errorf("got %s; want %s", same, fullFingerprint)
	}
	e := least()
	if sum := e.Fingerprint(); hex.EncodeToString(sum[:]) != leastFingerprint {
		t.Errorf("least: got %x; want %s", sum, leastFingerprint)
	}
	tests := []struct {
		name   string
		change func(e *event.Usage)
		same   bool
	}{
		{"sequence number", func(e *event.Usage) { e.Session, e.Seq = 8, 43 }, true},
		{"outcome", func(e *event.Usage) { e.Status, e.HTTPStatus, e.FinishedMS = event.Aborted, 0, 1 }, true},
		{"provider", func(e *event.Usage) { e.Provider, e.Route, e.Credential, e.ProviderRequestID = "", "", "", "" }, true},
		{"reservation", func(e *event.Usage) { e.Reservation++ }, true},
		{"trace", func(e *event.Usage) { e.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, true},
		{"cost", func(e *event.Usage) { e.Cost++ }, false},
		{"price version", func(e *event.Usage) { e.PriceVersion++ }, false},
		{"model", func(e *event.Usage) { e.Model = "other" }, false},
		{"account", func(e *event.Usage) { e.AccountID = ident.Account.New() }, false},
		{"key", func(e *event.Usage) { e.KeyID = ident.Key.New() }, false},
		{"request", func(e *event.Usage) { e.RequestID = ident.Request.New() }, false},
		{"usage", func(e *event.Usage) { e.Usage.Output++ }, false},
		{"size", func(e *event.Usage) { e.Usage.Size = "" }, false},
	}
	for _, tt := range tests {
		if got := of(tt.change); (got == same) != tt.same {
			t.Errorf("%s: same %v; want %v", tt.name, got == same, tt.same)
		}
	}
}

func TestValidateRejectsInvalidEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(e *event.Usage)
		want   string
	}{
		{"valid", func(*event.Usage) {}, ""},
		{"nothing used", func(e *event.Usage) { *e = least() }, ""},
		{"maximum cost", func(e *event.Usage) { e.Cost = event.MaxCost }, ""},
		{"maximum reservation", func(e *event.Usage) { e.Reservation = event.MaxCost }, ""},
		{"no version", func(e *event.Usage) { e.V = 0 }, "version 0"},
		{"later version", func(e *event.Usage) { e.V = event.Version + 1 }, "version"},
		{"no request", func(e *event.Usage) { e.RequestID = "" }, "req_"},
		{"id of another kind", func(e *event.Usage) { e.RequestID = ident.Key.New() }, "req_"},
		{"no account", func(e *event.Usage) { e.AccountID = "acc_" }, "acc_"},
		{"no key", func(e *event.Usage) { e.KeyID = strings.ToUpper(e.KeyID) }, "key_"},
		{"no session", func(e *event.Usage) { e.Session = 0 }, "session 0"},
		{"no sequence number", func(e *event.Usage) { e.Seq = -1 }, "sequence number -1"},
		{"negative cost", func(e *event.Usage) { e.Cost = -1 }, "negative"},
		{"negative reservation", func(e *event.Usage) { e.Reservation = math.MinInt64 }, "negative"},
		{"cost above the maximum", func(e *event.Usage) { e.Cost = event.MaxCost + 1 }, "above"},
		{"no model", func(e *event.Usage) { e.Model = "" }, "model is missing"},
		{"no status", func(e *event.Usage) { e.Status = "" }, "unknown status"},
	}
	for _, tt := range tests {
		e := full()
		tt.change(&e)
		switch err := e.Validate(); {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v; want %q in it", tt.name, err, tt.want)
		}
	}
	var empty event.Usage
	if err := empty.Validate(); err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("an empty event: got %v; want all seven errors", err)
	}
}

// One settlement adds up the costs of at most 16 batches of 500 events.
func TestMaxCostDoesNotOverflowASettlement(t *testing.T) {
	t.Parallel()
	const most = 16 * 500
	if event.MaxCost > money.Nano(math.MaxInt64/most) {
		t.Errorf("%d costs of %d overflow", most, event.MaxCost)
	}
}

// FuzzUsage checks that every valid event keeps its fingerprint when it is
// encoded and decoded again.
func FuzzUsage(f *testing.F) {
	for _, e := range []event.Usage{full(), least(), {}} {
		data, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e event.Usage
		if json.Unmarshal(data, &e) != nil || e.Validate() != nil {
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back event.Usage
		if err := json.Unmarshal(again, &back); err != nil || back.Fingerprint() != e.Fingerprint() {
			t.Errorf("%s: %v, other fingerprint %v", again, err, back.Fingerprint() != e.Fingerprint())
		}
	})
}
