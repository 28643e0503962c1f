package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"modelgateway/scripts/devstack/supervise"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// startLimit bounds the start of one part until it is ready.
const startLimit = 90 * time.Second

// database is the name of the stack's database.
const database = "modelgateway"

// programs are the packages of the stack's binaries, and of the tool that the hint names.
var programs = []string{
	"./controlplane/cmd/controlplane", "./dataplane/cmd/dataplane", "./scripts/cmd/providersim", "./controlplane/cmd/gwctl",
}

// build builds the stack's binaries. Stacks that share them do not build concurrently.
func (l Layout) build(ctx context.Context) error {
	if l.Bin != "" {
		release, err := flock(l.binary(".lock"), syscall.LOCK_EX)
		if err != nil {
			return err
		}
		defer release()
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", l.binary("") + string(os.PathSeparator)}, programs...)...)
	cmd.Dir = l.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// A service is a process that runs one of the stack's binaries.
type service struct {
	name string
	// binary is the name of its file in the layout.
	binary string
	args   []string
	// settings are environment variables, NAME=value. overrides, unless nil, is called at
	// each start and returns variables that take precedence.
	settings  []string
	overrides func() []string
	// readyURL answers 200 when the service is ready.
	readyURL string
}

// part returns the service as a part for the supervisor.
func (l Layout) part(s service) supervise.Part {
	return supervise.Part{Name: s.name, Start: func(ctx context.Context) (supervise.Process, error) {
		child, err := supervise.StartChild(l.command(s))
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		if err := supervise.AwaitReady(ctx, child, s.readyURL); err != nil {
			cancel()
			_ = child.Stop(ctx) // kills it, because the context has ended
			return nil, fmt.Errorf("%w\n(log: %s)", err, l.log(s.name))
		}
		return child, nil
	}}
}

func (l Layout) command(s service) supervise.Command {
	settings := s.settings
	if s.overrides != nil {
		settings = append(slices.Clone(settings), s.overrides()...)
	}
	return supervise.Command{
		Path:    l.binary(s.binary),
		Args:    s.args,
		Env:     append(cleanEnv(os.Environ()), settings...),
		Dir:     l.Dir,
		LogFile: l.log(s.name),
	}
}

// cleanEnv returns the environment without MGW_ variables. A program rejects variables that are not
// its settings; userSettings returns those that are.
func cleanEnv(environ []string) []string {
	var env []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "MGW_") {
			env = append(env, entry)
		}
	}
	return env
}

// migrate applies the migrations to the database.
func (l Layout) migrate(ctx context.Context, settings []string) error {
	child, err := supervise.StartChild(l.command(service{
		name:     "migrate",
		binary:   "controlplane",
		args:     []string{"migrate"},
		settings: settings,
	}))
	if err != nil {
		return err
	}

	select {
	case <-child.Done():
	case <-ctx.Done():
		return child.Stop(ctx)
	}

	if err := child.Err(); err != nil {
		const shown = 15
		return fmt.Errorf(
			"%w\n%s\n(if the database is from an older version of the repository, remove it with: make clean)",
			err,
			child.Log(shown),
		)
	}

	return nil
}

// postgresPart returns Postgres as a part for the supervisor.
func (l Layout) postgresPart(binaries pgcluster.Binaries, port Port, password string, say func(string, ...any)) supervise.Part {
	cfg := pgcluster.Config{
		Binaries: binaries,
		Dir:      l.postgres(),
		Port:     port.Number,
		Password: password,
		Database: database,
		Fsync:    true,
		LogFile:  l.log("postgres"),
		Progress: func(message string) { say("  %s", message) },
	}
	return supervise.Part{Name: "postgres", Start: func(ctx context.Context) (supervise.Process, error) {
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		cluster, err := pgcluster.Start(ctx, cfg)
		if errors.Is(err, pgcluster.ErrPortInUse) {
			return nil, port.inUse()
		}
		if err != nil {
			return nil, err
		}
		return cluster, nil
	}}
}

// planeSettings returns the settings that both planes have, with the plane's user of NATS.
func (l Layout) planeSettings(ports Ports, busUser string) []string {
	return []string{
		"MGW_NATS_URL=nats://" + ports.NATS.Address(),
		"MGW_NATS_USER=" + busUser,
		"MGW_NATS_PASSWORD_FILE=" + l.secret("nats_"+busUser),
		"MGW_SECRETS_PEPPER_FILE=" + l.secret("pepper"),
		"MGW_SECRETS_FLEET_KEY_FILE=" + l.secret("fleet_key"),
	}
}

func (l Layout) simulator(ports Ports) service {
	return service{
		name:     "providersim",
		binary:   "providersim",
		args:     []string{"-addr", ports.Sim.Address()},
		readyURL: ports.Sim.URL() + "/livez",
	}
}

func (l Layout) controlPlane(i int, ports Ports) service {
	listen := ports.ControlPlanes[i]
	return service{
		name:   ControlPlaneName(i),
		binary: "controlplane",
		args:   []string{"serve"},
		settings: append(
			l.planeSettings(ports, controlUser),
			"MGW_ADMIN_LISTEN="+listen.Serve.Address(),
			"MGW_ADMIN_BOOTSTRAP_TOKEN_FILE="+l.secret("admin_token"),
			"MGW_OPS_LISTEN="+listen.Ops.Address(),
			"MGW_NATS_REPLICAS=1",
			"MGW_CONSOLE_API_URL="+ports.DataPlanes[0].Serve.URL(),
			"MGW_POSTGRES_URL_FILE="+l.secret("postgres_url"),
			"MGW_SECRETS_MASTER_KEY_FILE="+l.secret("master_key"),
			// Receivers of webhooks and the simulated provider run on this machine.
			"MGW_CATALOG_REQUIRE_HTTPS=false",
			"MGW_WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8,::1/128",
			"MGW_WEBHOOK_ALLOW_HTTP=true",
		),
		readyURL: listen.Ops.URL() + "/readyz",
	}
}

func (l Layout) dataPlane(i int, ports Ports) service {
	name, listen := DataPlaneName(i), ports.DataPlanes[i]
	return service{
		name:   name,
		binary: "dataplane",
		settings: append(
			l.planeSettings(ports, dataUser),
			"MGW_NAME="+name,
			"MGW_API_LISTEN="+listen.Serve.Address(),
			"MGW_OPS_LISTEN="+listen.Ops.Address(),
			"MGW_SPOOL_DIR="+l.spool(name),
		),
		readyURL: listen.Ops.URL() + "/readyz",
	}
}
