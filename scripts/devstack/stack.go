package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/scripts/devstack/supervise"
	"modelgateway/shared/pgcluster"
)

// CatalogVariable names the environment variable with the catalog file to
// apply instead of the demo's.
const CatalogVariable = "MGW_CATALOG"

const demoCatalog = "scripts/catalog/demo.yaml"

const (
	// stopLimit bounds the stop of everything: a data plane lets running
	// requests end for up to 30 seconds and then settles what it owes.
	stopLimit = 60 * time.Second
	// applyLimit bounds how long the catalog takes to reach the data planes, who
	// are asked every applyPause.
	applyLimit = 30 * time.Second
	applyPause = 50 * time.Millisecond
)

// Config says what to run.
type Config struct {
	// Layout says where.
	Layout Layout
	// Out is told what happens.
	Out io.Writer
	// Postgres finds or installs the database.
	Postgres pginstall.Conversation
	// Hurry, when it is closed, ends a graceful stop at once. Nil never does.
	Hurry <-chan struct{}
	// Ports are where it listens. Zero: where LoadPorts says.
	Ports Ports
}

// A Stack runs until Stop.
type Stack struct {
	Config
	// document is the catalog to apply, of the mediaType.
	document, mediaType string

	secrets  Secrets
	progress *progress
	book     *book
	bus      *bus
	// stops undo what was started, the latest first.
	stops []func(context.Context) error
	// release lets go of the directory.
	release func()
}

// Run starts the stack, and returns when ctx has ended and all of it has
// stopped, or when it cannot start.
func Run(ctx context.Context, cfg Config) (err error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	<-ctx.Done()
	return nil
}

