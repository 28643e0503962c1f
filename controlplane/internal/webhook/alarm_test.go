package webhook_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/wire"
)

func TestAlarmsOfBalancesAndLimits(t *testing.T) {
	t.Parallel()
	const near, out = webhook.AlarmNear, webhook.AlarmExhausted
	balance := func(left, low int64, alarmed webhook.AlarmSet) webhook.Pool {
		return webhook.Pool{Kind: wire.Balance, Total: left + 500, Settled: 500, Peak: 500, LowAt: low, Percent: 80, Raised: alarmed}
	}
	limit := func(settled, total int64, percent int16, alarmed webhook.AlarmSet) webhook.Pool {
		return webhook.Pool{Kind: wire.Limit, Total: total, Settled: settled, Percent: percent, Raised: alarmed}
	}
	for name, test := range map[string]struct {
		pool    webhook.Pool
		refused bool
		now     webhook.AlarmSet
		raised  []webhook.Type
	}{
		"new account":                         {pool: webhook.Pool{Kind: wire.Balance, LowAt: 100}},
		"new account, debited":                {pool: webhook.Pool{Kind: wire.Balance, Total: -5, LowAt: 100}},
		"new account, request refused":        {pool: webhook.Pool{Kind: wire.Balance}, refused: true},
		"balance that was never above":        {pool: webhook.Pool{Kind: wire.Balance, Total: 99, Settled: 5, Peak: 99, LowAt: 100}},
		"balance that was, and is gone":       {pool: webhook.Pool{Kind: wire.Balance, Total: 99, Settled: 99, Peak: 99, LowAt: 100}, now: out, raised: []webhook.Type{webhook.BalanceExhausted}},
		"balance that was at the threshold":   {pool: webhook.Pool{Kind: wire.Balance, Total: 100, Settled: 1, Peak: 100, LowAt: 100}, now: near, raised: []webhook.Type{webhook.LowBalance}},
		"balance at threshold":                {pool: balance(100, 100, 0)},
		"balance below":                       {pool: balance(99, 100, 0), now: near, raised: []webhook.Type{webhook.LowBalance}},
		"balance below, told":                 {pool: balance(1, 100, near), now: near},
		"balance a little above, told":        {pool: balance(109, 100, near), now: near},
		"balance above, told":                 {pool: balance(110, 100, near)},
		"balance without threshold":           {pool: balance(1, 0, 0)},
		"threshold taken away":                {pool: balance(1, 0, near)},
		"balance gone":                        {pool: balance(0, 100, near), now: near | out, raised: []webhook.Type{webhook.BalanceExhausted}},
		"balance gone at once":                {pool: balance(-5, 100, 0), now: near | out, raised: []webhook.Type{webhook.LowBalance, webhook.BalanceExhausted}},
		"balance too small for a request":     {pool: balance(3, 0, 0), refused: true, now: out, raised: []webhook.Type{webhook.BalanceExhausted}},
		"too small, told":                     {pool: balance(3, 0, out), now: out, refused: true},
		"too small, told, another is settled": {pool: balance(2, 0, out), now: out},
		"limit below":                         {pool: limit(79, 100, 80, 0)},
		"limit near":                          {pool: limit(80, 100, 80, 0), now: near, raised: []webhook.Type{webhook.LimitNear}},
		"limit near, told":                    {pool: limit(81, 100, 80, near), now: near},
		"limit raised":                        {pool: limit(80, 200, 80, near)},
		"limit near, not wanted":              {pool: limit(99, 100, 0, 0)},
		"limit reached":                       {pool: limit(100, 100, 80, near), now: near | out, raised: []webhook.Type{webhook.LimitReached}},
		"limit of zero":                       {pool: limit(0, 0, 80, 0), now: near | out, raised: []webhook.Type{webhook.LimitNear, webhook.LimitReached}},
		"limit taken away":                    {pool: webhook.Pool{Kind: wire.Limit, Unlimited: true, Settled: 500, Percent: 80, Raised: near | out}},
		"limit too small for a request":       {pool: limit(50, 100, 80, 0), refused: true, now: out, raised: []webhook.Type{webhook.LimitReached}},
		"slots":                               {pool: webhook.Pool{Kind: wire.Slots, Percent: 80}},
		"greatest amounts":                    {pool: limit(math.MaxInt64-1, math.MaxInt64, 100, 0)},
		"greatest amounts, near":              {pool: limit(math.MaxInt64/10*9, math.MaxInt64, 80, 0), now: near, raised: []webhook.Type{webhook.LimitNear}},
	} {
		now, raised := test.pool.EvaluateAlarms(test.refused)
		if diff := cmp.Diff(test.raised, raised); diff != "" || now != test.now {
			t.Errorf("%s: alarmed %d; want %d; raised (-want +got):\n%s", name, now, test.now, diff)
		}
	}
}

// Between two events of the same alarm, the balance rises well above the threshold.
func TestAlarmIsRaisedOncePerCrossing(t *testing.T) {
	t.Parallel()
	const low = 1000
	reports := 0
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := webhook.Pool{Kind: wire.Balance, Total: 5 * low, Peak: 5 * low, LowAt: low}
		rose := true
		for range 500 {
			if amount := r.Int64N(low / 5); r.IntN(2) == 0 {
				p.Settled += amount
			} else {
				p.Total += amount
				p.ClearExhausted()
			}
			rose = rose || p.Left() >= low+low/10
			now, raised := p.EvaluateAlarms(false)
			p.Raised = now
			for _, t2 := range raised {
				if t2 != webhook.LowBalance {
					continue
				}
				if !rose || p.Left() >= low {
					t.Fatalf("seed %d: reported again at %d without a rise", seed, p.Left())
				}
				rose = false
				reports++
			}
			if p.Left() < low && p.Raised&webhook.AlarmNear == 0 {
				t.Fatalf("seed %d: low at %d and not reported", seed, p.Left())
			}
		}
	}
	if reports == 0 {
		t.Error("nothing was ever reported")
	}
}
