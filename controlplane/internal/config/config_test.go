package config_test

import (
	"encoding/base64"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"modelgateway/controlplane/internal/config"
	"modelgateway/shared/platform/settings"
	"modelgateway/shared/platform/settings/settingstest"
)

var update = flag.Bool("update", false, "rewrite the settings reference")

func TestSettingsReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	settingstest.CheckReference(t, "../../../docs/settings.md", "controlplane", config.Default(), *update)
}

func TestEverySettingHasAFlagAndAUsage(t *testing.T) {
	settingstest.CheckFlags(t, config.Default(), func(flags *pflag.FlagSet) error {
		cfg, err := config.Load(flags)
		if diff := cmp.Diff(config.Default(), cfg); diff != "" {
			t.Errorf("(-default +loaded):\n%s", diff)
		}
		return err
	})
}

func load(t *testing.T, args ...string) config.Config {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// base64Key returns a key of 32 equal bytes in base64.
func base64Key(b byte) settings.Secret {
	return settings.Secret(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32))))
}

// valid returns a configuration that passes validation.
func valid() config.Config {
	cfg := config.Default()
	cfg.Postgres.URL, cfg.NATS.URL = "postgres://x", "nats://x"
	cfg.Secrets.Pepper, cfg.Secrets.FleetKey, cfg.Secrets.MasterKey = "0123456789abcdef", base64Key('f'), base64Key('m')
	return cfg
}

func TestValidateRejectsEachInvalidSetting(t *testing.T) {
	t.Parallel()
	if cfg := valid(); cfg.Validate() != nil {
		t.Fatalf("a valid configuration is rejected: %v", cfg.Validate())
	}
	tests := []struct {
		change func(c *config.Config)
		want   string
	}{
		{func(c *config.Config) { c.Postgres.URL = "" }, "postgres.url"},
		{func(c *config.Config) { c.Postgres.MaxConnections = 3 }, "postgres.max_connections"},
		{func(c *config.Config) { c.NATS.URL = "" }, "nats.url"},
		{func(c *config.Config) { c.Secrets.Pepper = "short" }, "secrets.pepper"},
		{func(c *config.Config) { c.Secrets.PreviousPeppers = "a good old pepper\nshort" }, "line 2 of secrets.previous_peppers"},
		{func(c *config.Config) { c.Secrets.PreviousPeppers = c.Secrets.Pepper }, "line 1 of secrets.previous_peppers"},
		{func(c *config.Config) { c.Secrets.FleetKey = "not base64" }, "secrets.fleet_key"},
		{func(c *config.Config) { c.Secrets.MasterKey = "c2hvcnQ=" }, "secrets.master_key"},
		{func(c *config.Config) { c.Secrets.MasterKeyID = "" }, "secrets.master_key_id"},
		{func(c *config.Config) { c.Secrets.PreviousMasterKeys = "m0" }, "secrets.previous_master_keys"},
		{func(c *config.Config) { c.Admin.BootstrapToken = "short" }, "admin.bootstrap_token"},
		{func(c *config.Config) { c.Admin.OIDC.Issuer = "https://id.example.com" }, "admin.oidc.audience"},
		{func(c *config.Config) { c.Admin.OIDC = config.OIDC{Issuer: "x", Audience: "x"} }, "admin.oidc.claim"},
		{func(c *config.Config) {
			c.Admin.OIDC = config.OIDC{Issuer: "http://id.example.com", Audience: "x", Claim: "x"}
		}, "admin.oidc.issuer"},
		{func(c *config.Config) {
			c.Admin.OIDC = config.OIDC{Issuer: "http://id.example.com", Audience: "x", Claim: "x", JWKSFile: "f"}
			c.Console.OIDC.ClientID, c.Console.BaseURL = "console", "https://admin.example.com"
		}, "admin.oidc.issuer"},
		{func(c *config.Config) { c.Console.APIURL = "api.example.com" }, "console.api_url"},
		{func(c *config.Config) { c.Console.APIURL = "https://api.example.com/v1" }, "console.api_url"},
		{func(c *config.Config) { c.Session.Window = time.Millisecond }, "session.window is not between 1s and 5m0s"},
		{func(c *config.Config) { c.Session.Window = time.Hour }, "session.window is not between 1s and 5m0s"},
		{func(c *config.Config) { c.Webhook.AllowedNetworks = "10.0.0.1" }, "webhook.allowed_networks"},
		{func(c *config.Config) { c.Webhook.Timeout = time.Minute }, "webhook.timeout"},
		{func(c *config.Config) { c.Webhook.DisableAfter = time.Minute }, "webhook.disable_after"},
		{func(c *config.Config) { c.Archive.UsageRetentionMonths = -1 }, "archive.usage_retention_months"},
		{func(c *config.Config) { c.Archive.AuditRetentionMonths = -1 }, "archive.audit_retention_months"},
		{func(c *config.Config) { c.Archive.AuditRetentionMonths = 1 }, "archive.audit_retention_months needs archive.dir"},
		{func(c *config.Config) { c.Tracing.Endpoint = "collector:4318" }, "tracing.endpoint"},
	}
	for _, tt := range tests {
		cfg := valid()
		tt.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v; want an error that names %s", err, tt.want)
		}
	}
}

func TestValidateReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	empty := config.Default()
	err := empty.Validate()
	for _, want := range []string{"postgres.url", "nats.url", "secrets.pepper", "secrets.fleet_key", "secrets.master_key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want an error that names %s", err, want)
		}
	}
}

// Previous master keys stand one per line in a file, or separated by commas in
// the environment.
func TestMasterKeysAreReadFromLinesAndCommas(t *testing.T) {
	want := map[string][]byte{"m2": []byte(strings.Repeat("b", 32)), "m1": []byte(strings.Repeat("a", 32)), "m0": []byte(strings.Repeat("0", 32))}
	t.Setenv("MGW_SECRETS_MASTER_KEY", string(base64Key('b')))
	t.Setenv("MGW_SECRETS_MASTER_KEY_ID", "m2")
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("m1:"+string(base64Key('a'))+"\n\nm0:"+string(base64Key('0'))+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"file":   {"--secrets.previous_master_keys_file", file},
		"commas": {"--secrets.previous_master_keys", "m1:" + string(base64Key('a')) + ", m0:" + string(base64Key('0'))},
	} {
		cfg := load(t, args...)
		got, err := cfg.Secrets.MasterKeys()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// The text of the master key may have its id, so that a change of the Secret exchanges both.
func TestIDOfTheMasterKeyMayStandBeforeIt(t *testing.T) {
	t.Parallel()
	key := base64Key('b')
	for text, want := range map[settings.Secret]string{key: "m1", "m2:" + key: "m2", " m2:" + key + "\n": "m2"} {
		cfg := valid()
		cfg.Secrets.MasterKey, cfg.Secrets.MasterKeyID = text, "m1"
		keys, err := cfg.Secrets.MasterKeys()
		if id, _ := cfg.Secrets.CurrentMasterKey(); err != nil || id != want || len(keys) != 1 || keys[want] == nil {
			t.Errorf("id %q, %d keys, %v; want the key %q", id, len(keys), err, want)
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
	cfg := valid()
	cfg.Secrets.MasterKey = ":" + key
	if err := cfg.Validate(); err == nil {
		t.Error("a key with an empty id is accepted")
	}
}

func TestMalformedMasterKeysAreRejectedAndNotPrinted(t *testing.T) {
	t.Parallel()
	key := string(base64Key('a'))
	for name, previous := range map[string]string{
		"no id": ":" + key, "no colon": key, "too short": "m1:YWFh", "id of the current key": "m2:" + key, "id twice": "m1:" + key + ",m1:" + key,
	} {
		cfg := config.Config{Secrets: config.Secrets{MasterKey: base64Key('b'), MasterKeyID: "m2", PreviousMasterKeys: settings.Secret(previous)}}
		if _, err := cfg.Secrets.MasterKeys(); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v; want an error that shows no key", name, err)
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "previous_master_keys") {
			t.Errorf("%s: validated as %v", name, err)
		}
	}
}

func TestPreviousPeppersAreLines(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Secrets.PreviousPeppers = "a pepper, with a comma\r\n\nanother pepper of old\n"
	if diff := cmp.Diff([]string{"a pepper, with a comma", "another pepper of old"}, cfg.Secrets.PreviousPeppers.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAllowedNetworksAreParsed(t *testing.T) {
	t.Parallel()
	w := config.Webhook{AllowedNetworks: "10.1.2.3/8, ::1/128"}
	got, err := w.Networks()
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
