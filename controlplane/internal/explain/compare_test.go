package explain

import (
	"testing"

	"modelgateway/shared/wire"
)

func TestProxiesThatAnswerDifferentlyAreToldApart(t *testing.T) {
	t.Parallel()
	sent := func(needs ...wire.Need) wire.ExplainResponse {
		var p wire.ExplainResponse
		p.Needs = needs
		return p
	}
	refused := func(status int, code string) wire.ExplainResponse {
		var p wire.ExplainResponse
		p.Refusals = []wire.ExplainRefusal{{Status: status, Code: code}, {Status: 503, Code: "a later one"}}
		return p
	}
	for name, tt := range map[string]struct {
		proxies []wire.ExplainResponse
		outcome Outcome
		status  int // of the refusal that all have in common
	}{
		"no proxy":                     {nil, Unknown, 0},
		"all send":                     {[]wire.ExplainResponse{sent(), sent()}, Sent, 0},
		"all refuse for one reason":    {[]wire.ExplainResponse{refused(429, "rate"), refused(429, "rate")}, Refused, 429},
		"one refuses":                  {[]wire.ExplainResponse{sent(), refused(429, "rate")}, Differs, 0},
		"all refuse, by other codes":   {[]wire.ExplainResponse{refused(429, "rate"), refused(429, "slots")}, Differs, 0},
		"all refuse, by other status":  {[]wire.ExplainResponse{refused(402, "rate"), refused(429, "rate")}, Differs, 0},
		"differs stays if others send": {[]wire.ExplainResponse{refused(402, "rate"), sent(), refused(402, "rate")}, Differs, 0},
	} {
		e := Explanation{Proxies: tt.proxies}
		e.compare()
		status := 0
		if e.Refusal != nil {
			status = e.Refusal.Status
		}
		if e.Outcome != tt.outcome || status != tt.status {
			t.Errorf("%s: got %v with the refusal %+v; want %v, %d", name, e.Outcome, e.Refusal, tt.outcome, tt.status)
		}
	}
}

func TestNeedsAreComparedWithWhatPoolsHave(t *testing.T) {
	t.Parallel()
	e := Explanation{Proxies: []wire.ExplainResponse{{}}, Record: &wire.KeyRecord{BalancePool: 1, LimitPool: 2}}
	e.Proxies[0].Needs = []wire.Need{
		{Pool: 1, Kind: wire.Balance, Amount: 40},
		{Pool: 2, Kind: wire.Limit, Amount: 40},
		{Pool: 3, Kind: wire.Limit, Amount: 40},
	}
	e.compare()
	e.setNeeds(&wire.ExplainRequest{Pools: []wire.PoolState{
		{Pool: 1, Kind: wire.Balance, Total: 100, Free: 40, Settled: 10}, // 50 are with proxies
		{Pool: 2, Kind: wire.Limit, Total: 100, Free: 39, Settled: 61},
		{Pool: 3, Kind: wire.Limit, Unlimited: true},
	}})
	if len(e.Needs) != 3 {
		t.Fatalf("got %d needs; want one for each pool", len(e.Needs))
	}
	if n := e.Needs[0]; !n.Enough || n.Available != 40 || n.Reserved != 50 {
		t.Errorf("balance: %+v; want enough, 40 available, 50 reserved", n)
	}
	if n := e.Needs[1]; n.Enough || n.Available != 39 || n.Reserved != 0 {
		t.Errorf("limit: %+v; want too little", n)
	}
	if n := e.Needs[2]; !n.Enough || !n.Unlimited {
		t.Errorf("no limit: %+v; want enough", n)
	}
}
