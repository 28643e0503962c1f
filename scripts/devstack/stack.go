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
	"time"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/scripts/devstack/supervise"
	"modelgateway/scripts/testkit/pgcluster"
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
	// Ports are where it listens, and how many planes there are. Zero: what LoadPorts says.
	Ports Ports
	// Settings returns environment variables for a part, stronger than the stack's own, each time that it is started.
	Settings func(part string) []string
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
	keepers  keepers
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
	if len(s.Ports.DataPlanes) == 0 {
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
	if err := s.startTogether(ctx, s.Layout.simulator(s.Ports)); err != nil {
		return err
	}
	var control, data []service
	for i := range s.Ports.ControlPlanes {
		control = append(control, s.Layout.controlPlane(i, s.Ports))
	}
	for i := range s.Ports.DataPlanes {
		data = append(data, s.Layout.dataPlane(i, s.Ports))
	}
	if err := s.startTogether(ctx, control...); err != nil {
		return err
	}
	admin := caller{url: s.Ports.ControlPlanes[0].Serve.URL(), token: s.secrets.AdminToken}
	var seeds seeded
	err = s.progress.step("setting up the demo account and the catalog", func() (err error) {
		seeds, err = seed(ctx, admin, s.document, s.mediaType)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.startTogether(ctx, data...); err != nil {
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
		return s.keep(ctx, s.Layout.postgresPart(binaries, s.Ports.Postgres, s.secrets.PostgresPassword, s.progress.sayf))
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
	state := State{
		AdminToken: s.secrets.AdminToken,
		APIKey:     seeds.APIKey,
		AccountID:  seeds.AccountID,
		OpsURLs:    map[string]string{},

		ProviderSimURL: s.Ports.Sim.URL(),
		NATSURL:        (&url.URL{Scheme: "nats", User: url.UserPassword(controlUser, s.secrets.NATSControl), Host: s.Ports.NATS.Address()}).String(),
		PostgresURL:    s.postgresURL(),
	}
	for i, listen := range s.Ports.DataPlanes {
		state.BaseURLs = append(state.BaseURLs, listen.Serve.URL())
		state.OpsURLs[DataPlaneName(i)] = listen.Ops.URL()
	}
	for i, listen := range s.Ports.ControlPlanes {
		state.AdminURLs = append(state.AdminURLs, listen.Serve.URL())
		state.OpsURLs[ControlPlaneName(i)] = listen.Ops.URL()
	}
	state.BaseURL, state.AdminURL = state.BaseURLs[0], state.AdminURLs[0]
	return state
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
