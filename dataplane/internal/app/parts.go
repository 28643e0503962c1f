package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
)

// part is something that runs: started in the order in which it was added,
// stopped in the opposite order. Either function may be nil.
type part struct {
	name  string
	start func(ctx context.Context) error
	stop  func(ctx context.Context) error
}

// parts are started together and stopped together.
type parts struct {
	log  *slog.Logger
	list []part
	// started counts the parts that run.
	started int
}

func (p *parts) add(name string, start, stop func(ctx context.Context) error) {
	p.list = append(p.list, part{name, start, stop})
}

// addTask adds a part that is one function, which ends when its context does.
func (p *parts) addTask(name string, run func(ctx context.Context)) {
	var cancel context.CancelFunc
	done := make(chan struct{})
	p.add(name, func(ctx context.Context) error {
		ctx, cancel = context.WithCancel(ctx) //nolint:gosec // G118: the stop below calls it
		go func() { defer close(done); run(ctx) }()
		return nil
	}, func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

// start starts every part. If one fails, those before it go on running until
// stop. The context given to a part ends only after stop has returned.
func (p *parts) start(ctx context.Context) error {
	for _, each := range p.list {
		if each.start != nil {
			if err := each.start(ctx); err != nil {
				return fmt.Errorf("start %s: %w", each.name, err)
			}
		}
		p.started++
		p.log.DebugContext(ctx, "part started", "part", each.name)
	}
	return nil
}

// stop stops the parts that were started, the last one first, and goes on
// after a failure.
func (p *parts) stop(ctx context.Context) error {
	var faults []error
	for ; p.started > 0; p.started-- {
		each := p.list[p.started-1]
		if each.stop == nil {
			continue
		}
		if err := each.stop(ctx); err != nil {
			faults = append(faults, fmt.Errorf("stop %s: %w", each.name, err))
		}
		p.log.DebugContext(ctx, "part stopped", "part", each.name)
	}
	return errors.Join(faults...)
}

func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
