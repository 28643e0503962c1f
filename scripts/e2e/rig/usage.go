package rig

import (
	"context"
	"fmt"
	"testing"

	"modelgateway/controlplane/adminclient"
)

// AwaitUsage waits until a request is settled and returns its usage record with the receipt.
func (r *Rig) AwaitUsage(t *testing.T, requestID string) *adminclient.UsageDetail {
	t.Helper()
	var usage *adminclient.UsageDetail
	Await(t, "the usage of "+requestID, func(ctx context.Context) error {
		answer, err := r.Admin.GetUsage(ctx, requestID)
		if err != nil {
			return err
		}
		usage = answer.Value
		return nil
	})
	return usage
}

// Usage returns all usage records of the account, newest first.
func (a *Account) Usage(ctx context.Context) ([]adminclient.UsageRecord, error) {
	var all []adminclient.UsageRecord
	limit := 500
	for params := (&adminclient.ListUsageParams{AccountID: &a.ID, Limit: &limit}); ; {
		answer, err := a.rig.Admin.ListUsage(ctx, params)
		if err != nil {
			return nil, err
		}
		all = append(all, answer.Value.Data...)
		if params.Cursor = answer.Value.NextCursor; params.Cursor == nil {
			return all, nil
		}
	}
}

// AwaitUsage waits until the account has n usage records, and returns them.
func (a *Account) AwaitUsage(t *testing.T, n int) []adminclient.UsageRecord {
	t.Helper()
	var all []adminclient.UsageRecord
	Await(t, "the usage of the account", func(ctx context.Context) (err error) {
		if all, err = a.Usage(ctx); err == nil && len(all) < n {
			err = fmt.Errorf("%d requests are settled; want %d", len(all), n)
		}
		return err
	})
	if len(all) != n {
		t.Fatalf("%d requests are settled; want %d", len(all), n)
	}
	return all
}

// AwaitSettled waits until no proxy has unsettled usage. No other test may send requests.
func (r *Rig) AwaitSettled(t *testing.T) {
	t.Helper()
	Await(t, "everything to be settled", func(ctx context.Context) error {
		return r.eachProxy(func(name, opsURL string) error {
			used, err := metric(ctx, opsURL, "mgw_spool_used_capacity")
			if err == nil && used != 0 {
				err = fmt.Errorf("%s has %v unsettled events", name, used)
			}
			return err
		})
	})
}

// CheckLedger runs the ledger check of the control plane.
func (r *Rig) CheckLedger(t *testing.T) {
	t.Helper()
	answer, err := r.Admin.CheckLedger(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !answer.Value.OK {
		t.Errorf("the ledger check found differences: %s", answer.Body)
	}
}

// Fleet returns the data planes that the control plane knows.
func (r *Rig) Fleet(ctx context.Context) ([]adminclient.Proxy, error) {
	answer, err := r.Admin.ListProxies(ctx)
	if err != nil {
		return nil, err
	}
	return answer.Value.Data, nil
}
