// Package rig owns a running stack for end-to-end tests: the real binaries,
// started once per test binary in a directory and on ports of their own, and
// the means to use them as a client, an operator, a provider and an accident
// would.
//
// It asserts nothing about the product: what must hold stands in the tests.
//
// Invariants:
//   - a test gets accounts, keys and models of its own, so tests run in parallel;
//   - the catalog only grows, and a model is served by every proxy when Model
//     returns;
//   - nothing waits for a fixed time: every wait is for something, and ends with
//     an error when that does not come.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/devstack/pginstall"
)

// startLimit bounds the start of the stack, building the binaries included.
const startLimit = 5 * time.Minute

// A Rig is the running stack.
type Rig struct {
	// Admin calls the admin API with every scope.
	Admin *adminclient.ClientWithResponses
	// Proxies are the base URLs of the data planes, without /v1.
	Proxies []string
	// Sim is the provider simulator.
	Sim Simulator

	stack *devstack.Stack
	dir   string
	out   *bytes.Buffer

	catalog catalog
}

var running struct {
	once sync.Once
	rig  *Rig
	err  error
}

// Get returns the stack, which the first call starts.
func Get(t *testing.T) *Rig {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts everything")
	}
	running.once.Do(func() { running.rig, running.err = start() })
	if running.err != nil {
		t.Fatalf("the stack does not start: %v", running.err)
	}
	return running.rig
}

// Main runs the tests and stops the stack, if any of them started it. It
// returns the exit code. What the stack wrote is kept when a test failed.
func Main(m *testing.M) int {
	code := m.Run()
	r := running.rig
	if r == nil {
		return code
	}
	if err := r.stack.Stop(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "the stack does not stop in order: %v\n%s", err, r.out)
		code = max(code, 1)
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the logs of the stack are kept in %s/log\n", r.dir)
		return code
	}
	if err := os.RemoveAll(r.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func start() (*Rig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "modelgateway-e2e-*")
	if err != nil {
		return nil, err
	}
	// Postgres may run as another user and has to pass through.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // G302: what is private lies in directories of its own
		return nil, err
	}
	if err := os.Unsetenv(devstack.CatalogVariable); err != nil { // the tests build on the demo's
		return nil, err
	}
	layout, err := devstack.FindLayout(".", dir)
	if err != nil {
		return nil, err
	}
	layout.Bin = filepath.Join(layout.Root, ".cache", "e2e")
	r := &Rig{dir: dir, out: &bytes.Buffer{}}
	r.stack, err = startStack(ctx, devstack.Config{Layout: layout, Out: r.out, Postgres: pginstall.Console()})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, r.out)
	}
	state := r.stack.State()
	r.Proxies, r.Sim = state.BaseURLs, Simulator{state.ProviderSimURL}
	if r.Admin, err = adminclient.New(state.AdminURL, state.AdminToken); err != nil {
		return nil, err
	}
	return r, r.loadCatalog(ctx)
}

// startStack starts on free ports, and on others when somebody was faster.
func startStack(ctx context.Context, cfg devstack.Config) (*devstack.Stack, error) {
	const attempts = 3
	var faults []error
	for range attempts {
		var err error
		if cfg.Ports, err = freePorts(ctx); err != nil {
			return nil, err
		}
		stack, err := devstack.Start(ctx, cfg)
		if err == nil {
			return stack, nil
		}
		faults = append(faults, err)
		if !errors.Is(err, devstack.ErrPortInUse) {
			break
		}
	}
	return nil, errors.Join(faults...)
}

// freePorts finds ports that nobody listens on. They lie below those that the
// system gives to outgoing connections: a part that is killed must find its
// port free when it comes back. Test binaries that run at the same time search
// in different places.
func freePorts(ctx context.Context) (devstack.Ports, error) {
	const lowest, highest, step = 20000, 32000, 16 // more than there are ports
	for i := range (highest - lowest) / step {
		ports := devstack.PortsFrom(lowest + (os.Getpid()+i)*step%(highest-lowest))
		if ports.CheckFree(ctx) == nil {
			return ports, nil
		}
	}
	return devstack.Ports{}, errors.New("no free ports")
}
