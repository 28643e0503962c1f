// Package config holds the settings of the control plane, their defaults and
// their validation. docs/settings.md lists them;
// TestSettingsReferenceIsUpToDate keeps it in step.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"modelgateway/controlplane/internal/oidc"
	"modelgateway/shared/certfile"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/platform/settings"
	"modelgateway/shared/platform/traces"
)

// Config is every setting of the control plane. Package settings explains how
// it is loaded. The usage texts are the help of the flags and the settings
// reference; comments are added only where they are not sufficient.
type Config struct {
	Admin    Admin    `mapstructure:"admin"`
	Console  Console  `mapstructure:"console"`
	Ops      Ops      `mapstructure:"ops"`
	Postgres Postgres `mapstructure:"postgres"`
	NATS     NATS     `mapstructure:"nats"`
	Secrets  Secrets  `mapstructure:"secrets"`
	Session  Session  `mapstructure:"session"`
	Catalog  Catalog  `mapstructure:"catalog"`
	Webhook  Webhook  `mapstructure:"webhook"`
	Archive  Archive  `mapstructure:"archive"`
	Log      Log      `mapstructure:"log"`
	Tracing  Tracing  `mapstructure:"tracing"`
}

// Admin configures the admin API.
type Admin struct {
	Listen             string          `mapstructure:"listen" usage:"Address that the admin API listens on." when:"another port or address is wanted"`
	TLS                TLS             `mapstructure:"tls"`
	TrustedProxies     string          `mapstructure:"trusted_proxies" usage:"Networks of the reverse proxies in front of the admin API, in CIDR notation separated by commas, such as 10.0.0.0/8. The client address is read from X-Forwarded-For only behind these." when:"a reverse proxy is in front of the admin API"`
	BootstrapToken     settings.Secret `mapstructure:"bootstrap_token" usage:"Admin token with every scope, for setting up. Empty disables it. While one token replaces another, it holds both, one per line." when:"the installation has no admin token yet"`
	BootstrapExpiresAt string          `mapstructure:"bootstrap_expires_at" usage:"Time at which the bootstrap tokens stop being valid, such as 2026-12-31T00:00:00Z. Empty means never." when:"the bootstrap token is for setting up only"`
	RevokeTimeout      time.Duration   `mapstructure:"revoke_timeout" usage:"How long a revocation waits for all proxies to confirm it before the admin API answers 202." when:"callers of the admin API wait for a shorter or longer time"`
	OIDC               OIDC            `mapstructure:"oidc"`
}

// Console configures the web console for operators, which the listener of the admin API serves at /console/.
type Console struct {
	Enabled       bool          `mapstructure:"enabled" usage:"Serve the console at /console/ of the admin API's listener." when:"nobody is to use the console"`
	BaseURL       string        `mapstructure:"base_url" usage:"Address at which people reach the console, such as https://admin.example.com, without a path. Required for signing in by OpenID Connect, and behind a proxy that ends TLS." when:"people sign in by OpenID Connect, or a proxy ends TLS"`
	APIURL        string        `mapstructure:"api_url" usage:"Address at which customers reach the gateway, such as https://api.example.com, without a path. The page Connect shows it, and sends a request there if an operator tries a key with the name demo." when:"customers reach the gateway"`
	Environment   string        `mapstructure:"environment" usage:"Name that every page shows, such as production; none by default." when:"there is more than one installation"`
	TokenSignIn   string        `mapstructure:"token_sign_in" usage:"Whether people may sign in with an admin token: yes, no, or auto, which means only without OpenID Connect." when:"tokens are for programs only"`
	OIDC          ConsoleOIDC   `mapstructure:"oidc"`
	SessionIdle   time.Duration `mapstructure:"session_idle" usage:"How long a session lasts without use." when:"a policy asks for it"`
	SessionLength time.Duration `mapstructure:"session_length" usage:"How long a session lasts in any case." when:"a policy asks for it"`
}

