package main

import (
	"context"
	"fmt"
	"os"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
)

// neighbour prints the latencies of a quiet account alone and beside a noisy one.
func neighbour(ctx context.Context, o options, state *devstack.State) error {
	key, err := newAccount(ctx, state)
	if err != nil {
		return err
	}
	noisy := proxybench.Target{Name: "noisy", BaseURL: state.BaseURL, Key: state.APIKey}
	quiet := proxybench.Target{Name: "quiet", BaseURL: state.BaseURL, Key: key}
	if _, _, err := proxybench.MeasureNeighbour(ctx, noisy, quiet, proxybench.Scenario{Prompt: 1000, Conns: 1}, warmUpTime); err != nil {
		return err
	}
	for range o.rounds {
		alone, beside, err := proxybench.MeasureNeighbour(ctx, noisy, quiet, proxybench.Flood(), o.each)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "p50 alone %s, beside %s; p99 alone %s, beside %s (× %.2f); %d answers, %d failures beside\n",
			alone.Quantile(.5), beside.Quantile(.5), alone.Quantile(.99), beside.Quantile(.99),
			float64(beside.Quantile(.99))/float64(alone.Quantile(.99)), len(beside.Times), beside.Failures)
	}
	return nil
}

// newAccount creates an account with a balance and returns its key.
func newAccount(ctx context.Context, state *devstack.State) (key string, err error) {
	admin, err := adminclient.New(state.AdminURL, state.AdminToken)
	if err != nil {
		return "", fmt.Errorf("admin client: %w", err)
	}
	account, err := admin.CreateAccount(ctx, nil, adminclient.AccountCreate{Name: "quiet"})
	if err != nil {
		return "", fmt.Errorf("create account: %w", err)
	}
	_, err = admin.CreateCredit(ctx, account.Value.ID, nil, adminclient.CreditCreate{Amount: "1000.00", Kind: adminclient.CreditKindTopUp, Reference: "bench"})
	if err != nil {
		return "", fmt.Errorf("credit account: %w", err)
	}
	made, err := admin.CreateKey(ctx, account.Value.ID, nil, adminclient.KeyCreate{Name: "bench"})
	if err != nil {
		return "", fmt.Errorf("create key: %w", err)
	}
	return made.Value.Secret, nil
}
