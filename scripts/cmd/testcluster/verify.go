package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/money"
)

// total is the settled usage of a model.
type total struct {
	requests int
	cost     money.Nano
}

// settleLimit bounds the wait for settlement.
const settleLimit = 3 * time.Minute

// awaitTotals waits until as many requests are settled as were answered, and returns their totals by model. More of them are an
// error at once: a request was billed twice.
func (s *scenario) awaitTotals(ctx context.Context) (map[string]total, error) {
	answered := s.load.snapshot()
	broken := 0 // such a request can be billed or not
	for _, n := range answered.broken {
		broken += n
	}

	want := map[string]int{"chat": answered.requests, "stream": answered.streams}
	var last string
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Second / 2) {
		got, err := s.totals(ctx)
		if err != nil {
			last = err.Error()
			continue // the control plane may be starting
		}

		equal := true
		for model, n := range want {
			if got[model].requests > n+broken {
				return nil, fmt.Errorf("%d requests to %s are billed, but %d were answered", got[model].requests, model, n)
			}
			equal = equal && got[model].requests >= n
		}

		if equal {
			return got, nil
		}

		last = fmt.Sprintf("settled %v of %v", got, want)
	}

	return nil, errors.New("not all requests were settled: " + last)
}

// totals returns the settled usage of the account by model.
func (s *scenario) totals(ctx context.Context) (map[string]total, error) {
	answer, err := s.admin.GetUsageTotals(ctx, &adminclient.GetUsageTotalsParams{
		AccountID: &s.account, GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupModel},
	})
	if err != nil {
		return nil, fmt.Errorf("totals of usage: %w", err)
	}
	all := map[string]total{}
	for _, t := range answer.Value.Data {
		cost, err := money.Parse(t.Cost)
		if err != nil {
			return nil, fmt.Errorf("totals of usage: %w", err)
		}
		all[*t.Model] = total{int(t.Requests), cost}
	}
	return all, nil
}

// verify checks that each answered request was billed once at its price, and that the ledger and all receipts agree.
func (s *scenario) verify(ctx context.Context) error {
	totals, err := s.awaitTotals(ctx)
	if err != nil {
		return err
	}

	for model, t := range totals {
		if want := s.price[model] * money.Nano(t.requests); t.cost != want {
			return fmt.Errorf("%d requests to %s cost %s USD; want %s", t.requests, model, t.cost, want)
		}
		s.say("%-6s %6d requests answered, billed once: %s USD", model, t.requests, t.cost)
	}

	check, err := s.admin.CheckLedger(ctx, nil)
	if err != nil {
		return fmt.Errorf("check of the ledger: %w", err)
	}
	if !check.Value.OK {
		return fmt.Errorf("the check of the ledger found differences: %+v", check.Value.Checks)
	}

	s.say("the ledger is consistent (%d checks)", len(check.Value.Checks))
	diagnosis, err := s.admin.GetDiagnosis(ctx, nil)
	if err != nil {
		return fmt.Errorf("diagnosis: %w", err)
	}

	for _, f := range diagnosis.Value.Findings {
		if f.Status != adminclient.FindingStatusOK {
			s.say("diagnosis: %s %s %s: %s", f.Status, f.Area, f.Check, f.Detail)
		}
	}

	if diagnosis.Value.Status == adminclient.FindingStatusFailure {
		return errors.New("the diagnosis found a failure")
	}

	return nil
}
