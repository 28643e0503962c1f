// Package config owns the settings of the control plane: their defaults, where
// they come from (file, then environment, then flags, the later the stronger)
// and what is wrong with them. Nothing else reads a file, the environment or
// flags for settings.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
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

// Config is every setting of the control plane. The keys in a file are those
// of the tags, joined by dots; in the environment they are in upper case with
// underscores behind MGW_. A setting x_file names a file that holds x. The usage
// is what --help says.
type Config struct {
	Admin    Admin    `mapstructure:"admin"`
	Ops      Ops      `mapstructure:"ops"`
	Postgres Postgres `mapstructure:"postgres"`
	NATS     NATS     `mapstructure:"nats"`
	Secrets  Secrets  `mapstructure:"secrets"`
	Session  Session  `mapstructure:"session"`
	Webhook  Webhook  `mapstructure:"webhook"`
	Archive  Archive  `mapstructure:"archive"`
	Log      Log      `mapstructure:"log"`
	// ShutdownTimeout bounds the graceful stop.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout" usage:"longest time for a graceful stop"`
}

// Admin is about the admin API.
type Admin struct {
	Listen string `mapstructure:"listen" usage:"address of the admin API"`
	// BootstrapToken is a token with every scope, for setting up; empty turns it off.
	BootstrapToken     Secret `mapstructure:"bootstrap_token" usage:"admin token with every scope, for setting up"`
	BootstrapTokenFile string `mapstructure:"bootstrap_token_file" usage:"file that holds admin.bootstrap_token"`
	// RevokeTimeout is how long a revocation waits for the proxies before it answers 202.
	RevokeTimeout time.Duration `mapstructure:"revoke_timeout" usage:"how long a revocation waits for the proxies before it answers 202"`
	// ConfirmTimeout is how long other changes wait for the proxies.
	ConfirmTimeout time.Duration `mapstructure:"confirm_timeout" usage:"how long other changes wait for the proxies"`
	OIDC           OIDC          `mapstructure:"oidc"`
}

// OIDC is about tokens of an OpenID Connect provider, which are taken beside
// admin tokens. Without an issuer there are none.
type OIDC struct {
	Issuer   string `mapstructure:"issuer" usage:"OpenID Connect provider whose tokens are taken beside admin tokens"`
	Audience string `mapstructure:"audience" usage:"audience that its tokens must name"`
	// KeysFile is a JWKS; empty finds the keys by discovery.
	KeysFile string `mapstructure:"keys_file" usage:"file with the provider's keys (JWKS) instead of discovery"`
	Claim    string `mapstructure:"claim" usage:"claim that scopes come from, a list or a text with spaces"`
	// Scopes maps values of the claim to scopes.
	Scopes string        `mapstructure:"scopes" usage:"values of the claim and their scopes: admins=operator,support=read"`
	Skew   time.Duration `mapstructure:"skew" usage:"how far the provider's clock may be off"`
}

// Ops is about the listener for probes and metrics.
type Ops struct {
	Listen string `mapstructure:"listen" usage:"address of probes and metrics"`
	Pprof  bool   `mapstructure:"pprof" usage:"serve the profiler beside them"`
}

// Postgres is about the database.
type Postgres struct {
	URL            Secret `mapstructure:"url" usage:"connection string of the database"`
	URLFile        string `mapstructure:"url_file" usage:"file that holds postgres.url"`
	MaxConnections int    `mapstructure:"max_connections" usage:"most connections to the database"`
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
	// Replicas is how many servers keep each stream and bucket.
	Replicas int `mapstructure:"replicas" usage:"servers that keep each stream and bucket"`
	// MonitorURL lets the diagnosis see settings that a client cannot; empty leaves them out.
	MonitorURL string `mapstructure:"monitor_url" usage:"address of NATS's monitoring port, for the diagnosis"`
}