// Start starts the stack and returns when it is ready; ctx bounds the start.
// When it fails, nothing is left running.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// open takes the directory and finds out whether a stack can start in it.
func open(ctx context.Context, cfg Config) (*Stack, error) {
	s := &Stack{Config: cfg, progress: &progress{out: cfg.Out}, book: newBook(cfg.Layout)}
	var err error
	if s.Ports == (Ports{}) {
		if s.Ports, err = LoadPorts(os.Getenv); err != nil {
			return nil, err
		}
	}
	if err := s.readCatalog(); err != nil {
		return nil, err
	}
	if err := s.Layout.make(); err != nil {
		return nil, err
	}
	if s.release, err = s.Layout.lock(); err != nil {
		return nil, err
	}
	err = s.Layout.endStale(ctx, s.progress.sayf)
	if err == nil {
		err = s.Ports.CheckFree(ctx)
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// State returns how to use the stack, with the processes that run now.
func (s *Stack) State() State { return s.book.current() }

// readCatalog reads the catalog first of all: a variable that is missing in it
// is better told before anything has been built.
func (s *Stack) readCatalog() (err error) {
	file := os.Getenv(CatalogVariable)
	if file == "" {
		file = filepath.Join(s.Layout.Root, demoCatalog)
	}
	s.document, s.mediaType, err = loadCatalog(file, func(name string) (string, bool) {
		if name == SimVariable {
			return s.Ports.Sim.URL(), true
		}
		return os.LookupEnv(name)
	})
	return err
}

// start starts everything and publishes how to use it.
func (s *Stack) start(ctx context.Context) error {
	binaries, err := s.Postgres.Ensure(ctx)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.startStores(ctx, binaries); err != nil {
		return err
	}
	for _, svc := range []service{s.Layout.simulator(s.Ports), s.Layout.controlPlane(s.Ports)} {
		if err := s.startTogether(ctx, svc); err != nil {
			return err
		}
	}
	admin := caller{url: s.Ports.Admin.URL(), token: s.secrets.AdminToken}
	var seeds seeded
	err = s.progress.step("setting up the demo account and the catalog", func() (err error) {
		seeds, err = seed(ctx, admin, s.document, s.mediaType)
		return err
	})
	if err != nil {
		return err
	}
	dp1 := s.Layout.dataPlane("dp-1", s.Ports, s.Ports.API, s.Ports.Ops)
	dp2 := s.Layout.dataPlane("dp-2", s.Ports, s.Ports.API2, s.Ports.Ops2)
	if err := s.startTogether(ctx, dp1, dp2); err != nil {
		return err
	}
	return s.publish(ctx, seeds)
}

// prepare makes what the processes need: secrets and binaries.
func (s *Stack) prepare(ctx context.Context) (err error) {
	if s.secrets, err = s.Layout.loadSecrets(); err != nil {
		return err
	}
	if err := writeFile(s.Layout.secret("postgres_url"), []byte(s.postgresURL()+"\n")); err != nil {
		return err
	}
	return s.progress.step("building the binaries", func() error { return s.Layout.build(ctx) })
}

// startStores starts Postgres and NATS, and migrates.
func (s *Stack) startStores(ctx context.Context, binaries pgcluster.Binaries) error {
	err := s.progress.step("starting Postgres", func() error {
		part := s.Layout.postgresPart(binaries, s.Ports.Postgres, s.secrets.PostgresPassword, s.progress.sayf)
		keeper, err := supervise.Keep(ctx, part, s.observer())
		if err == nil {
			s.stops = append(s.stops, keeper.Stop)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = s.progress.step("starting NATS", func() error {
		if err := s.startNATS(); err != nil {
			return err
		}
		s.stops = append(s.stops, func(context.Context) error { s.bus.stop(); return nil })
		return nil
	})
	if err != nil {
		return err
	}
	return s.progress.step("migrating the database", func() error {
		return s.Layout.migrate(ctx, []string{"MGW_POSTGRES_URL_FILE=" + s.Layout.secret("postgres_url")})
	})
}

func (s *Stack) startNATS() error {
	bus, err := startBus(s.Layout, s.Ports.NATS, map[string]string{controlUser: s.secrets.NATSControl, dataUser: s.secrets.NATSData})
	if err == nil {
		s.bus = bus
	}
	return err
}

// RestartNATS stops NATS, which runs in this process, and starts it again on
// its data. Tests have accidents of it. It must not run beside Stop.
func (s *Stack) RestartNATS() error {
	s.bus.stop()
	return s.startNATS()
}

// startTogether starts services at the same time, to be stopped at the same
// time.
func (s *Stack) startTogether(ctx context.Context, services ...service) error {
	keepers := make([]*supervise.Keeper, len(services))
	var names []string
	for _, svc := range services {
		names = append(names, svc.name)
	}
	s.stops = append(s.stops, func(ctx context.Context) error {
		var group errgroup.Group
		for _, keeper := range keepers {
			if keeper != nil {
				group.Go(func() error { return keeper.Stop(ctx) })
			}
		}
		return group.Wait()
	})
	return s.progress.step("starting "+strings.Join(names, " and "), func() error {
		group, ctx := errgroup.WithContext(ctx)
		for i, svc := range services {
			group.Go(func() (err error) {
				keepers[i], err = supervise.Keep(ctx, s.Layout.part(svc), s.observer())
				return err
			})
		}
		return group.Wait()
	})
}

// observer keeps the files about the stack true, and tells people.
func (s *Stack) observer() supervise.Observer {
	return supervise.Observer{Say: s.progress.sayf, Running: func(name string, pid int) {
		if err := s.book.running(name, pid); err != nil {
			s.progress.sayf("%v", err)
		}
	}}
}

// publish waits until the data planes serve the catalog, writes stack.json and
// tells how to use the stack.
func (s *Stack) publish(ctx context.Context, seeds seeded) error {
	state := s.state(seeds)
	if id, _ := seeds.Catalog.example(); id != "" {
		for _, base := range state.BaseURLs {
			if err := awaitModel(ctx, caller{url: base, token: seeds.APIKey}, id); err != nil {
				return err
			}
		}
	}
	if err := s.book.publish(state); err != nil {
		return err
	}
	s.progress.sayf("%s", hint(s.Layout, state, seeds.Catalog))
	return nil
}

func (s *Stack) state(seeds seeded) State {
	return State{
		BaseURL:    s.Ports.API.URL(),
		BaseURLs:   []string{s.Ports.API.URL(), s.Ports.API2.URL()},
		AdminURL:   s.Ports.Admin.URL(),
		AdminToken: s.secrets.AdminToken,
		APIKey:     seeds.APIKey,
		AccountID:  seeds.AccountID,
		OpsURLs: map[string]string{
			"dp-1": s.Ports.Ops.URL(), "dp-2": s.Ports.Ops2.URL(), "controlplane": s.Ports.AdminOps.URL(),
		},
		ProviderSimURL: s.Ports.Sim.URL(),
		NATSURL:        (&url.URL{Scheme: "nats", User: url.UserPassword(controlUser, s.secrets.NATSControl), Host: s.Ports.NATS.Address()}).String(),
		PostgresURL:    s.postgresURL(),
	}
}

func (s *Stack) postgresURL() string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", s.secrets.PostgresPassword), Host: s.Ports.Postgres.Address(),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}

// awaitModel waits until a data plane lists the model.
func awaitModel(ctx context.Context, plane caller, id string) error {
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	for {
		var models struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		err := plane.get(ctx, "/v1/models", &models)
		for _, m := range models.Data {
			if m.ID == id {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not list the model %s: %w", plane.url, id, errors.Join(context.Cause(ctx), err))
		case <-time.After(applyPause):
		}
	}
}

// Stop stops what was started, the latest first, gracefully even if ctx has
// ended. It is called once.
func (s *Stack) Stop(ctx context.Context) error {
	defer s.release()
	if len(s.stops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-s.Hurry:
			cancel()
		case <-stopped:
		}
	}()
	s.progress.sayf("\nstopping (a second Ctrl-C does it at once) ...")
	faults := []error{s.book.withdraw()}
	for _, stop := range slices.Backward(s.stops) {
		faults = append(faults, stop(ctx))
	}
	s.progress.sayf("stopped")
	return errors.Join(append(faults, s.book.close())...)
}
