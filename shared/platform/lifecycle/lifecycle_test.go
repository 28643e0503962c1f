package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"modelgateway/shared/platform/lifecycle"
)

// setup returns three components, of which some fail, and the calls that they get.
func setup(failStart, failStop string) (*lifecycle.Components, *[]string) {
	calls := &[]string{}
	c := &lifecycle.Components{Log: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"a", "b", "c"} {
		c.Add(name, func(context.Context) error {
			*calls = append(*calls, "start "+name)
			if name == failStart {
				return errors.New("no")
			}
			return nil
		}, func(context.Context) error {
			*calls = append(*calls, "stop "+name)
			if name == failStop {
				return errors.New("no")
			}
			return nil
		})
	}
	return c, calls
}

func TestComponentsStopInReverseOrder(t *testing.T) {
	t.Parallel()
	c, calls := setup("", "")
	if err := errors.Join(c.Start(t.Context()), c.Stop(t.Context()), c.Stop(t.Context())); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "start c", "stop c", "stop b", "stop a"}; !slices.Equal(*calls, want) {
		t.Errorf("got %q; want %q", *calls, want)
	}
}

func TestOnlyStartedComponentsAreStopped(t *testing.T) {
	t.Parallel()
	c, calls := setup("b", "")
	if err := c.Start(t.Context()); err == nil || err.Error() != "start b: no" {
		t.Errorf("got %v; want the error of b", err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop a"}; !slices.Equal(*calls, want) {
		t.Errorf("got %q; want %q", *calls, want)
	}
}

func TestStopContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	c, calls := setup("", "c")
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err == nil || err.Error() != "stop c: no" {
		t.Errorf("got %v; want the error of c", err)
	}
	if want := []string{"stop c", "stop b", "stop a"}; !slices.Equal((*calls)[3:], want) {
		t.Errorf("got %q; want %q", (*calls)[3:], want)
	}
}

func TestStopWaitsForATask(t *testing.T) {
	t.Parallel()
	c := &lifecycle.Components{Log: slog.New(slog.DiscardHandler)}
	ended := false
	c.AddTask("task", func(ctx context.Context) { <-ctx.Done(); ended = true })
	if err := errors.Join(c.Start(t.Context()), c.Stop(t.Context())); err != nil || !ended {
		t.Errorf("got %v, ended: %t; want the task to have ended", err, ended)
	}
}
