// Package config holds the settings of the data plane, their defaults and their validation. docs/settings.md lists
// them; TestSettingsReferenceIsUpToDate checks that it is complete.
package config

import (
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"

	"modelgateway/shared/certfile"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/platform/settings"
	"modelgateway/shared/platform/traces"
)

// Config holds the settings of the data plane. Package settings explains how it is loaded. The usage texts are the help
// of the flags and the settings reference; comments here say only what these do not.
type Config struct {
	Name         string        `mapstructure:"name" usage:"Name of this proxy. It must be unique and must not change over restarts. Default: the host name." when:"the host name is not stable"`
	API          API           `mapstructure:"api"`
	Ops          Ops           `mapstructure:"ops"`
	NATS         NATS          `mapstructure:"nats"`
	Secrets      Secrets       `mapstructure:"secrets"`
	Spool        Spool         `mapstructure:"spool"`
	Lease        Lease         `mapstructure:"lease"`
	Log          Log           `mapstructure:"log"`
	Tracing      Tracing       `mapstructure:"tracing"`
	DrainTimeout time.Duration `mapstructure:"drain_timeout" usage:"Time that running requests get to finish after SIGTERM or SIGINT." when:"streams that run longer are cut at restarts"`
}

// API configures the listener of the public API.
type API struct {
	Listen         string        `mapstructure:"listen" usage:"Address that the public API listens on." when:"another port or address is wanted"`
	TLS            TLS           `mapstructure:"tls"`
	BodyTimeout    time.Duration `mapstructure:"body_timeout" usage:"Time that a client gets to send its whole request." when:"clients with slow connections send large bodies"`
	MinRate        int64         `mapstructure:"min_rate" usage:"Least rate in bytes per second at which a client must send a request and take an answer that is not a stream." when:"clients are cut off that are slow, and honest"`
	TrustedProxies string        `mapstructure:"trusted_proxies" usage:"Networks of the reverse proxies in front of the public API, in CIDR notation separated by commas, such as 10.0.0.0/8. The client address, which the networks of a key are compared with, is read from X-Forwarded-For only behind these." when:"a reverse proxy is in front of the public API, and keys are restricted to networks"`
	MaxConnections int64         `mapstructure:"max_connections" usage:"Maximum number of client connections. Further ones are answered 503 and closed." when:"clients get 503 at connecting, or memory is short"`
	BodyBudget     int64         `mapstructure:"body_budget" usage:"Maximum number of bytes of request bodies, of answers that are not streams and of large events of streams, that are held at the same time; at least 80 MiB. While an answer is rewritten it needs its memory twice. 0 means 40 % of GOMEMLIMIT or, without it, of the memory limit of the control group; 1 GiB without any limit." when:"large requests get 503, or the memory limit is not known"`
}

// Proxies parses TrustedProxies.
func (a *API) Proxies() ([]netip.Prefix, error) { return clientaddr.ParseNetworks(a.TrustedProxies) }

// TLS configures the certificate of a listener.
type TLS struct {
	CertFile string `mapstructure:"cert_file" usage:"File with the certificate and its chain, in PEM. It is read again when it changes. Empty serves without TLS." when:"nothing in front of it ends TLS"`
	KeyFile  string `mapstructure:"key_file" usage:"File with the private key of the certificate, in PEM." when:"the certificate is set"`
}

// Files returns the files of the certificate.
func (t TLS) Files() certfile.Files { return certfile.Files{Cert: t.CertFile, Key: t.KeyFile} }

// Ops configures the listener for probes and metrics.
type Ops struct {
	Listen string `mapstructure:"listen" usage:"Address that probes and metrics listen on." when:"another port or address is wanted"`
	Pprof  bool   `mapstructure:"pprof" usage:"Serve Go profiles under /debug/pprof on the ops listener." when:"a process uses more memory or processor than it should"`
}

// NATS configures the connection to NATS.
type NATS struct {
	URL      string          `mapstructure:"url" usage:"URLs of the NATS servers, separated by commas. Required."`
	User     string          `mapstructure:"user" usage:"User name at NATS." when:"NATS knows users by name and password"`
	Password settings.Secret `mapstructure:"password" usage:"Password at NATS." when:"NATS knows users by name and password"`
	CAFile   string          `mapstructure:"ca_file" usage:"File with the CA certificates that NATS servers are verified against." when:"the certificates of NATS are of a private authority"`
	CertFile string          `mapstructure:"cert_file" usage:"File with the TLS client certificate for NATS." when:"NATS knows users by client certificates"`
	KeyFile  string          `mapstructure:"key_file" usage:"File with the private key of the TLS client certificate." when:"the client certificate is set"`
}

// Secrets holds the secrets that both planes share.
type Secrets struct {
	Pepper            settings.Secret `mapstructure:"pepper" usage:"Secret under which API keys are hashed, at least 16 bytes, the same on both planes. Required."`
	PreviousPeppers   settings.Secret `mapstructure:"previous_peppers" usage:"Previous peppers, one per line. API keys hashed under them are still accepted. Before a rotation the next pepper is added here, too." when:"the pepper is rotated"`
	FleetKey          settings.Secret `mapstructure:"fleet_key" usage:"Key that decrypts provider credentials: 32 bytes in base64, the same on both planes. Required."`
	PreviousFleetKeys settings.Secret `mapstructure:"previous_fleet_keys" usage:"Previous fleet keys, one per line, which decrypt provider credentials, too. Before a rotation the next key is added here." when:"the fleet key is rotated"`
}

