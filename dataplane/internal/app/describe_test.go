package app

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/platform/ops"
)

// The proxy describes only the checks that fail.
func TestReasonsForWhichAProxyIsNotReady(t *testing.T) {
	t.Parallel()
	var probes ops.Probes
	probes.Add("session", func(context.Context) error { return nil })
	if got := notReady(&probes); got != nil {
		t.Errorf("ready: got %v; want no reason", got)
	}
	probes.Add("catalog", func(context.Context) error { return errors.New("no snapshot") })
	if diff := cmp.Diff(map[string]string{"catalog": "no snapshot"}, notReady(&probes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
