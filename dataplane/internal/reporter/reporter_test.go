package reporter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// station receives the reports of one Reporter.
type station struct {
	*Reporter
	t       *testing.T
	away    bool
	reports []pulse.Report
	sizes   []int
}

func newStation(t *testing.T, totals func() []pulse.Total) *station {
	t.Helper()
	s := &station{t: t}
	s.Reporter = New(Config{
		Proxy: "proxy-1", SessionFunc: func() wire.SessionID { return 7 }, DrainingFunc: func() bool { return false },
		InFlightFunc: func() map[string]int64 { return map[string]int64{"/v1/models": 2} }, SpoolFunc: func() pulse.Spool { return pulse.Spool{Used: 1, Capacity: 2} },
		TotalsFunc: totals, BreakersFunc: func() []pulse.Breaker { return []pulse.Breaker{{Route: "rte_1", State: pulse.Open}} },
		Refusals: NewRefusals(), SendFunc: s.receive, Log: slog.New(slog.DiscardHandler),
	})
	return s
}

func (s *station) receive(data []byte) error {
	if s.away {
		return errors.New("no connection")
	}
	var r pulse.Report
	if err := json.Unmarshal(data, &r); err != nil {
		s.t.Error(err)
	}
	s.reports, s.sizes = append(s.reports, r), append(s.sizes, len(data))
	return nil
}

func count(n int64) pulse.Total {
	return pulse.Total{Series: pulse.Series{Measure: pulse.StreamEnds, Outcome: "completed"}, N: n}
}

func TestTotalsAreReportedEveryTwoSecondsAndAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		s := newStation(t, func() []pulse.Total { n++; return []pulse.Total{count(n)} })
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		time.Sleep(pulse.Interval + time.Millisecond)
		cancel()
		synctest.Wait()
		if len(s.reports) != 3 {
			t.Fatalf("%d reports; want 3", len(s.reports))
		}
		if took := time.Since(began); took > 2*pulse.Interval {
			t.Errorf("the reports took %s", took)
		}
		want := pulse.Report{
			V: 1, Proxy: "proxy-1", Process: s.process, Session: 7, UptimeMS: 2001, Last: true, InFlight: map[string]int64{"/v1/models": 2},
			Spool: pulse.Spool{Used: 1, Capacity: 2}, Totals: []pulse.Total{count(3)}, Breakers: []pulse.Breaker{{Route: "rte_1", State: pulse.Open}},
		}
		if diff := cmp.Diff(want, s.reports[2]); diff != "" {
			t.Errorf("the last report: want -, got +:\n%s", diff)
		}
	})
}

func TestTotalsThatDoNotFitAreReportedInTurns(t *testing.T) {
	t.Parallel()
	var all []pulse.Total
	for i := range 2000 {
		all = append(all, pulse.Total{
			Series: pulse.Series{Measure: pulse.Duration, Endpoint: "/v1/chat/completions", Provider: "prv", Route: fmt.Sprintf("rte_%032d", i)}, N: 1, Buckets: make([]int64, 17),
		})
	}
	s := newStation(t, func() []pulse.Total { return all })
	seen := map[pulse.Series]bool{}
	for range 10 {
		s.send(t.Context(), false)
	}
	for i, r := range s.reports {
		for _, total := range r.Totals {
			seen[total.Series] = true
		}
		if !r.Partial {
			t.Errorf("report %d does not say that totals are missing", i)
		}
		if s.sizes[i] > pulse.MaxReport || s.sizes[i] < pulse.MaxReport/2 {
			t.Errorf("report %d has %d bytes; want nearly %d", i, s.sizes[i], pulse.MaxReport)
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d totals were reported", len(seen), len(all))
	}
}

// refuse records refusals of n keys.
func (s *station) refuse(n int) {
	for i := range n {
		s.cfg.Refusals.Record(time.Now(), &pulse.Refusal{
			Account: fmt.Sprintf("acc_%032d", i), Key: fmt.Sprintf("key_%032d", i), Code: "insufficient_quota", Status: 402, RequestID: "req_" + strings.Repeat("x", 32),
			Short: &pulse.Short{Pool: pulse.Balance, Reason: string(wire.BalanceInsufficient), Wanted: 1},
		})
	}
}

func TestRefusalsAreReportedOnceWithTheirAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, func() []pulse.Total { return nil })
		s.refuse(1)
		time.Sleep(time.Second)
		s.refuse(2)
		time.Sleep(time.Second)
		s.away = true
		s.send(t.Context(), false)
		s.refuse(1)
		s.away = false
		s.send(t.Context(), false)
		s.send(t.Context(), false)
		var got [][3]int64
		for _, r := range s.reports[0].Refusals {
			got = append(got, [3]int64{r.N, r.FirstMS, r.LastMS})
		}
		if diff := cmp.Diff([][3]int64{{3, 2000, 0}, {1, 1000, 1000}}, got); diff != "" {
			t.Errorf("count, first and last: want -, got +:\n%s", diff)
		}
		if more := s.reports[1].Refusals; more != nil {
			t.Errorf("reported again: %v", more)
		}
	})
}

func TestManyRefusalsAreReportedInTurnsAndTheRestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t, func() []pulse.Total { return nil })
		s.refuse(pulse.MaxRefusals + 500)
		reported, other := 0, int64(0)
		for range 20 {
			s.send(t.Context(), false)
			for _, r := range s.reports[len(s.reports)-1].Refusals {
				if reported++; r.Other {
					other += r.N
				}
			}
		}
		if reported != pulse.MaxRefusals+1 || other != 500 {
			t.Errorf("%d counts, %d requests of others; want %d and 500", reported, other, pulse.MaxRefusals+1)
		}
		for i, n := range s.sizes {
			if n > pulse.MaxReport {
				t.Errorf("report %d has %d bytes", i, n)
			}
		}
		time.Sleep(time.Minute)
		s.refuse(1)
		s.send(t.Context(), false)
		if r := s.reports[len(s.reports)-1].Refusals; len(r) != 1 || r[0].Other {
			t.Errorf("in the next minute: %+v; want the account itself", r)
		}
	})
}
