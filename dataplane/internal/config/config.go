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
	Name     string   `mapstructure:"name" usage:"name that tells this proxy from the others, also after a restart; empty takes the host's"`
	API      API      `mapstructure:"api"`
	Ops      Ops      `mapstructure:"ops"`
	NATS     NATS     `mapstructure:"nats"`
	Secrets  Secrets  `mapstructure:"secrets"`
	Spool    Spool    `mapstructure:"spool"`
	Upstream Upstream `mapstructure:"upstream"`
	Log      Log      `mapstructure:"log"`
	// DrainTimeout is how long running requests may go on after a signal to stop.
	DrainTimeout time.Duration `mapstructure:"drain_timeout" usage:"how long running requests may go on after a signal to stop"`
	// ShutdownTimeout bounds what follows: handing back leases and settling usage.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout" usage:"how long handing back leases and settling usage may take after that"`
}

// API is about the public listener.
type API struct {
	Listen string `mapstructure:"listen" usage:"address of the customers' API"`
	// BodyTimeout is how long a client may take to send its request.
	BodyTimeout time.Duration `mapstructure:"body_timeout" usage:"how long a client may take to send its request"`
}

// Ops is about the listener for probes and metrics.
type Ops struct {
	Listen string `mapstructure:"listen" usage:"address of probes and metrics"`
	Pprof  bool   `mapstructure:"pprof" usage:"serve the profiler beside them"`
}

// NATS is about the bus.
type NATS struct {
	URL          string `mapstructure:"url" usage:"addresses of the NATS servers"`
	User         string `mapstructure:"user" usage:"user at NATS"`
	Password     Secret `mapstructure:"password" usage:"password at NATS"`
	PasswordFile string `mapstructure:"password_file" usage:"file that holds nats.password"`
	CAFile       string `mapstructure:"ca_file" usage:"certificates that NATS servers are checked against"`
	CertFile     string `mapstructure:"cert_file" usage:"client certificate for NATS"`
	KeyFile      string `mapstructure:"key_file" usage:"key of the client certificate"`
}

// Secrets holds the keys that the fleet shares.
type Secrets struct {
	// Pepper is the text under which API keys are hashed, the same on the control plane.
	Pepper     Secret `mapstructure:"pepper" usage:"text under which API keys are hashed, the same on the control plane"`
	PepperFile string `mapstructure:"pepper_file" usage:"file that holds secrets.pepper"`
	// OldPeppers are further peppers under which keys are looked up, one a line: those of before, and one that is to come.
	OldPeppers     Secret `mapstructure:"old_peppers" usage:"peppers of before, one a line, under which keys are looked up too"`
	OldPeppersFile string `mapstructure:"old_peppers_file" usage:"file that holds secrets.old_peppers"`
	// FleetKey opens provider credentials: 32 bytes in base64.
	FleetKey     Secret `mapstructure:"fleet_key" usage:"32 bytes in base64 that open provider credentials, the same on the control plane"`
	FleetKeyFile string `mapstructure:"fleet_key_file" usage:"file that holds secrets.fleet_key"`
}

// Spool is about usage on disk.
type Spool struct {
	// Dir must survive the process, and belong to this proxy alone.
	Dir string `mapstructure:"dir" usage:"folder for usage that is not settled; it must survive the process, and belong to this proxy alone"`
	// MaxEvents and MaxBytes bound it; admission stops at 90 % of either.
	MaxEvents int64 `mapstructure:"max_events" usage:"most running requests and unsettled events; nothing is admitted from 90 % on"`
	MaxBytes  int64 `mapstructure:"max_bytes" usage:"most bytes of the folder; nothing is admitted from 90 % on"`
}

// Upstream holds the time limits of calls to providers that set none.
type Upstream struct {
	ConnectTimeout   time.Duration `mapstructure:"connect_timeout" usage:"longest wait for a connection to a provider"`
	FirstByteTimeout time.Duration `mapstructure:"first_byte_timeout" usage:"longest wait for the beginning of a provider's answer"`
	IdleTimeout      time.Duration `mapstructure:"idle_timeout" usage:"longest silence within an answer"`
	TotalTimeout     time.Duration `mapstructure:"total_timeout" usage:"longest time of a whole call"`
}

// Log is about the log.
type Log struct {
	Level slog.Level `mapstructure:"level" usage:"least level that is logged: debug, info, warn or error"`
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