// ConsoleOIDC is the client of the console at the OpenID Connect provider of admin.oidc.
type ConsoleOIDC struct {
	ClientID     string          `mapstructure:"client_id" usage:"Client id of the console at the provider of admin.oidc.issuer. Empty disables signing in there." when:"people sign in by OpenID Connect"`
	ClientSecret settings.Secret `mapstructure:"client_secret" usage:"Secret of the client." when:"people sign in by OpenID Connect"`
	Scopes       string          `mapstructure:"scopes" usage:"Scopes that are asked for beside openid, separated by spaces, so that the ID token has the claim admin.oidc.claim." when:"the claim needs a scope"`
}

// ByToken reports whether people may sign in with an admin token.
func (c *Console) ByToken() bool {
	return c.TokenSignIn == "yes" || c.TokenSignIn == "auto" && c.OIDC.ClientID == ""
}

// TLS configures the certificate of a listener.
type TLS struct {
	CertFile string `mapstructure:"cert_file" usage:"File with the certificate and its chain, in PEM. It is read again when it changes. Empty serves without TLS." when:"nothing in front of it ends TLS"`
	KeyFile  string `mapstructure:"key_file" usage:"File with the private key of the certificate, in PEM." when:"the certificate is set"`
}

// Files returns the files of the certificate.
func (t TLS) Files() certfile.Files { return certfile.Files{Cert: t.CertFile, Key: t.KeyFile} }

// OIDC configures the OpenID Connect provider whose tokens the admin API
// accepts beside admin tokens.
type OIDC struct {
	Issuer       string `mapstructure:"issuer" usage:"Issuer URL of the OpenID Connect provider whose tokens are accepted. It begins with https://, except on the same machine, or if its keys are in admin.oidc.jwks_file. Empty disables OpenID Connect." when:"people or programs have tokens of an identity provider"`
	Audience     string `mapstructure:"audience" usage:"Audience that its tokens must have. Required with an issuer." when:"the issuer is set"`
	JWKSFile     string `mapstructure:"jwks_file" usage:"File with the provider's signing keys (JWKS). Empty fetches them by discovery." when:"the control plane cannot reach the provider"`
	Claim        string `mapstructure:"claim" usage:"Claim that is mapped to scopes: a list, or a text with values separated by spaces." when:"the provider names the rights in another claim"`
	ScopeMapping string `mapstructure:"scope_mapping" usage:"Scope for each value of the claim, such as admins=operator,support=read." when:"the provider has other names for the rights"`
}

// Ops configures the listener for probes and metrics.
type Ops struct {
	Listen string `mapstructure:"listen" usage:"Address that probes and metrics listen on." when:"another port or address is wanted"`
	Pprof  bool   `mapstructure:"pprof" usage:"Serve Go profiles under /debug/pprof on the ops listener." when:"a process uses more memory or processor than it should"`
}

// Postgres configures the database.
type Postgres struct {
	URL            settings.Secret `mapstructure:"url" usage:"Connection string of the database. Required. Without an sslmode, in it or in the variable PGSSLMODE, the server must have a certificate for its name (verify-full)."`
	RuntimeRole    string          `mapstructure:"runtime_role" usage:"Database role of the serving control plane, if it is not the owner of the tables. The command migrate grants it only what it needs. Empty grants nothing." when:"the program is not to own the tables"`
	MaxConnections int             `mapstructure:"max_connections" usage:"Maximum number of connections for leases, sessions, settlement and video jobs, at least 4." when:"gwctl doctor says that leases wait for connections"`
	// Requests of administrators and jobs have connections of their own, so that they cannot delay the requests of customers.
	AdminMaxConnections int           `mapstructure:"admin_max_connections" usage:"Maximum number of connections for the admin API and for jobs, in addition to those of postgres.max_connections, at least 3." when:"the console or the admin API is slow under load"`
	StatementTimeout    time.Duration `mapstructure:"statement_timeout" usage:"Longest time of one statement of the admin API or of a job." when:"reports or jobs time out"`
	KeepsCommits        string        `mapstructure:"keeps_commits" usage:"When Postgres certainly keeps every commit that it has acknowledged. never: not even after a crash. restart: a server that restarts has its own disk, not a copy of it that is up to a second old. failover: replication is synchronous, so that a promoted standby has them too. If Postgres changes otherwise while a control plane is silent, a loss of commits is declared." when:"the storage or the replication of Postgres is chosen"`
}

