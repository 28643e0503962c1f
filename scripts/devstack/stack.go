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

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/scripts/devstack/supervise"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// CatalogVariable names the environment variable with a catalog file that replaces the
// demo catalog.
const CatalogVariable = "MGW_CATALOG"

const demoCatalog = "scripts/catalog/demo.yaml"

const (
	// stopLimit bounds the stop of the stack: a data plane waits up to 30 seconds for
	// running requests and then publishes their usage.
	stopLimit = 60 * time.Second
	// catalogTimeout bounds the time until the data planes serve the catalog, which is
	// checked at every catalogInterval.
	catalogTimeout  = 30 * time.Second
	catalogInterval = 50 * time.Millisecond
)

// Config configures a stack.
type Config struct {
	// Layout holds the directories.
	Layout Layout
	// Out gets messages for the user.
	Out io.Writer
	// Postgres finds or installs the database server.
	Postgres pginstall.Installer
	// Kill, when it is closed, makes a graceful stop kill the processes. It may be nil.
	Kill <-chan struct{}
	// ApplyCatalog applies the catalog file even if an earlier run has applied it, which discards
	// changes of the catalog since.
	ApplyCatalog bool
	// Ports holds the ports and, by their number, the planes. Zero: the result of
	// LoadPorts.
	Ports Ports
	// NATS, unless nil, starts NATS servers for users instead of the one of the stack, and returns a URL of them for clients, without
	// a user. Whoever gives it stops them. Settings must give their addresses to the planes.
	NATS func(users []*server.User) (*url.URL, error)
	// Settings, unless nil, is called at each start of a part and returns environment
	// variables that take precedence over those of the stack.
	Settings func(part string) []string
}

// A Stack runs until Stop.
type Stack struct {
	Config
	// document is the catalog to apply, with its media type.
	document, mediaType string

	// known has the variables of the programs' settings, by binary.
	known map[string][]string

	secrets  Secrets
	progress *progress
	files    *stateFiles
	// bus is nil and natsURL set if the servers are not those of the stack.
	bus     *bus
	natsURL *url.URL
	parts   partTable
	// stops are called in reverse order by Stop.
	stops []func(context.Context) error
	// release unlocks the directory.
	release func()
}

// Run starts the stack and returns when ctx has ended and the stack has stopped, or when
// it cannot start.
func Run(ctx context.Context, cfg Config) (err error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the user stopped the stack during the start
		}
		return err
	}
	<-ctx.Done()
	return nil
}

// Start starts the stack and returns when it is ready. ctx bounds the start. After an error
// no process is left running.
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

// open locks the directory and checks the catalog file and the ports.
func open(ctx context.Context, cfg Config) (*Stack, error) {
	s := &Stack{Config: cfg, progress: &progress{out: cfg.Out}, files: newStateFiles(cfg.Layout)}
	var err error
	if len(s.Ports.DataPlanes) == 0 {
		if s.Ports, err = LoadPorts(os.Getenv); err != nil {
			return nil, err
		}
	}

	if err := s.readCatalog(); err != nil {
		return nil, err
	}
	if s.known, err = s.Layout.knownSettings(); err != nil {
		return nil, err
	}
	if _, unknown := userSettings(os.Environ(), s.known, "", nil); len(unknown) > 0 {
		s.progress.sayf("%s: no setting of a program; ignored", strings.Join(unknown, ", "))
	}
	if err := s.Layout.make(); err != nil {
		return nil, err
	}
	if s.release, err = s.Layout.lock(); err != nil {
		return nil, err
	}

	err = errors.Join(s.Layout.endStale(ctx, s.progress.sayf), s.Layout.rotateLogs())
	if err == nil {
		err = s.Layout.checkSchema()
	}
	if err == nil {
		err = s.Ports.CheckFree(ctx)
	}

	if err != nil {
		s.release()
		return nil, err
	}

	return s, nil
}

// rotate puts large logs aside until the stack stops.
func (s *Stack) rotate() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Layout.keepLogsSmall(ctx, s.progress.sayf)
	}()
	s.stops = append(s.stops, func(context.Context) error { cancel(); <-ended; return nil })
}

// State returns the addresses and credentials of the stack and its running processes.
func (s *Stack) State() State { return s.files.current() }

// readCatalog reads the catalog file. It is called before the binaries are built, so that
// a missing variable is reported immediately.
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

