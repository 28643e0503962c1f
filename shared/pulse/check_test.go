package pulse_test

import (
	"math"
	"strings"
	"testing"

	"modelgateway/shared/pulse"
)

func TestImplausibleReportsAreRefused(t *testing.T) {
	t.Parallel()
	full := report()
	if err := full.Check(); err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(*pulse.Report){
		"a negative count":           func(r *pulse.Report) { r.Totals[0].N = -1 },
		"a count that overflows":     func(r *pulse.Report) { r.Totals[0].N = math.MaxInt64 },
		"a sum that overflows":       func(r *pulse.Report) { r.Totals[6].SumMS = math.MaxInt64 },
		"a bucket that overflows":    func(r *pulse.Report) { r.Totals[6].Buckets[1] = math.MaxInt64 },
		"too many buckets":           func(r *pulse.Report) { r.Totals[6].Buckets = make([]int64, 1000) },
		"buckets of a count":         func(r *pulse.Report) { r.Totals[0].Buckets = []int64{1, 2} },
		"a status of other digits":   func(r *pulse.Report) { r.Totals[0].Status = 1 << 40 },
		"a text with NUL":            func(r *pulse.Report) { r.Totals[1].Model = "model\x00" },
		"a long text":                func(r *pulse.Report) { r.Totals[1].Model = strings.Repeat("m", 1000) },
		"a model refused with NUL":   func(r *pulse.Report) { r.Refusals[0].Model = "\x00" },
		"a refusal before this time": func(r *pulse.Report) { r.Refusals[0].FirstMS = math.MaxInt64 },
		"a refusal to come":          func(r *pulse.Report) { r.Refusals[0].LastMS = -1 },
		"a pool with NUL":            func(r *pulse.Report) { r.Refusals[0].Short.Pool = "\x00" },
		"a limit with NUL":           func(r *pulse.Report) { r.Refusals[0].Short.LimitID = "\x00" },
		"a window without a year":    func(r *pulse.Report) { r.Refusals[0].Short.ResetsMS = math.MaxInt64 },
		"a breaker of the future":    func(r *pulse.Report) { r.Breakers[0].SinceMS = -1 },
		"negative requests":          func(r *pulse.Report) { r.InFlight["/v1/chat/completions"] = -1 },
		"a negative spool":           func(r *pulse.Report) { r.Spool.Used = -1 },
		"a process without an end":   func(r *pulse.Report) { r.Process = strings.Repeat("p", 1000) },
	} {
		r := report()
		pool := *r.Refusals[0].Short
		r.Refusals[0].Short = &pool
		lie(&r)
		if err := r.Check(); err == nil {
			t.Errorf("%s: the report is accepted", name)
		}
	}
}
