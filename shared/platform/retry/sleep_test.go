package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/platform/retry"
)

func TestSleepEndsAfterItsDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !retry.Sleep(t.Context(), time.Minute) {
			t.Error("got false; want true after the whole duration")
		}
		if slept := time.Since(began); slept != time.Minute {
			t.Errorf("slept %s; want 1m", slept)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if retry.Sleep(ctx, time.Minute) {
			t.Error("got true; want false when the context ends first")
		}
		if slept := time.Since(began); slept != time.Second {
			t.Errorf("slept %s; want 1s", slept)
		}
	})
}
