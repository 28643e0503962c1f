// Package config owns the settings of the proxy: their defaults, where they
// come from (file, then environment, then flags, the later the stronger) and
// what is wrong with them. Nothing else reads a file, the environment or flags
// for settings.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Secret is a setting that never prints.
type Secret string

// String hides the secret.
func (Secret) String() string { return "[hidden]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[hidden]" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("[hidden]") }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte("[hidden]"), nil }

// Config is every setting of the proxy. The keys in a file are those of the
// tags, joined by dots; in the environment they are in upper case with
// underscores behind MGW_. A setting x_file names a file that holds x.
type Config struct {
	// Name tells this proxy from the others, the same after a restart; empty takes the host's name.
	Name     string   `mapstructure:"name"`
	API      API      `mapstructure:"api"`
	Ops      Ops      `mapstructure:"ops"`
	NATS     NATS     `mapstructure:"nats"`
	Secrets  Secrets  `mapstructure:"secrets"`
	Spool    Spool    `mapstructure:"spool"`
	Upstream Upstream `mapstructure:"upstream"`
	Log      Log      `mapstructure:"log"`
	// DrainTimeout is how long running requests may go on after a signal to stop.
	DrainTimeout time.Duration `mapstructure:"drain_timeout"`
	// ShutdownTimeout bounds what follows: handing back leases and settling usage.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// API is about the public listener.
type API struct {
	Listen string `mapstructure:"listen"`
	// BodyTimeout is how long a client may take to send its request.
	BodyTimeout time.Duration `mapstructure:"body_timeout"`
}

// Ops is about the listener for probes and metrics.
type Ops struct {
	Listen string `mapstructure:"listen"`
	Pprof  bool   `mapstructure:"pprof"`
}

// NATS is about the bus.
type NATS struct {
	URL          string `mapstructure:"url"`
	User         string `mapstructure:"user"`
	Password     Secret `mapstructure:"password"`
	PasswordFile string `mapstructure:"password_file"`
	CAFile       string `mapstructure:"ca_file"`
	CertFile     string `mapstructure:"cert_file"`
	KeyFile      string `mapstructure:"key_file"`
}

// Secrets holds the keys that the fleet shares.
type Secrets struct {
	// Pepper is the text under which API keys are hashed, the same on the control plane.
	Pepper     Secret `mapstructure:"pepper"`
	PepperFile string `mapstructure:"pepper_file"`
	// OldPeppers are further peppers under which keys are looked up, one a line: those of before, and one that is to come.
	OldPeppers     Secret `mapstructure:"old_peppers"`
	OldPeppersFile string `mapstructure:"old_peppers_file"`
	// FleetKey opens provider credentials: 32 bytes in base64.
	FleetKey     Secret `mapstructure:"fleet_key"`
	FleetKeyFile string `mapstructure:"fleet_key_file"`
}

// Spool is about usage on disk.
type Spool struct {
	// Dir must survive the process, and belong to this proxy alone.
	Dir string `mapstructure:"dir"`
	// MaxEvents and MaxBytes bound it; admission stops at 90 % of either.
	MaxEvents int64 `mapstructure:"max_events"`
	MaxBytes  int64 `mapstructure:"max_bytes"`
}

// Upstream holds the time limits of calls to providers that set none.
type Upstream struct {
	ConnectTimeout   time.Duration `mapstructure:"connect_timeout"`
	FirstByteTimeout time.Duration `mapstructure:"first_byte_timeout"`
	IdleTimeout      time.Duration `mapstructure:"idle_timeout"`
	TotalTimeout     time.Duration `mapstructure:"total_timeout"`
}

// Log is about the log.
type Log struct {
	Level slog.Level `mapstructure:"level"`
}

// Default is the configuration before anything is read.
func Default() Config {
	return Config{
		API:             API{Listen: ":8080", BodyTimeout: 2 * time.Minute},
		Ops:             Ops{Listen: ":9090"},
		Spool:           Spool{Dir: "spool", MaxEvents: 1_500_000, MaxBytes: 512 << 20},
		Upstream:        Upstream{ConnectTimeout: 5 * time.Second, FirstByteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, TotalTimeout: 10 * time.Minute},
		DrainTimeout:    30 * time.Second,
		ShutdownTimeout: 10 * time.Second,
	}
}

// maxTotal is the longest call that the protocol covers: the control plane
// keeps the lease of a silent proxy for longer than that.
const maxTotal = 10 * time.Minute

// Validate reports everything that is missing or wrong, joined, and fills in
// the name.
func (c *Config) Validate() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("config: "+format, args...))
		}
	}
	if c.Name == "" {
		host, err := os.Hostname()
		refuse(err != nil, "name is not set, and the host has none: %v", err)
		c.Name = host
	}
	refuse(c.NATS.URL == "", "nats.url is not set")
	refuse(len(c.Secrets.Pepper) < 16, "secrets.pepper has fewer than 16 bytes")
	for i, pepper := range c.Secrets.OldPeppers.Lines() {
		refuse(len(pepper) < 16, "line %d of secrets.old_peppers has fewer than 16 bytes", i+1)
		refuse(pepper == string(c.Secrets.Pepper), "line %d of secrets.old_peppers is secrets.pepper", i+1)
	}
	_, err := c.Secrets.FleetKey.Key()
	refuse(err != nil, "secrets.fleet_key: %v", err)
	refuse(c.Spool.Dir == "", "spool.dir is not set")
	refuse(c.Spool.MaxEvents < 100, "spool.max_events is below 100")
	refuse(c.Spool.MaxBytes < 1<<20, "spool.max_bytes is below 1 MiB")
	u := c.Upstream
	refuse(u.TotalTimeout <= 0 || u.TotalTimeout > maxTotal, "upstream.total_timeout is not between 0 and %s", maxTotal)
	refuse(u.ConnectTimeout <= 0 || u.FirstByteTimeout <= 0 || u.IdleTimeout <= 0, "a time limit of upstream is not positive")
	refuse(c.API.BodyTimeout <= 0, "api.body_timeout is not positive")
	refuse(c.DrainTimeout < 0, "drain_timeout is negative")
	refuse(c.ShutdownTimeout <= 0, "shutdown_timeout is not positive")
	return errors.Join(faults...)
}

// Lines are the lines of a secret that are not empty.
func (s Secret) Lines() []string {
	var lines []string
	for line := range strings.SplitSeq(string(s), "\n") {
		if line = strings.TrimRight(line, "\r"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Key is the 32 bytes that a secret holds in base64.
func (s Secret) Key() ([]byte, error) {
	if s == "" {
		return nil, errors.New("is not set")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(s)))
	if err != nil || len(key) != 32 {
		return nil, errors.New("is not 32 bytes in base64")
	}
	return key, nil
}
