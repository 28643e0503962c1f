package devstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"modelgateway/scripts/devstack/supervise"
	"modelgateway/shared/natsuser"
)

// partTable holds the parts of the stack by name.
type partTable struct {
	mu      sync.Mutex
	entries map[string]partEntry
}

// partEntry is a part and its keeper, which is nil while the part is halted.
type partEntry struct {
	part   supervise.Part
	keeper *supervise.Keeper
}

func (p *partTable) get(name string) partEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries[name]
}

func (p *partTable) set(name string, entry partEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries == nil {
		p.entries = map[string]partEntry{}
	}
	p.entries[name] = entry
}

// startServices starts services concurrently. Stop will stop them concurrently.
func (s *Stack) startServices(ctx context.Context, services ...service) error {
	var names []string
	var parts []supervise.Part
	for _, svc := range services {
		svc.settings = s.withUserSettings(svc.binary, svc.settings)
		if s.Settings != nil {
			svc.overrides = func() []string { return s.Settings(svc.name) }
		}
		names, parts = append(names, svc.name), append(parts, s.Layout.part(svc))
	}
	return s.progress.step("starting "+strings.Join(names, " and "), func() error { return s.keep(ctx, parts...) })
}

// keep starts parts concurrently and keeps them running until Stop stops them concurrently.
func (s *Stack) keep(ctx context.Context, parts ...supervise.Part) error {
	s.stops = append(s.stops, func(ctx context.Context) error {
		var group errgroup.Group
		for _, part := range parts {
			if keeper := s.parts.get(part.Name).keeper; keeper != nil {
				group.Go(func() error { return keeper.Stop(ctx) })
			}
		}
		return group.Wait()
	})
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return s.startPart(ctx, part) })
	}
	return group.Wait() //nolint:wrapcheck // errors of startPart name the part
}

func (s *Stack) startPart(ctx context.Context, part supervise.Part) error {
	keeper, err := supervise.Keep(ctx, part, s.observer())
	s.parts.set(part.Name, partEntry{part, keeper})
	return err
}

// Halt stops a part until Resume, for tests. If ctx has ended, it kills the process. It
// returns after the end of the process. It must not be called concurrently with Stop.
func (s *Stack) Halt(ctx context.Context, name string) error {
	entry := s.parts.get(name)
	if entry.keeper == nil {
		return fmt.Errorf("devstack: %s is not running", name)
	}
	s.parts.set(name, partEntry{part: entry.part})
	err := entry.keeper.Stop(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller wanted the process to be killed
	}
	return err
}

// Resume starts a halted part and returns when it is ready.
func (s *Stack) Resume(ctx context.Context, name string) error {
	entry := s.parts.get(name)
	if entry.keeper != nil || entry.part.Start == nil {
		return fmt.Errorf("devstack: %s is not halted", name)
	}
	return s.startPart(ctx, entry.part)
}

// RestartNATS stops NATS, which runs in this process, calls between with its data directory
// unless between is nil, and starts NATS again with that directory. Tests use it to damage
// or replace the data. It must not be called concurrently with Stop.
func (s *Stack) RestartNATS(between func(dir string) error) error {
	s.bus.stop()
	var err error
	if between != nil {
		err = between(s.Layout.nats())
	}
	return errors.Join(err, s.startNATS())
}

// SetNATSUsers replaces the users of both planes in the running NATS server. The passwords are by
// the names of the users. Tests use it to exchange passwords.
func (s *Stack) SetNATSUsers(users []natsuser.User, passwords map[string]string) error {
	passwords = maps.Clone(passwords)
	passwords[operatorUser] = s.secrets.NATSOperator
	return s.bus.setUsers(users, passwords)
}
