package main

import (
	"context"
	"slices"

	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
)

// collector is the child process that takes traces.
const collector = "collector"

// compareTraces measures two data planes of one stack: the second traces every request.
func compareTraces(ctx context.Context, o options) error {
	provider, err := start(ctx, "provider")
	if err != nil {
		return err
	}
	defer provider.end()
	sink, err := start(ctx, collector)
	if err != nil {
		return err
	}
	defer sink.end()
	tracing := devstack.DataPlaneName(1)
	stack, clean, err := startStack(ctx, provider.url, provider.url, 2, func(part string) []string {
		switch part {
		case tracing:
			return []string{"MGW_TRACING_ENDPOINT=" + sink.url, "MGW_TRACING_SAMPLE_RATIO=1"}
		case devstack.ControlPlaneName(0):
			return []string{"MGW_TRACING_ENDPOINT=" + sink.url}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer clean()
	state := stack.State()
	if err := raiseConcurrencyLimit(ctx, &state); err != nil {
		return err
	}
	targets := []proxybench.Target{
		{Name: "no traces", BaseURL: state.BaseURLs[0], Key: state.APIKey, PID: state.PIDs[devstack.DataPlaneName(0)]},
		{Name: "every request traced", BaseURL: state.BaseURLs[1], Key: state.APIKey, PID: state.PIDs[tracing]},
	}
	scenarios := slices.DeleteFunc(proxybench.Scenarios(), func(s proxybench.Scenario) bool { return s.Peak }) // 1 MB prompts tell nothing about spans
	return measure(ctx, o, targets, scenarios)
}
