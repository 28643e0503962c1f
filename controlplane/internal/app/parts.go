package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
