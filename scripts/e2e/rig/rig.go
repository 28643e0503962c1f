// Package rig runs the stack for end-to-end tests: the real binaries, in a directory and on
// ports of their own. Tests use it as a client, an operator and a provider would, and inject
// failures.
//
// It asserts nothing about the product; assertions belong to the tests.
//
// Invariants:
//   - a test gets accounts, keys and models of its own, so tests run in parallel;
//   - the catalog only grows, and every proxy serves a model when Model returns;
//   - nothing sleeps for a fixed time: every wait has a condition and a timeout.
package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// startLimit bounds the start of the stack, including the build of the binaries.
const startLimit = 5 * time.Minute

// A Rig is the running stack.
type Rig struct {
	// Admin calls the admin API with every scope.
	Admin *adminclient.Client
	// Proxies are the base URLs of the data planes, without /v1.
	Proxies []string
	// Sim is the provider simulator.
	Sim Simulator

	// Cluster has the NATS servers of a stack with Options.NATSServers; otherwise nil.
	Cluster *natstest.Cluster

	stack *devstack.Stack
	dir   string
	// programs is the folder of the stack's programs.
	programs string
	out      *bytes.Buffer
	links    links
	// standby is nil without one.
	standby *pgcluster.Cluster

	variables variables
	catalog   catalog
}

// Options describe the stack that the tests need.
type Options struct {
	// DataPlanes and ControlPlanes are the numbers of processes; they default to 2 and 1.
	DataPlanes, ControlPlanes int
	// DataSettings and ControlSettings are environment variables for all planes of a kind.
	// They override those of the stack.
	DataSettings, ControlSettings []string
	// Links puts a link that can be cut between each data plane and NATS.
	Links bool
	// Standby puts a link between the control planes and Postgres, and prepares StartStandby.
	Standby bool
	// NATSServers is the number of NATS servers of a stack that Start starts; zero means one that is not in Cluster. KnownServers,
	// unless nil, returns the indexes of those that a part connects to.
	NATSServers  int
	KnownServers func(part string) []int

	// cluster starts the NATS servers; nil without NATSServers.
	cluster func(users []*server.User) *natstest.Cluster
}

var running struct {
	options Options
	once    sync.Once
	rig     *Rig
	err     error
}

// Get returns the shared stack. The first call starts it.
func Get(t *testing.T) *Rig {
	t.Helper()
	skipShort(t)
	running.once.Do(func() { running.rig, running.err = start(running.options) })
	if running.err != nil {
		t.Fatalf("the stack does not start: %v", running.err)
	}
	return running.rig
}

// Start starts a stack for one test, which is stopped at its end.
func Start(t *testing.T, options Options) *Rig {
	t.Helper()
	skipShort(t)

	if n := options.NATSServers; n > 0 {
		options.cluster = func(users []*server.User) *natstest.Cluster {
			return natstest.NewCluster(t, n, func(o *server.Options) { o.Users = users })
		}
	}

	r, err := start(options)
	if err != nil {
		t.Fatalf("the stack does not start: %v", err)
	}

	t.Cleanup(func() {
		if err := r.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})

	return r
}

// Long skips a test of the long tier unless the variable LONG is set, as make test/long sets it.
func Long(t *testing.T) {
	t.Helper()
	if os.Getenv("LONG") == "" {
		t.Skip("a test of the long tier; set LONG=1 to run it, as make test/long does")
	}
}

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts everything")
	}
}

// Main runs the tests and stops the shared stack if one of them started it. It returns the
// exit code. The logs of the stack are kept if a test failed.
func Main(m *testing.M, options Options) int {
	running.options = options
	code := m.Run()
	if running.rig == nil {
		return code
	}
	if err := running.rig.stop(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// AdminURL returns the base URL of the admin API, for clients with tokens of their own.
func (r *Rig) AdminURL() string { return r.stack.State().AdminURL }

// AdminToken returns the bootstrap token, for clients other than Admin.
func (r *Rig) AdminToken() string { return r.stack.State().AdminToken }

// State returns the addresses and credentials of the stack, for programs that use a stack of make run.
func (r *Rig) State() devstack.State { return r.stack.State() }

// stop stops the stack. It keeps the logs if a test failed.
func (r *Rig) stop(failed bool) error {
	err := r.stack.Stop(context.Background())
	r.links.close()
	if r.standby != nil {
		err = errors.Join(err, r.standby.Stop(context.Background()))
	}
	if err != nil {
		err = fmt.Errorf("the stack does not stop in order: %w\n%s", err, r.out)
	}
	if err != nil || failed {
		fmt.Fprintf(os.Stderr, "the logs of the stack are kept in %s/log\n", r.dir)
		return err
	}
	return os.RemoveAll(r.dir)
}

func start(options Options) (*Rig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "modelgateway-e2e-*")
	if err != nil {
		return nil, err
	}

	// Postgres may run as another user and must be able to enter.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // G302: private files are in directories of their own
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
	r := &Rig{dir: dir, programs: layout.Bin, out: &bytes.Buffer{}}
	if err := r.start(ctx, layout, options); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, r.out)
	}

	state := r.stack.State()
	r.Proxies, r.Sim = state.BaseURLs, Simulator{state.ProviderSimURL}
	if r.Admin, err = adminclient.New(state.AdminURL, state.AdminToken); err != nil {
		return nil, err
	}

	return r, nil
}

