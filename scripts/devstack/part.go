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
	"modelgateway/scripts/testkit/pgcluster"
)

// startLimit bounds the start of one part, until it says that it is ready.
const startLimit = 90 * time.Second

// database is the name of the stack's database.
const database = "modelgateway"

// programs are the packages that the stack's binaries are built from.
var programs = []string{"./controlplane/cmd/controlplane", "./dataplane/cmd/dataplane", "./scripts/cmd/providersim"}

// build builds the stack's binaries. Where stacks share them, they build one
// after the other.
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

// A service is one of our binaries as the stack runs it.
type service struct {
	name string
	// binary is its file in the layout.
	binary string
	args   []string
	// settings are environment variables, NAME=value; more are stronger, and are asked for at each start.
	settings []string
	more     func() []string
	// readyURL answers 200 when it serves.
	readyURL string
}

// part returns how the supervisor runs the service.
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
			_ = child.Stop(ctx) // at once: the context has ended
			return nil, fmt.Errorf("%w\n(log: %s)", err, l.log(s.name))
		}
		return child, nil
	}}
}

func (l Layout) command(s service) supervise.Command {
	settings := s.settings
	if s.more != nil {
		settings = append(slices.Clone(settings), s.more()...)
	}
	return supervise.Command{
		Path:    l.binary(s.binary),
		Args:    s.args,
		Env:     append(cleanEnv(os.Environ()), settings...),
		Dir:     l.Dir,
		LogFile: l.log(s.name),
	}
}

// cleanEnv returns the environment without our own variables, but for the log
// level: the planes refuse settings that they do not know, and none of what is
// meant for this program is meant for them.
func cleanEnv(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "MGW_") || name == "MGW_LOG_LEVEL" {
			kept = append(kept, entry)
		}
	}
	return kept
}

// migrate brings the schema up to date.
func (l Layout) migrate(ctx context.Context, settings []string) error {
	child, err := supervise.StartChild(l.command(service{
		name: "migrate", binary: "controlplane", args: []string{"migrate"}, settings: settings,
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
		return fmt.Errorf("%w\n%s\n(a database of an earlier state of the repository can be thrown away with: make clean)", err, child.Log(shown))
	}
	return nil
}

// postgres returns how the supervisor runs the database.
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

// planeSettings are those that both planes have, with their own user of NATS.
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
			"MGW_POSTGRES_URL_FILE="+l.secret("postgres_url"),
			"MGW_SECRETS_MASTER_KEY_FILE="+l.secret("master_key"),
			// Receivers of webhooks run on this machine too.
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
