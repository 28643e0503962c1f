package devstack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"modelgateway/scripts/devstack/supervise"
)

// keepers are the parts that the stack keeps running, by name.
type keepers struct {
	mu   sync.Mutex
	kept map[string]kept
}

// kept is a part and who keeps it; nobody while it is halted.
type kept struct {
	part   supervise.Part
	keeper *supervise.Keeper
}

func (k *keepers) get(name string) kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[name]
}

func (k *keepers) set(name string, what kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string]kept{}
	}
	k.kept[name] = what
}

// startTogether starts services at the same time, to be stopped at the same
// time.
func (s *Stack) startTogether(ctx context.Context, services ...service) error {
	var names []string
	var parts []supervise.Part
	for _, svc := range services {
		if s.Settings != nil {
			svc.more = func() []string { return s.Settings(svc.name) }
		}
		names, parts = append(names, svc.name), append(parts, s.Layout.part(svc))
	}
	return s.progress.step("starting "+strings.Join(names, " and "), func() error { return s.keep(ctx, parts...) })
}

// keep starts parts at the same time and keeps them running, until they are
// stopped at the same time.
func (s *Stack) keep(ctx context.Context, parts ...supervise.Part) error {
	s.stops = append(s.stops, func(ctx context.Context) error {
		var group errgroup.Group
		for _, part := range parts {
			if keeper := s.keepers.get(part.Name).keeper; keeper != nil {
				group.Go(func() error { return keeper.Stop(ctx) })
			}
		}
		return group.Wait()
	})
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return s.startOne(ctx, part) })
	}
	return group.Wait() //nolint:wrapcheck // startOne says which part
}

func (s *Stack) startOne(ctx context.Context, part supervise.Part) error {
	keeper, err := supervise.Keep(ctx, part, s.observer())
	s.keepers.set(part.Name, kept{part, keeper})
	return err
}

// Halt ends a part for as long as a test wants: in order or, when ctx has
// ended, at once. It returns when the process is gone. It must not run beside
// Stop.
func (s *Stack) Halt(ctx context.Context, name string) error {
	k := s.keepers.get(name)
	if k.keeper == nil {
		return fmt.Errorf("devstack: %s does not run", name)
	}
	s.keepers.set(name, kept{part: k.part})
	err := k.keeper.Stop(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that it had to be killed is what was asked for
	}
	return err
}

// Resume starts a part that was halted, and returns when it serves.
func (s *Stack) Resume(ctx context.Context, name string) error {
	k := s.keepers.get(name)
	if k.keeper != nil || k.part.Start == nil {
		return fmt.Errorf("devstack: %s is not halted", name)
	}
	return s.startOne(ctx, k.part)
}

// RestartNATS stops NATS, which runs in this process, calls between with the
// directory of its data, if it is given, and starts NATS again on that. Tests
// have accidents of it. It must not run beside Stop.
func (s *Stack) RestartNATS(between func(dir string) error) error {
	s.bus.stop()
	var err error
	if between != nil {
		err = between(s.Layout.nats())
	}
	return errors.Join(err, s.startNATS())
}