// start starts all parts and publishes stack.json.
func (s *Stack) start(ctx context.Context) error {
	binaries, err := s.Postgres.Ensure(ctx)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}

	s.rotate()
	if err := s.startStores(ctx, binaries); err != nil {
		return err
	}
	if err := s.startServices(ctx, s.Layout.simulator(s.Ports)); err != nil {
		return err
	}

	var control, data []service
	for i := range s.Ports.ControlPlanes {
		control = append(control, s.Layout.controlPlane(i, s.Ports))
	}

	for i := range s.Ports.DataPlanes {
		data = append(data, s.Layout.dataPlane(i, s.Ports))
	}

	if err := s.startServices(ctx, control...); err != nil {
		return err
	}

	admin := caller{url: s.Ports.ControlPlanes[0].Serve.URL(), token: s.secrets.AdminToken}
	var account demo
	err = s.progress.step("setting up the demo account and the catalog", func() (err error) {
		account, err = s.seed(ctx, admin)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.startServices(ctx, data...); err != nil {
		return err
	}

	return s.publish(ctx, account)
}

// prepare creates the secrets and the binaries.
func (s *Stack) prepare(ctx context.Context) (err error) {
	if s.secrets, err = s.Layout.loadSecrets(); err != nil {
		return err
	}
	for name, user := range map[string]*url.Userinfo{
		"postgres_owner_url": s.ownerRole(), "postgres_url": url.UserPassword(runtimeRole, s.secrets.PostgresRuntimePassword),
	} {
		if err := writeFile(s.Layout.secret(name), []byte(s.postgresURL(user)+"\n")); err != nil {
			return err
		}
	}
	return s.progress.step("building the binaries", func() error { return s.Layout.build(ctx) })
}

// startStores starts Postgres and NATS and migrates the database.
func (s *Stack) startStores(ctx context.Context, binaries pgcluster.Binaries) error {
	err := s.progress.step("starting Postgres", func() error {
		return s.keep(ctx, s.Layout.postgresPart(binaries, s.Ports.Postgres, s.secrets.PostgresPassword, s.progress.sayf))
	})
	if err != nil {
		return err
	}

	err = s.progress.step("starting NATS", func() error {
		if s.NATS != nil {
			var err error
			s.natsURL, err = s.NATS(busUsers(natsuser.Users(), s.natsPasswords()))
			return err
		}
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
		if err := s.createRuntimeRole(ctx); err != nil {
			return err
		}
		err := s.Layout.migrate(ctx, s.withUserSettings("controlplane", []string{
			"MGW_POSTGRES_URL_FILE=" + s.Layout.secret("postgres_owner_url"), "MGW_POSTGRES_RUNTIME_ROLE=" + runtimeRole,
		}))
		if err != nil {
			return err
		}
		return s.Layout.recordSchema()
	})
}

// runtimeRole is the database role of the control planes. It does not own the tables, so that the
// stack finds privileges that are missing.
const runtimeRole = "controlplane"

// createRuntimeRole creates the role of the control planes, or sets its password.
func (s *Stack) createRuntimeRole(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgresURL(s.ownerRole()))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	// The password is random base32, so it needs no quoting.
	_, err = conn.Exec(ctx, fmt.Sprintf(`do $$ begin
		if not exists (select from pg_roles where rolname = '%[1]s') then
			create role %[1]s login;
		end if;
		alter role %[1]s password '%[2]s';
	end $$`, runtimeRole, s.secrets.PostgresRuntimePassword))
	if err != nil {
		return fmt.Errorf("create the role %s: %w", runtimeRole, err)
	}

	return nil
}

func (s *Stack) startNATS() error {
	bus, err := startBus(s.Layout, s.Ports.NATS, s.natsPasswords())
	if err == nil {
		s.bus = bus
	}
	return err
}

func (s *Stack) natsPasswords() map[string]string {
	return map[string]string{controlUser: s.secrets.NATSControl, dataUser: s.secrets.NATSData, operatorUser: s.secrets.NATSOperator}
}

// operatorURL returns the URL of NATS for its operator.
func (s *Stack) operatorURL() string {
	u := url.URL{Scheme: "nats", Host: s.Ports.NATS.Address()}
	if s.natsURL != nil {
		u = *s.natsURL
	}
	u.User = url.UserPassword(operatorUser, s.secrets.NATSOperator)
	return u.String()
}

// observer returns an observer that updates the state files and prints messages.
func (s *Stack) observer() supervise.Observer {
	return supervise.Observer{Printf: s.progress.sayf, Running: func(name string, pid int) {
		if err := s.files.setProcess(name, pid); err != nil {
			s.progress.sayf("%v", err)
		}
	}}
}

// publish waits until the data planes serve the catalog, writes stack.json and prints how
// to use the stack.
func (s *Stack) publish(ctx context.Context, account demo) error {
	state := s.state(account)
	if id, _ := account.Catalog.example(); id != "" {
		for _, base := range state.BaseURLs {
			if err := awaitModel(ctx, caller{url: base, token: account.APIKey}, id); err != nil {
				return err
			}
		}
	}
	if err := s.files.publish(state); err != nil {
		return err
	}
	s.progress.sayf("%s", hint(s.Layout, state, account.Catalog))
	return nil
}

func (s *Stack) state(account demo) State {
	state := State{
		AdminToken: s.secrets.AdminToken,
		APIKey:     account.APIKey,
		AccountID:  account.AccountID,
		OpsURLs:    map[string]string{},

		ProviderSimURL: s.Ports.Sim.URL(),
		NATSURL:        s.operatorURL(),
		PostgresURL:    s.postgresURL(s.ownerRole()),
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

// ownerRole is the role that owns the tables.
func (s *Stack) ownerRole() *url.Userinfo {
	return url.UserPassword("postgres", s.secrets.PostgresPassword)
}

func (s *Stack) postgresURL(user *url.Userinfo) string {
	return (&url.URL{
		Scheme:   "postgres",
		User:     user,
		Host:     s.Ports.Postgres.Address(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}).String()
}

// awaitModel waits until a data plane lists the model.
func awaitModel(ctx context.Context, plane caller, id string) error {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
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
		case <-time.After(catalogInterval):
		}
	}
}

// Stop stops the parts in reverse order of their start, gracefully even if ctx has ended.
// It must be called once.
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
		case <-s.Kill:
			cancel()
		case <-stopped:
		}
	}()

	s.progress.sayf("\nstopping (press Ctrl-C again to kill the processes) ...")
	errs := []error{s.files.withdraw()}
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop(ctx))
	}

	s.progress.sayf("stopped")
	return errors.Join(append(errs, s.files.remove())...)
}