// Secrets holds the keys that the fleet shares and those of this plane alone.
type Secrets struct {
	// Pepper is the text under which API keys are hashed, the same on every proxy.
	Pepper     Secret `mapstructure:"pepper" usage:"text under which API keys are hashed, the same on every proxy"`
	PepperFile string `mapstructure:"pepper_file" usage:"file that holds secrets.pepper"`
	// OldPeppers are further peppers under which keys are looked up, one a line: those of before, and one that is to come.
	OldPeppers     Secret `mapstructure:"old_peppers" usage:"peppers of before, one a line, under which keys are looked up too"`
	OldPeppersFile string `mapstructure:"old_peppers_file" usage:"file that holds secrets.old_peppers"`
	// FleetKey seals provider credentials for the proxies: 32 bytes in base64.
	FleetKey     Secret `mapstructure:"fleet_key" usage:"32 bytes in base64 that seal provider credentials for the proxies"`
	FleetKeyFile string `mapstructure:"fleet_key_file" usage:"file that holds secrets.fleet_key"`
	// MasterKey seals secrets at rest: 32 bytes in base64. MasterKeyID is stored with what it sealed.
	MasterKey     Secret `mapstructure:"master_key" usage:"32 bytes in base64 that seal secrets at rest"`
	MasterKeyFile string `mapstructure:"master_key_file" usage:"file that holds secrets.master_key"`
	MasterKeyID   string `mapstructure:"master_key_id" usage:"name of the master key, stored with what it sealed"`
	// OldMasterKeys only open what they sealed, or are to come: lines, or parts between commas, of an id, a colon and 32 bytes in base64.
	OldMasterKeys     Secret `mapstructure:"old_master_keys" usage:"further master keys that only open, as id:base64 with commas or lines between"`
	OldMasterKeysFile string `mapstructure:"old_master_keys_file" usage:"file that holds secrets.old_master_keys"`
}

// Session is about the sessions of proxies.
type Session struct {
	// Valid is how long a session holds without renewal: the longest wait of a revocation for a proxy that cannot be reached.
	Valid time.Duration `mapstructure:"valid" usage:"how long the session of a proxy holds without renewal"`
	// Rest is how long an expired session's leases are kept for usage that may still come.
	Rest time.Duration `mapstructure:"rest" usage:"how long an expired session's leases are kept for usage that may still come"`
	// Linger is how long a refusal for want of money or places is held back for what may just be coming back: longer than a message takes.
	Linger time.Duration `mapstructure:"linger" usage:"how long a refusal is held back for what may just be coming back"`
}

// Webhook is about the events that are sent to other systems.
type Webhook struct {
	// AllowNetworks are networks, in CIDR notation with commas between, that endpoints may lie in although they are not public.
	AllowNetworks string `mapstructure:"allow_networks" usage:"networks, such as 10.0.0.0/8, that webhooks may reach although they are not public"`
	// AllowHTTP lets endpoints be spoken to without TLS.
	AllowHTTP bool `mapstructure:"allow_http" usage:"let webhooks go out without TLS"`
	// Timeout bounds an attempt to deliver.
	Timeout time.Duration `mapstructure:"timeout" usage:"longest time of an attempt to deliver a webhook"`
	// DisableAfter is how long an endpoint fails before it is turned off.
	DisableAfter time.Duration `mapstructure:"disable_after" usage:"how long an endpoint of webhooks fails before it is turned off"`
}

// Networks are the networks of AllowNetworks.
func (w *Webhook) Networks() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for text := range strings.FieldsFuncSeq(w.AllowNetworks, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}

// maxWebhookTimeout keeps attempts within the time for which a delivery is claimed.
const maxWebhookTimeout = 45 * time.Second

// Archive is about how long things are kept, and where they go then.
type Archive struct {
	// Dir is the folder for files of what leaves the database, the same for every replica; empty writes none.
	Dir string `mapstructure:"dir" usage:"folder for files of what leaves the database"`
	// UsageMonths is how many whole months of usage records are kept beside the running one; zero keeps them for ever. A
	// month is dropped only after it was exported: to Dir, or elsewhere and an operator has said so.
	UsageMonths int `mapstructure:"usage_months" usage:"whole months of usage records that are kept, 0 for ever"`
	// AuditMonths is the same for the audit log, which needs Dir.
	AuditMonths int `mapstructure:"audit_months" usage:"whole months of the audit log that are kept, 0 for ever"`
}

// Log is about the log.
type Log struct {
	Level slog.Level `mapstructure:"level" usage:"least level that is logged: debug, info, warn or error"`
}

// Default is the configuration before anything is read.
func Default() Config {
	return Config{
		Admin: Admin{
			Listen: ":8081", RevokeTimeout: 10 * time.Second, ConfirmTimeout: 2 * time.Second,
			OIDC: OIDC{Claim: "scope", Scopes: "operator=operator,cabinet=cabinet,read=read", Skew: time.Minute},
		},
		Ops:             Ops{Listen: ":9091"},
		Postgres:        Postgres{MaxConnections: 10},
		NATS:            NATS{Replicas: 1},
		Secrets:         Secrets{MasterKeyID: "m1"},
		Session:         Session{Valid: 30 * time.Second, Rest: 15 * time.Minute, Linger: 50 * time.Millisecond},
		Webhook:         Webhook{Timeout: 15 * time.Second, DisableAfter: 5 * 24 * time.Hour},
		ShutdownTimeout: 10 * time.Second,
	}
}