// start starts the stack on free ports, and tries others if another process took one.
func (r *Rig) start(ctx context.Context, layout devstack.Layout, options Options) error {
	const attempts = 3
	planes := devstack.DefaultPlanes()
	planes.Data, planes.Control = cmp.Or(options.DataPlanes, planes.Data), cmp.Or(options.ControlPlanes, planes.Control)
	var faults []error
	for range attempts {
		ports, err := freePorts(ctx, planes)
		if err != nil {
			return err
		}

		if options.Links {
			if err := r.links.open(planes.Data, ports.NATS.Address()); err != nil {
				return err
			}
		}

		if options.Standby {
			if err := r.links.openPostgres(ports.Postgres.Address()); err != nil {
				return err
			}
		}

		r.stack, err = devstack.Start(ctx, devstack.Config{
			Layout:   layout,
			Out:      r.out,
			Postgres: pginstall.Console(),
			Ports:    ports,
			Settings: func(part string) []string { return r.settings(part, options) },
			NATS:     r.startCluster(options),
		})
		if err == nil {
			return nil
		}

		r.links.close()
		faults = append(faults, err)
		if !isPortTaken(err) {
			break
		}
	}

	return errors.Join(faults...)
}

// startCluster returns the function that starts the cluster of NATS servers; nil without a cluster.
func (r *Rig) startCluster(options Options) func([]*server.User) (*url.URL, error) {
	if options.cluster == nil {
		return nil
	}
	return func(users []*server.User) (*url.URL, error) {
		r.Cluster = options.cluster(users)
		return url.Parse(r.Cluster.Node(0).URL())
	}
}

// clusterSettings returns the settings that make a part use the cluster of NATS servers.
func (r *Rig) clusterSettings(part string, options Options) []string {
	if r.Cluster == nil {
		return nil
	}
	var known []int
	if options.KnownServers != nil {
		known = options.KnownServers(part)
	}
	settings := []string{"MGW_NATS_URL=" + r.Cluster.URL(known...)}
	if strings.HasPrefix(part, ControlPlane) {
		settings = append(settings, "MGW_NATS_REPLICAS="+strconv.Itoa(r.Cluster.Len()))
	}
	return settings
}

// settings returns the environment variables of a part.
func (r *Rig) settings(part string, options Options) []string {
	switch {
	case strings.HasPrefix(part, ControlPlane):
		name := []string{"PGAPPNAME=" + part} // names the connections in Postgres
		return slices.Concat(
			r.clusterSettings(part, options),
			r.postgresSettings(),
			options.ControlSettings,
			r.variables.of(ControlPlane),
			name,
		)
	case strings.HasPrefix(part, dataPlanes):
		return slices.Concat(r.clusterSettings(part, options), options.DataSettings, r.links.settings(part), r.variables.of(dataPlanes))
	default:
		return nil
	}
}

// isPortTaken reports whether a stack did not start because another process has taken one of its ports: before the start, or
// while its parts were starting, which only the text of the part's own error says.
func isPortTaken(err error) bool {
	return errors.Is(err, devstack.ErrPortInUse) || strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// searches is how many searches for free ports this process has begun.
var searches atomic.Int64

// freePorts finds ports that nobody listens on. They are below the range of ephemeral ports,
// because a killed part must find its port free when it restarts. Concurrent test binaries
// search in different ranges, and so do concurrent searches of one: a stack listens on its
// ports only after a while.
func freePorts(ctx context.Context, planes devstack.Planes) (devstack.Ports, error) {
	const lowest, highest = 20000, 32000
	step := max(64, 2*(planes.Data+planes.Control)+4) // more than there are ports
	slots := (highest - lowest) / step
	for range slots {
		ports := devstack.PortsFrom(lowest+slotOf(os.Getpid(), int(searches.Add(1)), slots)*step, planes)
		if ports.CheckFree(ctx) == nil {
			return ports, nil
		}
	}
	return devstack.Ports{}, errors.New("no free ports")
}

// slotOf returns the slot of a search of a process. The processes are spread over all slots by a golden section, which has no
// factor in common with any number of slots.
func slotOf(process, search, slots int) int {
	const section = 0.6180339887498949
	_, spread := math.Modf(float64(process) * section)
	return (int(spread*float64(slots)) + search) % slots
}