// Spool configures the spool of usage events.
type Spool struct {
	Dir       string `mapstructure:"dir" usage:"Directory for usage events that are not settled yet. It must survive restarts and belong to this proxy alone." when:"the volume is mounted elsewhere"`
	MaxEvents int64  `mapstructure:"max_events" usage:"Maximum number of running requests and unsettled usage events. From 90 % on, new requests are refused." when:"usage of longer outages must fit"`
	MaxBytes  int64  `mapstructure:"max_bytes" usage:"Maximum size of the spool directory in bytes. From 90 % on, new requests are refused." when:"the volume has another size"`
}

// Lease configures the units that the proxy holds of balances and slots.
type Lease struct {
	OutageTarget time.Duration `mapstructure:"outage_target" usage:"For how long the idle units of an account should serve its requests of the last minutes while no control plane responds, up to 24h. The proxy keeps units for at least this time and at most twice as long, if that is no more than a quarter of what is free, divided by the number of proxies. Other proxies get these units at once when they need them. 0: about 256 requests. The price is that after the death of the proxy more units stay reserved until its session is closed." when:"an outage of another length must be survived"`
}

// Tracing configures the export of traces.
type Tracing struct {
	Endpoint     string  `mapstructure:"endpoint" usage:"URL of an OpenTelemetry collector that receives traces over OTLP/HTTP, such as http://collector:4318. Empty makes no traces." when:"there is a collector"`
	SampleRatio  float64 `mapstructure:"sample_ratio" usage:"Part of the requests that are traced, from 0 to 1." when:"traces are too many or too few"`
	TrustClients bool    `mapstructure:"trust_clients" usage:"Continue the traces of clients: a request with a traceparent header is traced exactly if its client traces it. Otherwise its trace only links to that of the client." when:"all clients are your own"`
}

// Log configures the log.
type Log struct {
	Level slog.Level `mapstructure:"level" usage:"Lowest level that is logged: debug, info, warn or error." when:"a fault is looked for"`
}

// Default returns the settings before anything is loaded.
func Default() Config {
	return Config{
		API: API{
			Listen:         ":8080",
			BodyTimeout:    2 * time.Minute,
			MinRate:        32 << 10,
			MaxConnections: 20_000,
		},
		Ops:          Ops{Listen: ":9090"},
		Spool:        Spool{Dir: "spool", MaxEvents: 1_500_000, MaxBytes: 512 << 20},
		Lease:        Lease{OutageTarget: 15 * time.Minute},
		Tracing:      Tracing{SampleRatio: 0.01},
		DrainTimeout: 2 * time.Minute,
	}
}

// AddFlags adds the flag --config and one flag for every setting.
func AddFlags(flags *pflag.FlagSet) { settings.AddFlags(flags, Default()) }

// Load reads file, environment and flags over the defaults. It does not
// validate.
func Load(flags *pflag.FlagSet) (Config, error) {
	cfg := Default()
	err := settings.Load(flags, &cfg)
	return cfg, err
}

// Validate returns everything that is missing or wrong, joined. It sets an
// empty name to the host name.
func (c *Config) Validate() error {
	var v settings.Validator
	if c.Name == "" {
		host, err := os.Hostname()
		v.Reject(err != nil, "name is not set, and the host has none: %v", err)
		c.Name = host
	}

	v.Reject(c.NATS.URL == "", "nats.url is not set")
	if err := c.API.TLS.Files().Validate(); err != nil {
		v.Reject(true, "api.tls: %v", err)
	}

	v.Reject(len(c.Secrets.Pepper) < 16, "secrets.pepper has fewer than 16 bytes")
	for i, pepper := range c.Secrets.PreviousPeppers.Lines() {
		v.Reject(len(pepper) < 16, "line %d of secrets.previous_peppers has fewer than 16 bytes", i+1)
		v.Reject(pepper == string(c.Secrets.Pepper), "line %d of secrets.previous_peppers is the same as secrets.pepper", i+1)
	}

	_, err := c.Secrets.FleetKey.Key()
	for i, line := range c.Secrets.PreviousFleetKeys.Lines() {
		_, err := settings.Secret(line).Key()
		v.Reject(err != nil, "line %d of secrets.previous_fleet_keys: %v", i+1, err)
	}

	v.Reject(err != nil, "secrets.fleet_key: %v", err)
	v.Reject(c.Spool.Dir == "", "spool.dir is not set")
	v.Reject(c.Spool.MaxEvents < 100, "spool.max_events is below 100")
	v.Reject(c.Spool.MaxBytes < 1<<20, "spool.max_bytes is below 1 MiB")
	v.Reject(c.Lease.OutageTarget < 0 || c.Lease.OutageTarget > 24*time.Hour, "lease.outage_target is not between 0 and 24h")
	a := c.API
	v.Reject(a.BodyTimeout <= 0, "api.body_timeout is not positive")
	v.Reject(a.MinRate <= 0, "api.min_rate is not positive")
	v.Reject(a.MaxConnections <= 0, "api.max_connections is not positive")
	_, err = a.Proxies()
	v.Reject(err != nil, "api.trusted_proxies: %v", err)
	v.Reject(a.BodyBudget != 0 && a.BodyBudget < 80<<20, "api.body_budget is below 80 MiB")
	v.Reject(c.DrainTimeout < 0, "drain_timeout is negative")
	c.Tracing.validate(&v)

	return v.Err()
}

func (t *Tracing) validate(v *settings.Validator) {
	v.Reject(!(t.SampleRatio >= 0 && t.SampleRatio <= 1), "tracing.sample_ratio is not between 0 and 1") // it may be NaN
	if err := traces.CheckEndpoint(t.Endpoint); err != nil {
		v.Reject(true, "tracing.endpoint: %v", err)
	}
}
