package settle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// store is a settle.Store that refuses batches with certain events, by number.
type store struct {
	refuses []int64
	// fails is what every batch that is not refused ends with.
	fails   error
	batches [][]int64
	faults  map[int64]string
	// ahead is how far the store's clock is ahead of ours.
	ahead time.Duration
}

func (s *store) Span(context.Context) (from, to, now time.Time, err error) {
	now = time.Now().Add(s.ahead)
	return now.Add(-time.Hour), now.Add(100 * time.Hour), now, nil
}

func (s *store) Settle(_ context.Context, items []settle.Item) (settle.Result, error) {
	var numbers []int64
	for _, i := range items {
		if slices.Contains(s.refuses, i.N) && i.Fault == "" {
			return settle.Result{}, fmt.Errorf("refused\x00: %w", settle.ErrContent)
		}
		numbers = append(numbers, i.N)
	}
	if s.fails != nil {
		return settle.Result{}, s.fails
	}
	if !slices.IsSortedFunc(items, func(a, b settle.Item) int { return slices.Compare(a.RequestID[:], b.RequestID[:]) }) {
		return settle.Result{}, errors.New("not sorted by request id")
	}
	s.batches = append(s.batches, numbers)
	var r settle.Result
	for _, i := range items {
		r.Watermarks = []event.Settled{{Session: i.Session, Watermark: i.N}}
		if i.Fault != "" {
			s.faults[i.N] = i.Fault
			r.Quarantined++
			continue
		}
		r.Settled++
		r.Oldest = i.Event.FinishedMS
	}
	return r, nil
}

// items are events 1 to n, made one after another.
func items(t *testing.T, n int64) []settle.Item {
	t.Helper()
	b := event.Batch{V: event.Version, Session: 1}
	for i := range n {
		raw, err := json.Marshal(event.Usage{
			V: event.Version, RequestID: ident.Request.Format(ident.NewAt(time.Now().Add(time.Duration(i) * time.Second))), Session: 1, Seq: i + 1,
			AccountID: ident.Account.New(), KeyID: ident.Key.New(), Model: "m", Status: event.Completed, FinishedMS: 1000 - i,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Events = append(b.Events, raw)
	}
	payload, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return settle.Read(payload)
}

// TestContentIsBisected: every event but those at fault is settled, in as few
// batches as halving needs, and the result is that of all of them.
func TestContentIsBisected(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		refuses []int64
		want    [][]int64
	}{
		{"none", nil, [][]int64{{1, 2, 3, 4, 5, 6, 7, 8}}},
		{"one", []int64{3}, [][]int64{{1, 2}, {3}, {4}, {5, 6, 7, 8}}},
		{"first and last", []int64{1, 8}, [][]int64{{1}, {2}, {3, 4}, {5, 6}, {7}, {8}}},
	}
	for _, tt := range tests {
		s := &store{refuses: tt.refuses, faults: map[int64]string{}}
		batch := items(t, 8)
		slices.Reverse(batch)
		got, err := settle.New(s).Settle(t.Context(), batch)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, s.batches); diff != "" {
			t.Errorf("%s: batches (-want +got):\n%s", tt.name, diff)
		}
		if got.Settled != 8-len(tt.refuses) || got.Quarantined != len(tt.refuses) || got.Watermarks[len(got.Watermarks)-1].Watermark != 8 {
			t.Errorf("%s: %+v", tt.name, got)
		}
		for _, n := range tt.refuses {
			if reason := s.faults[n]; !strings.Contains(reason, "refused") || strings.Contains(reason, "\x00") {
				t.Errorf("%s: event %d is in quarantine for %q", tt.name, n, reason)
			}
		}
		if len(tt.refuses) > 0 && got.Oldest != 993 && got.Oldest != 994 {
			t.Errorf("%s: oldest %d; want that of the last event that was settled", tt.name, got.Oldest)
		}
	}
}

// TestOtherErrorsAreReturned: nothing goes into quarantine because Postgres
// could not be reached, also not in the midst of halving.
func TestOtherErrorsAreReturned(t *testing.T) {
	t.Parallel()
	fails := errors.New("cannot be reached")
	for _, refuses := range [][]int64{nil, {3}} {
		s := &store{refuses: refuses, fails: fails, faults: map[int64]string{}}
		if _, err := settle.New(s).Settle(t.Context(), items(t, 8)); !errors.Is(err, fails) || len(s.faults) != 0 {
			t.Errorf("got %v with %d in quarantine; want %v", err, len(s.faults), fails)
		}
	}
}

// TestTimeIsTheStores: whether a request is of a possible time is judged by the
// store's clock, not by that of the replica which happens to settle it.
func TestTimeIsTheStores(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		s := &store{ahead: ahead, faults: map[int64]string{}}
		now := time.Now().Add(ahead)
		got, err := settle.New(s).Settle(t.Context(), []settle.Item{
			{N: 1, RequestID: ident.NewAt(now), Event: &event.Usage{}}, {N: 2, RequestID: ident.NewAt(now.Add(25 * time.Hour)), Event: &event.Usage{}},
		})
		if err != nil || got.Settled != 1 || !strings.Contains(s.faults[2], "outside") {
			t.Errorf("%s ahead: got %+v, %v, faults %v", ahead, got, err, s.faults)
		}
	}
}

// FuzzRead: whatever comes in on the stream becomes items that can be settled
// or put into quarantine.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "{", "null", "[]", `{"events":[]}`, `{"session":1,"events":[{},null,7,"x",[]]}`,
		`{"session":1,"events":[{"v":1,"seq":9223372036854775807,"session":-1,"cost":1e400}]}`, "{\"events\":[{\"model\":\"\\u0000\"}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		for _, i := range settle.Read(message) {
			switch {
			case i.Payload == nil:
				t.Error("an item without payload")
			case (i.Event == nil) != (i.Fault != ""):
				t.Errorf("event %v with fault %q", i.Event, i.Fault)
			case !utf8.ValidString(i.Fault) || strings.Contains(i.Fault, "\x00"):
				t.Errorf("fault %q cannot be stored", i.Fault)
			case i.N < 0 || i.N > 1<<53:
				t.Errorf("number %d", i.N)
			case i.Event != nil && (i.Session != i.Event.Session || i.N != i.Event.Seq):
				t.Errorf("item %+v of event %+v", i, i.Event)
			}
		}
	})
}
