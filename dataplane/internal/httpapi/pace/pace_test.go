package pace_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/httpapi/pace"
	"modelgateway/dataplane/internal/provider"
)

func TestOutputMustBeginWithinItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, first, end := pace.Within(t.Context(), time.Second)
		defer end()
		time.Sleep(time.Second - 1)
		if !first.Waits() || !first.Begin() || first.Waits() {
			t.Error("the output is too late before the limit")
		}
		time.Sleep(time.Hour)
		if ctx.Err() != nil || !first.Begin() {
			t.Error("the limit ends a call whose output has begun")
		}

		ctx, first, end = pace.Within(t.Context(), time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if first.Begin() || !errors.Is(context.Cause(ctx), provider.ErrFirstTokenTimeout) {
			t.Errorf("after the limit: %v", context.Cause(ctx))
		}
		end()

		ctx, first, end = pace.Within(t.Context(), 0)
		time.Sleep(time.Hour)
		if first.Waits() || !first.Begin() || ctx.Err() != nil {
			t.Error("there is a limit without one")
		}
		end()
	})
}

// signs notes when signs of life are written.
type signs struct {
	began time.Time
	at    []time.Duration
}

func (s *signs) ShowLife() { s.at = append(s.at, time.Since(s.began)) }

func TestSignsOfLifeComeInSilenceOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &signs{began: time.Now()}
		var w pace.Writer
		write := func() {
			w.Lock(time.Now())
			w.Unlock()
		}
		time.Sleep(time.Minute) // before the answer begins
		write()
		w.Begin(s)
		for range 10 {
			time.Sleep(10 * time.Second)
			write()
		}
		time.Sleep(50 * time.Second)
		w.Lock(time.Now())
		time.Sleep(time.Minute) // a client that does not read
		w.Unlock()
		time.Sleep(15 * time.Second)
		w.End()
		time.Sleep(time.Hour)
		want := []time.Duration{175 * time.Second, 190 * time.Second, 205 * time.Second, 280 * time.Second}
		if !slices.Equal(s.at, want) {
			t.Errorf("signs of life at %v; want %v", s.at, want)
		}
		w.End()
	})
}