// NATS configures the connection to NATS, its streams and its buckets.
type NATS struct {
	URL      string          `mapstructure:"url" usage:"URLs of the NATS servers, separated by commas. Required."`
	User     string          `mapstructure:"user" usage:"User name at NATS." when:"NATS knows users by name and password"`
	Password settings.Secret `mapstructure:"password" usage:"Password at NATS." when:"NATS knows users by name and password"`
	CAFile   string          `mapstructure:"ca_file" usage:"File with the CA certificates that NATS servers are verified against." when:"the certificates of NATS are of a private authority"`
	CertFile string          `mapstructure:"cert_file" usage:"File with the TLS client certificate for NATS." when:"NATS knows users by client certificates"`
	KeyFile  string          `mapstructure:"key_file" usage:"File with the private key of the TLS client certificate." when:"the client certificate is set"`
	Replicas int             `mapstructure:"replicas" usage:"Number of NATS servers that store each stream and bucket." when:"NATS has one server: 1"`
	// The usage stream needs about 250 bytes for each request on the disk of each server that stores it.
	UsageMaxBytes int64         `mapstructure:"usage_max_bytes" usage:"Maximum size of the usage stream in bytes on each NATS server that stores it; 0 means no limit but the disk. A request takes about 250 bytes: 100 requests per second for 7 days are 15 GiB. The disk needs twice as much. When the stream is full, usage waits in the spools of the proxies." when:"the disk of NATS is shared"`
	UsageKept     time.Duration `mapstructure:"usage_kept" usage:"How long settled usage stays in the usage stream. After a loss of commits in Postgres it is settled again from there, so it must be longer than the age of the newest backup that would be restored, plus 1h. At least 2h." when:"older backups may be restored"`
	MonitorURL    string        `mapstructure:"monitor_url" usage:"URLs of the monitoring ports of all NATS servers, separated by commas. gwctl doctor reads from them whether the servers sync messages to disk before they acknowledge them. If it is empty, that cannot be seen." when:"NATS is your own"`
}

// Secrets holds the secrets that both planes share and those of the control
// plane alone.
type Secrets struct {
	Pepper             settings.Secret `mapstructure:"pepper" usage:"Secret under which API keys are hashed, at least 16 bytes, the same on both planes. Required."`
	PreviousPeppers    settings.Secret `mapstructure:"previous_peppers" usage:"Previous peppers, one per line. API keys hashed under them are still accepted. Before a rotation the next pepper is added here, too." when:"the pepper is rotated"`
	FleetKey           settings.Secret `mapstructure:"fleet_key" usage:"Key that encrypts provider credentials for the proxies: 32 bytes in base64, the same on both planes. Required."`
	MasterKey          settings.Secret `mapstructure:"master_key" usage:"Key that encrypts secrets in Postgres: 32 bytes in base64, or id:base64 with its own id instead of secrets.master_key_id. Required."`
	MasterKeyID        string          `mapstructure:"master_key_id" usage:"Name of the master key, stored with each secret that it encrypts." when:"the master key is rotated"`
	PreviousMasterKeys settings.Secret `mapstructure:"previous_master_keys" usage:"Previous master keys, which only decrypt: id:base64, one per line or separated by commas. Before a rotation the next one is added here, too." when:"the master key is rotated"`
}

// Session configures the sessions of proxies.
type Session struct {
	// With several NATS servers it must be longer than the election of a leader, which takes up to 9 s, and a quarter of it.
	// With one server nothing is elected: the same default serves while that server restarts.
	Window time.Duration `mapstructure:"window" usage:"For how long a proxy may admit requests after a beat, a message in the stream of changes in NATS that it reads back. A revocation waits as long for a proxy that cannot acknowledge it, and a proxy that is cut off from NATS stops after it. A proxy sends a beat each quarter of it. From 1s to 5m; below 20s, the election of a leader among several NATS servers can stop every proxy for seconds." when:"an election of NATS takes longer, or revocations must reach a proxy that is cut off sooner"`
}

