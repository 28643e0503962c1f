package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Config configures a cluster. The zero value is a cluster for tests: temporary, on a free
// port, open to every user of the machine, fast and not durable.
type Config struct {
	// Binaries is the installation to run. Zero: the result of Find.
	Binaries Binaries
	// Dir is the data directory; Start creates a cluster if it is missing. One process
	// uses it at a time: Start ends a server that still runs in it. If root calls Start
	// and the server's user cannot enter Dir, the data is elsewhere and Dir is a link to
	// it. Empty: a temporary directory that is removed with the server.
	Dir string
	// Template is the data directory of a stopped cluster, which a new one is a copy of, with its password and databases.
	// Copying takes a tenth of the processor time of creating one. Empty: a new one is created.
	Template string
	// Port is the port on 127.0.0.1. Zero: a free one.
	Port int
	// Password is the password of the role postgres. It is set when the cluster is
	// created; later starts need it for the result of URL. Empty: no password.
	Password string
	// Database is created with the cluster; URL("") refers to it. Empty: postgres, which
	// always exists.
	Database string
	// Fsync makes commits survive a crash of the machine. Without it the server is
	// several times faster, and a crash of the machine destroys the data; a crash of the
	// server does not.
	Fsync bool
	// Settings are further server settings, as in postgresql.conf.
	Settings map[string]string
	// LogFile is the file that the server's log is appended to. Empty: Dir with ".log".
	LogFile string
	// Progress, when not nil, is called with messages about steps that take over a second,
	// and if the data is outside of Dir.
	Progress func(message string)
}

// defaults returns cfg with every empty field but Dir filled in.
func (cfg Config) defaults() (Config, error) {
	if cfg.Binaries == (Binaries{}) {
		var err error
		if cfg.Binaries, err = Find(); err != nil {
			return cfg, err
		}
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	return cfg, nil
}

// A Cluster is a running server. Its methods may be called concurrently.
type Cluster struct {
	cfg  Config
	data string
	port int
	cmd  *exec.Cmd
	// done is closed when the server has ended; exitErr is valid then.
	done    chan struct{}
	exitErr error
	// janitor is nil unless the directory is temporary.
	janitor *janitor
}

// portAttempts bounds the retries with another free port, if another process takes the
// chosen port before the server does.
const portAttempts = 5

// Start starts a server, creating its cluster when there is none, and returns when the
// server accepts connections. Stop stops the server, and so does the end of this process.
// ctx bounds only the start.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.defaults()
	if err != nil {
		return nil, err
	}
	o, err := serverOwner()
	if err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		return startTemporary(ctx, cfg, o)
	}
	return start(ctx, cfg, o)
}

func start(ctx context.Context, cfg Config, o owner) (*Cluster, error) {
	p, err := locate(cfg.Dir, o)
	if err != nil {
		return nil, err
	}
	if cfg.LogFile == "" {
		cfg.LogFile = p.dir + ".log"
	}
	if err := endLeftovers(ctx, p.data); err != nil {
		return nil, err
	}

	if p.isNew {
		if p.moved() {
			cfg.Progress(fmt.Sprintf("the user %s cannot enter %s; the database is created in %s", o.name, filepath.Dir(p.dir), p.data))
		}
		cfg.Progress("creating a Postgres cluster in " + p.data)
		if err := create(ctx, cfg, p, o); err != nil {
			return nil, err
		}
	}

	for attempt := 1; ; attempt++ {
		c, err := launch(ctx, cfg, p.data, o)
		if err == nil || cfg.Port != 0 || attempt == portAttempts || !errors.Is(err, ErrPortInUse) {
			return c, err
		}
	}
}

// URL returns the connection string of a database, or of Config.Database when
// the name is empty.
func (c *Cluster) URL(database string) string {
	if database == "" {
		database = c.cfg.Database
	}
	if database == "" {
		database = superuser
	}

	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if c.cfg.Password != "" {
		u.User = url.UserPassword(superuser, c.cfg.Password)
	}

	return u.String()
}

// Dir returns the directory of the data, which is not Config.Dir if that is a link.
func (c *Cluster) Dir() string { return c.data }

// Port returns the port on 127.0.0.1.
func (c *Cluster) Port() int { return c.port }

// PID returns the process id of the server.
func (c *Cluster) PID() int { return c.cmd.Process.Pid }

// Done returns a channel that is closed when the server has ended, after Stop or by itself.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// settings returns the settings as command-line arguments, in a stable order.
func (cfg Config) settings(port int) []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if !cfg.Fsync {
		maps.Copy(all, map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"})
	}

	maps.Copy(all, cfg.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}

	return args
}

// freePort returns a port that was free a moment ago.
func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("pgcluster: free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// temporaryRoot returns a directory for temporary files that the owner can enter: in memory if there is room, because a run of all
// tests creates and deletes hundreds of thousands of files.
func temporaryRoot(o owner) string {
	if o.reaches(memoryRoot) && freeBytes(memoryRoot) >= memoryWanted {
		return memoryRoot
	}
	if dir := os.TempDir(); o.reaches(dir) {
		return dir
	}
	return "/tmp"
}

const (
	// memoryRoot is a file system in memory, where there is one.
	memoryRoot = "/dev/shm"
	// memoryWanted is several times what a run of all tests uses, its log of transactions included.
	memoryWanted = 4 << 30
)