// ValidateMigrate reports what is missing to migrate.
func (c *Config) ValidateMigrate() error {
	if c.Postgres.URL == "" {
		return errors.New("config: postgres.url is not set")
	}
	return nil
}

// Validate reports everything that is missing or wrong to serve, joined.
func (c *Config) Validate() error {
	faults := []error{c.ValidateMigrate()}
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("config: "+format, args...))
		}
	}
	refuse(c.NATS.URL == "", "nats.url is not set")
	refuse(len(c.Secrets.Pepper) < 16, "secrets.pepper has fewer than 16 bytes")
	for i, pepper := range c.Secrets.OldPeppers.Lines() {
		refuse(len(pepper) < 16, "line %d of secrets.old_peppers has fewer than 16 bytes", i+1)
		refuse(pepper == string(c.Secrets.Pepper), "line %d of secrets.old_peppers is secrets.pepper", i+1)
	}
	refuse(c.Secrets.MasterKeyID == "", "secrets.master_key_id is empty")
	for _, key := range []struct {
		name  string
		value Secret
	}{{"fleet_key", c.Secrets.FleetKey}, {"master_key", c.Secrets.MasterKey}} {
		_, err := key.value.Key()
		refuse(err != nil, "secrets.%s: %v", key.name, err)
	}
	_, err := c.Secrets.MasterKeys()
	refuse(err != nil && c.Secrets.OldMasterKeys != "", "%v", err)
	token := c.Admin.BootstrapToken
	refuse(token != "" && len(token) < 16, "admin.bootstrap_token has fewer than 16 characters")
	if oidc := &c.Admin.OIDC; oidc.Issuer != "" {
		refuse(oidc.Audience == "", "admin.oidc.audience is not set")
		refuse(oidc.Claim == "", "admin.oidc.claim is empty")
		refuse(oidc.Skew < 0 || oidc.Skew > 10*time.Minute, "admin.oidc.skew is not between 0 and 10 minutes")
	}
	refuse(c.Postgres.MaxConnections < 4, "postgres.max_connections is below 4")
	refuse(c.Session.Valid < time.Second, "session.valid is below one second")
	refuse(c.Session.Linger < 0 || c.Session.Linger > time.Second, "session.linger is not between 0 and one second")
	_, err = c.Webhook.Networks()
	refuse(err != nil, "webhook.allow_networks: %v", err)
	refuse(c.Webhook.Timeout <= 0 || c.Webhook.Timeout > maxWebhookTimeout, "webhook.timeout is not between 0 and %s", maxWebhookTimeout)
	refuse(c.Webhook.DisableAfter < time.Hour, "webhook.disable_after is below one hour")
	refuse(c.Archive.UsageMonths < 0, "archive.usage_months is negative")
	refuse(c.Archive.AuditMonths < 0, "archive.audit_months is negative")
	refuse(c.Archive.AuditMonths > 0 && c.Archive.Dir == "", "archive.audit_months needs archive.dir")
	refuse(c.ShutdownTimeout <= 0, "shutdown_timeout is not positive")
	return errors.Join(faults...)
}

// MasterKeys are all master keys by their ids, the current one among them.
func (s *Secrets) MasterKeys() (map[string][]byte, error) {
	current, err := s.MasterKey.Key()
	if err != nil {
		return nil, fmt.Errorf("secrets.master_key: %w", err)
	}
	keys := map[string][]byte{s.MasterKeyID: current}
	for _, text := range Secret(strings.ReplaceAll(string(s.OldMasterKeys), ",", "\n")).Lines() {
		id, encoded, ok := strings.Cut(strings.TrimSpace(text), ":")
		if !ok || id == "" {
			return nil, errors.New("secrets.old_master_keys: want an id, a colon and 32 bytes in base64")
		}
		if keys[id] != nil {
			return nil, fmt.Errorf("secrets.old_master_keys: there are two master keys %q", id)
		}
		if keys[id], err = Secret(encoded).Key(); err != nil {
			return nil, fmt.Errorf("secrets.old_master_keys: %q %w", id, err)
		}
	}
	return keys, nil
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