// maxWindow is the longest session.window: revocations wait as long for a proxy that is cut off.
const maxWindow = 5 * time.Minute

// Catalog configures which catalogs are accepted.
type Catalog struct {
	RequireHTTPS bool `mapstructure:"require_https" usage:"Refuse new provider addresses without TLS, over which credentials would be sent in the clear." when:"a provider is in your own network, without TLS"`
}

// Webhook configures the delivery of webhooks.
type Webhook struct {
	AllowedNetworks string        `mapstructure:"allowed_networks" usage:"Private networks that webhooks may reach, in CIDR notation separated by commas, such as 10.0.0.0/8. Public addresses are always allowed." when:"receivers of webhooks are in your own network"`
	AllowHTTP       bool          `mapstructure:"allow_http" usage:"Allow webhook endpoints without TLS." when:"receivers of webhooks have no TLS"`
	Timeout         time.Duration `mapstructure:"timeout" usage:"Time limit for one delivery attempt of a webhook, at most 45s." when:"receivers of webhooks are slow"`
	DisableAfter    time.Duration `mapstructure:"disable_after" usage:"How long a webhook endpoint may fail before it is disabled, at least 1h." when:"receivers of webhooks fail for days"`
}

// BootstrapExpiry parses BootstrapExpiresAt. It is zero if the tokens do not expire.
func (a *Admin) BootstrapExpiry() (time.Time, error) {
	if a.BootstrapExpiresAt == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, a.BootstrapExpiresAt)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-12-31T00:00:00Z", a.BootstrapExpiresAt)
	}
	return at, nil
}

// Proxies parses TrustedProxies.
func (a *Admin) Proxies() ([]netip.Prefix, error) { return clientaddr.ParseNetworks(a.TrustedProxies) }

// Networks parses AllowedNetworks.
func (w *Webhook) Networks() ([]netip.Prefix, error) {
	return clientaddr.ParseNetworks(w.AllowedNetworks)
}

// maxWebhookTimeout is shorter than the time for which a replica claims a
// delivery, so that no second replica attempts it meanwhile.
const maxWebhookTimeout = 45 * time.Second

// Archive configures data retention. A month of usage records is dropped only
// after it was exported: to Dir, or elsewhere if an operator has confirmed it.
type Archive struct {
	Dir                  string `mapstructure:"dir" usage:"Directory for exported months, the same for every replica. Empty exports nothing." when:"months of usage are exported"`
	UsageRetentionMonths int    `mapstructure:"usage_retention_months" usage:"Number of whole months of usage records that are kept beside the current one. 0 keeps them for ever." when:"old usage is to be deleted"`
	AuditRetentionMonths int    `mapstructure:"audit_retention_months" usage:"Number of whole months of the audit log that are kept beside the current one; needs archive.dir. 0 keeps it for ever." when:"the old audit log is to be deleted"`
}

// Tracing configures the export of traces. The data plane decides which requests are traced.
type Tracing struct {
	Endpoint string `mapstructure:"endpoint" usage:"URL of an OpenTelemetry collector that receives traces over OTLP/HTTP, such as http://collector:4318. Empty makes no spans of the settlement of traced requests." when:"there is a collector"`
}

// Log configures the log.
type Log struct {
	Level slog.Level `mapstructure:"level" usage:"Lowest level that is logged: debug, info, warn or error." when:"a fault is looked for"`
}

