// Package lifecycle starts the components of a program in order and stops them
// in the reverse order.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

type component struct {
	name  string
	start func(ctx context.Context) error
	stop  func(ctx context.Context) error
}

// Components are started in the order in which they were added and stopped in
// the reverse order. It is not safe for concurrent use.
type Components struct {
	// Log gets a debug message for each component that starts or stops.
	Log *slog.Logger

	list []component
	// running counts the components that have started and not stopped.
	running int
}

// Add adds a component. Either function may be nil.
func (c *Components) Add(name string, start, stop func(ctx context.Context) error) {
	c.list = append(c.list, component{name, start, stop})
}

// AddTask adds a component that is one function. The function runs in a
// goroutine; its context ends when the component is stopped, and Stop waits for
// the function to return.
func (c *Components) AddTask(name string, run func(ctx context.Context)) {
	var cancel context.CancelFunc
	done := make(chan struct{})
	c.Add(name, func(ctx context.Context) error {
		ctx, cancel = context.WithCancel(ctx) //nolint:gosec // G118: the stop below calls it
		go func() { defer close(done); run(ctx) }()
		return nil
	}, func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

// Start starts every component with ctx. If one fails, Start returns its error
// at once and those before it keep running until Stop. Components may keep ctx:
// it must not end before Stop has returned.
func (c *Components) Start(ctx context.Context) error {
	for _, each := range c.list {
		if each.start != nil {
			if err := each.start(ctx); err != nil {
				return fmt.Errorf("start %s: %w", each.name, err)
			}
		}
		c.running++
		c.Log.DebugContext(ctx, "component started", "component", each.name)
	}
	return nil
}

// Stop stops the components that have started, the last one first. If one fails
// to stop, the others are stopped all the same; the errors are joined. ctx
// bounds the stop.
func (c *Components) Stop(ctx context.Context) error {
	var errs []error
	for ; c.running > 0; c.running-- {
		each := c.list[c.running-1]
		if each.stop == nil {
			continue
		}
		if err := each.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", each.name, err))
		}
		c.Log.DebugContext(ctx, "component stopped", "component", each.name)
	}
	return errors.Join(errs...)
}
