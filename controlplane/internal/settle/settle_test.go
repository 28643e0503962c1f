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

// store is a settle.Store that cannot store certain events.
type store struct {
	// unstorable are the sequence numbers of these events.
	unstorable []int64
	// unsettled are those of events that are left out.
	unsettled []int64
	// err is returned for every other batch.
	err     error
	batches [][]int64
	reasons map[int64]string
	// ahead is how far the store's clock is ahead of the test's.
	ahead time.Duration
}

func (s *store) RequestTimes(context.Context) (from, to, now time.Time, err error) {
	now = time.Now().Add(s.ahead)
	return now.Add(-time.Hour), now.Add(100 * time.Hour), now, nil
}

func (s *store) Settle(_ context.Context, items []settle.Item) (settle.Result, error) {
	var seqs []int64
	for _, i := range items {
		if slices.Contains(s.unstorable, i.Seq) && i.QuarantineReason == "" {
			return settle.Result{}, fmt.Errorf("bad\x00text: %w", settle.ErrUnstorable)
		}
		seqs = append(seqs, i.Seq)
	}
	if s.err != nil {
		return settle.Result{}, s.err
	}
	if !slices.IsSortedFunc(items, func(a, b settle.Item) int { return slices.Compare(a.RequestID[:], b.RequestID[:]) }) {
		return settle.Result{}, errors.New("the items are not sorted by request id")
	}
	s.batches = append(s.batches, seqs)
	var r settle.Result
	var left *settle.UnsettledError
	for _, i := range items {
		if slices.Contains(s.unsettled, i.Seq) {
			left = &settle.UnsettledError{Items: []settle.Item{i}, Err: errLeftOut}
			continue
		}
		r.Watermarks = []event.Settled{{Session: i.Session, Watermark: i.Seq}}
		if i.QuarantineReason != "" {
			s.reasons[i.Seq] = i.QuarantineReason
			r.Quarantined++
			continue
		}
		r.Settled++
		r.OldestFinishedMS = i.Event.FinishedMS
	}
	if left != nil {
		return r, left
	}
	return r, nil
}

var errLeftOut = errors.New("the books of the account cannot be changed")

// items returns events 1 to n, whose request ids are in that order.
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
	return settle.DecodeBatch(payload)
}

// All other events are settled, and the result is the sum of all batches.
func TestSettleBisectsBatchToIsolateUnstorableEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		unstorable []int64
		want       [][]int64
	}{
		{"none", nil, [][]int64{{1, 2, 3, 4, 5, 6, 7, 8}}},
		{"one", []int64{3}, [][]int64{{1, 2}, {3}, {4}, {5, 6, 7, 8}}},
		{"first and last", []int64{1, 8}, [][]int64{{1}, {2}, {3, 4}, {5, 6}, {7}, {8}}},
	}
	for _, tt := range tests {
		s := &store{unstorable: tt.unstorable, reasons: map[int64]string{}}
		batch := items(t, 8)
		slices.Reverse(batch)
		got, err := settle.New(s, nil).Settle(t.Context(), batch)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, s.batches); diff != "" {
			t.Errorf("%s: batches (-want +got):\n%s", tt.name, diff)
		}
		if got.Settled != 8-len(tt.unstorable) || got.Quarantined != len(tt.unstorable) || got.Watermarks[len(got.Watermarks)-1].Watermark != 8 {
			t.Errorf("%s: got result %+v", tt.name, got)
		}
		for _, n := range tt.unstorable {
			if reason := s.reasons[n]; !strings.Contains(reason, "badtext") || strings.Contains(reason, "\x00") {
				t.Errorf("%s: event %d has the quarantine reason %q", tt.name, n, reason)
			}
		}
		if len(tt.unstorable) > 0 && got.OldestFinishedMS != 993 && got.OldestFinishedMS != 994 {
			t.Errorf("%s: got %d as the oldest finish time; want 993 or 994, of the last settled event", tt.name, got.OldestFinishedMS)
		}
	}
}