// Default returns the settings before anything is loaded.
func Default() Config {
	return Config{
		Admin: Admin{
			Listen:        ":8081",
			RevokeTimeout: 10 * time.Second,
			OIDC: OIDC{
				Claim:        "scope",
				ScopeMapping: "operator=operator,observe=observe,cabinet=cabinet,credits=credits,keys.reveal=keys.reveal,read=read",
			},
		},
		Console: Console{
			Enabled:       true,
			TokenSignIn:   "auto",
			SessionIdle:   30 * time.Minute,
			SessionLength: 10 * time.Hour,
		},
		Ops: Ops{Listen: ":9091"},
		Postgres: Postgres{
			MaxConnections:      10,
			AdminMaxConnections: 6,
			StatementTimeout:    time.Minute,
			KeepsCommits:        string(rollback.KeepsOnRestart),
		},
		NATS:    NATS{Replicas: 3, UsageKept: 7 * 24 * time.Hour},
		Secrets: Secrets{MasterKeyID: "m1"},
		Session: Session{Window: 20 * time.Second},
		Catalog: Catalog{RequireHTTPS: true},
		Webhook: Webhook{Timeout: 15 * time.Second, DisableAfter: 5 * 24 * time.Hour},
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

// ValidateMigrate returns an error unless the settings suffice to migrate the
// database.
func (c *Config) ValidateMigrate() error {
	if c.Postgres.URL == "" {
		return errors.New("config: postgres.url is not set")
	}
	return nil
}

// Validate returns everything that is missing or wrong for serving, joined.
func (c *Config) Validate() error {
	var v settings.Validator
	v.Reject(c.Postgres.URL == "", "postgres.url is not set")
	v.Reject(c.NATS.URL == "", "nats.url is not set")
	v.Reject(c.NATS.UsageMaxBytes < 0, "nats.usage_max_bytes is negative")
	v.Reject(c.NATS.UsageKept < 2*time.Hour, "nats.usage_kept is shorter than 2h")
	c.Secrets.validate(&v)

	for _, token := range c.Admin.BootstrapToken.Lines() {
		v.Reject(len(token) < 16, "admin.bootstrap_token has fewer than 16 characters")
	}

	_, err := c.Admin.BootstrapExpiry()
	v.Reject(err != nil, "admin.bootstrap_expires_at: %v", err)
	if err := c.Admin.TLS.Files().Validate(); err != nil {
		v.Reject(true, "admin.tls: %v", err)
	}

	_, err = c.Admin.Proxies()
	v.Reject(err != nil, "admin.trusted_proxies: %v", err)
	v.Reject(!slices.Contains([]string{"yes", "no", "auto"}, c.Console.TokenSignIn), "console.token_sign_in is not yes, no or auto")
	v.Reject(!isAddress(c.Console.APIURL), "console.api_url is not an address such as https://api.example.com")
	v.Reject(
		c.Console.SessionIdle < time.Minute || c.Console.SessionLength < c.Console.SessionIdle,
		"console.session_idle is below a minute or above console.session_length",
	)
	v.Reject(c.Console.OIDC.ClientID != "" && c.Admin.OIDC.Issuer == "", "console.oidc.client_id needs admin.oidc.issuer")
	v.Reject(c.Console.OIDC.ClientID != "" && c.Console.BaseURL == "", "console.oidc.client_id needs console.base_url")

	if tokens := &c.Admin.OIDC; tokens.Issuer != "" {
		v.Reject(tokens.Audience == "", "admin.oidc.audience is not set")
		v.Reject(tokens.Claim == "", "admin.oidc.claim is empty")
		asked := tokens.JWKSFile == "" || c.Console.OIDC.ClientID != ""
		v.Reject(asked && !oidc.IsSecure(tokens.Issuer), "admin.oidc.issuer does not begin with https://")
	}

	v.Reject(c.Postgres.MaxConnections < 4, "postgres.max_connections is below 4")
	v.Reject(c.Postgres.AdminMaxConnections < 3, "postgres.admin_max_connections is below 3")
	v.Reject(c.Postgres.StatementTimeout < time.Second, "postgres.statement_timeout is below one second")
	keeps := rollback.Keeps(c.Postgres.KeepsCommits)
	v.Reject(
		!slices.Contains([]rollback.Keeps{rollback.KeepsNever, rollback.KeepsOnRestart, rollback.KeepsOnFailover}, keeps),
		"postgres.keeps_commits is not never, restart or failover",
	)
	v.Reject(c.Session.Window < time.Second || c.Session.Window > maxWindow, "session.window is not between 1s and %v", maxWindow)
	_, err = c.Webhook.Networks()
	v.Reject(err != nil, "webhook.allowed_networks: %v", err)
	v.Reject(c.Webhook.Timeout <= 0 || c.Webhook.Timeout > maxWebhookTimeout, "webhook.timeout is not between 0 and %s", maxWebhookTimeout)
	v.Reject(c.Webhook.DisableAfter < time.Hour, "webhook.disable_after is below one hour")
	v.Reject(c.Archive.UsageRetentionMonths < 0, "archive.usage_retention_months is negative")
	v.Reject(c.Archive.AuditRetentionMonths < 0, "archive.audit_retention_months is negative")
	v.Reject(c.Archive.AuditRetentionMonths > 0 && c.Archive.Dir == "", "archive.audit_retention_months needs archive.dir")
	if err := traces.CheckEndpoint(c.Tracing.Endpoint); err != nil {
		v.Reject(true, "tracing.endpoint: %v", err)
	}

	return v.Err()
}

// validate rejects missing and invalid secrets.
func (s *Secrets) validate(v *settings.Validator) {
	v.Reject(len(s.Pepper) < 16, "secrets.pepper has fewer than 16 bytes")
	for i, pepper := range s.PreviousPeppers.Lines() {
		v.Reject(len(pepper) < 16, "line %d of secrets.previous_peppers has fewer than 16 bytes", i+1)
		v.Reject(pepper == string(s.Pepper), "line %d of secrets.previous_peppers is the same as secrets.pepper", i+1)
	}

	masterKeyID, masterKey := s.CurrentMasterKey()
	v.Reject(masterKeyID == "", "secrets.master_key_id is empty")

	for _, key := range []struct {
		name  string
		value settings.Secret
	}{{"fleet_key", s.FleetKey}, {"master_key", masterKey}} {
		_, err := key.value.Key()
		v.Reject(err != nil, "secrets.%s: %v", key.name, err)
	}

	_, err := s.MasterKeys()
	v.Reject(err != nil && s.PreviousMasterKeys != "", "%v", err)
}

// CurrentMasterKey returns the id of the master key and the key in base64. An id in the text of the
// key takes precedence over the setting, so that a key and its id can be exchanged at once.
func (s *Secrets) CurrentMasterKey() (id string, key settings.Secret) {
	if id, encoded, ok := strings.Cut(strings.TrimSpace(string(s.MasterKey)), ":"); ok {
		return id, settings.Secret(encoded)
	}
	return s.MasterKeyID, s.MasterKey
}

// MasterKeys returns all master keys by id: the current one and the previous ones.
func (s *Secrets) MasterKeys() (map[string][]byte, error) {
	id, key := s.CurrentMasterKey()
	current, err := key.Key()
	if err != nil {
		return nil, fmt.Errorf("secrets.master_key: %w", err)
	}

	keys := map[string][]byte{id: current}
	for _, text := range settings.Secret(strings.ReplaceAll(string(s.PreviousMasterKeys), ",", "\n")).Lines() {
		id, encoded, ok := strings.Cut(strings.TrimSpace(text), ":")
		if !ok || id == "" {
			return nil, errors.New("secrets.previous_master_keys: each key has the form id:base64")
		}
		if keys[id] != nil {
			return nil, fmt.Errorf("secrets.previous_master_keys: two master keys have the id %q", id)
		}
		if keys[id], err = settings.Secret(encoded).Key(); err != nil {
			return nil, fmt.Errorf("secrets.previous_master_keys: key %q %w", id, err)
		}
	}

	return keys, nil
}

// isAddress reports whether a text is the address of a server, without a path, or empty.
func isAddress(text string) bool {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return err == nil
	}
	return (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && strings.Trim(u.Path, "/") == "" &&
		u.RawQuery == "" &&
		u.Fragment == ""
}