// Events that are left out are returned with the result of all others, also if the batch is halved.
func TestSettleReturnsTheEventsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, unsettled := range [][]int64{{1}, {6}, {1, 6}} {
		s := &store{unstorable: []int64{3}, unsettled: unsettled, reasons: map[int64]string{}}
		got, err := settle.New(s, nil).Settle(t.Context(), items(t, 8))
		var left *settle.UnsettledError
		if !errors.As(err, &left) || !errors.Is(err, errLeftOut) || len(left.Items) != len(unsettled) || left.Items[0].Seq != unsettled[0] {
			t.Errorf("%v: got %v", unsettled, err)
		}
		if got.Settled != 7-len(unsettled) || got.Quarantined != 1 {
			t.Errorf("%v: got %+v; want all others settled", unsettled, got)
		}
		s.err = errors.New("the database is unreachable")
		if _, err := settle.New(s, nil).Settle(t.Context(), items(t, 8)); !errors.Is(err, s.err) || errors.As(err, &left) {
			t.Errorf("%v: got %v; want that nothing was settled", unsettled, err)
		}
	}
}

// An event is not put into quarantine because Postgres is unreachable, not even
// while a batch is being bisected.
func TestSettleReturnsOtherErrorsWithoutQuarantine(t *testing.T) {
	t.Parallel()
	want := errors.New("the database is unreachable")
	for _, unstorable := range [][]int64{nil, {3}} {
		s := &store{unstorable: unstorable, err: want, reasons: map[int64]string{}}
		if _, err := settle.New(s, nil).Settle(t.Context(), items(t, 8)); !errors.Is(err, want) || len(s.reasons) != 0 {
			t.Errorf("got %v with %d events in quarantine; want %v and none", err, len(s.reasons), want)
		}
	}
}

// The replicas' own clocks may be wrong.
func TestSettleChecksRequestTimesByTheStoresClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		s := &store{ahead: ahead, reasons: map[int64]string{}}
		now := time.Now().Add(ahead)
		got, err := settle.New(s, nil).Settle(t.Context(), []settle.Item{
			{Seq: 1, RequestID: ident.NewAt(now), Event: &event.Usage{}}, {Seq: 2, RequestID: ident.NewAt(now.Add(25 * time.Hour)), Event: &event.Usage{}},
		})
		if err != nil || got.Settled != 1 || !strings.Contains(s.reasons[2], "outside") {
			t.Errorf("store %s ahead: got %+v, %v, quarantine reasons %v", ahead, got, err, s.reasons)
		}
	}
}

// Any message becomes items that can be settled or put into quarantine.
func FuzzDecodeBatch(f *testing.F) {
	for _, seed := range []string{
		"", "{", "null", "[]", `{"events":[]}`, `{"session":1,"events":[{},null,7,"x",[]]}`,
		`{"session":1,"events":[{"v":1,"seq":9223372036854775807,"session":-1,"cost":1e400}]}`, "{\"events\":[{\"model\":\"\\u0000\"}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		for _, i := range settle.DecodeBatch(message) {
			switch {
			case i.Payload == nil:
				t.Error("an item without payload")
			case (i.Event == nil) != (i.QuarantineReason != ""):
				t.Errorf("event %v has the quarantine reason %q", i.Event, i.QuarantineReason)
			case !utf8.ValidString(i.QuarantineReason) || strings.Contains(i.QuarantineReason, "\x00"):
				t.Errorf("quarantine reason %q cannot be stored", i.QuarantineReason)
			case i.Seq < 0 || i.Seq > 1<<53:
				t.Errorf("sequence number %d is out of range", i.Seq)
			case i.Event != nil && (i.Session != i.Event.Session || i.Seq != i.Event.Seq):
				t.Errorf("item %+v of event %+v", i, i.Event)
			}
		}
	})
}
