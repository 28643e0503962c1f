package config_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"modelgateway/controlplane/internal/config"
)

func load(t *testing.T, args ...string) (config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return config.Config{}, err
	}
	return config.Load(flags)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	got, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

// A flag beats the environment, which beats the file, which beats the default.
func TestStrength(t *testing.T) {
	file := write(t, `
admin: {listen: ":1", revoke_timeout: 3s}
ops: {listen: ":2", pprof: true}
nats: {url: "nats://file", replicas: 3}
log: {level: debug}
`)
	t.Setenv("MGW_OPS_LISTEN", ":3")
	t.Setenv("MGW_NATS_URL", "nats://env")
	t.Setenv("MGW_SHUTDOWN_TIMEOUT", "1m")
	got, err := load(t, "--config", file, "--nats.url", "nats://flag", "--postgres.max_connections=7")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Admin.Listen, want.Admin.RevokeTimeout = ":1", 3*time.Second
	want.Ops = config.Ops{Listen: ":3", Pprof: true}
	want.NATS.URL, want.NATS.Replicas = "nats://flag", 3
	want.Log.Level = slog.LevelDebug
	want.ShutdownTimeout = time.Minute
	want.Postgres.MaxConnections = 7
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Setenv("MGW_SECRETS_PEPPER_FILE", write(t, "the pepper of this test\n"))
	got, err := load(t, "--nats.password_file", write(t, "pass word"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Secrets.Pepper != "the pepper of this test" || got.NATS.Password != "pass word" {
		t.Errorf("got %q and %q", string(got.Secrets.Pepper), string(got.NATS.Password))
	}
	if text := fmt.Sprintf("%v %+v %s", got, got.Secrets, got.NATS.Password); strings.Contains(text, "pepper of") || strings.Contains(text, "pass word") {
		t.Errorf("a secret is printed: %s", text)
	}
}

func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown key", []string{"--config", write(t, "admin: {lisen: x}")}, "lisen"},
		{"unknown section", []string{"--config", write(t, "adnim: {listen: x}")}, "adnim"},
		{"unknown flag", []string{"--admin.lisen=x"}, "lisen"},
		{"no file", []string{"--config", "/does/not/exist.yaml"}, "exist.yaml"},
		{"malformed duration", []string{"--shutdown_timeout=soon"}, "shutdown_timeout"},
		{"malformed level", []string{"--log.level=loud"}, "log.level"},
		{"no secret file", []string{"--secrets.pepper_file=/does/not/exist"}, "secrets.pepper_file"},
		{"secret twice", []string{"--secrets.pepper=x", "--secrets.pepper_file", write(t, "y")}, "both secrets.pepper"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := load(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want an error about %q", err, test.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	key := config.Secret(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	valid := config.Default()
	valid.Postgres.URL, valid.NATS.URL = "postgres://x", "nats://x"
	valid.Secrets.Pepper, valid.Secrets.FleetKey, valid.Secrets.MasterKey = "0123456789abcdef", key, key
	if err := valid.Validate(); err != nil {
		t.Fatalf("a valid configuration is refused: %v", err)
	}
	empty := config.Default()
	err := empty.Validate()
	for _, want := range []string{"postgres.url", "nats.url", "secrets.pepper", "secrets.fleet_key", "secrets.master_key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want a fault of %s", err, want)
		}
	}
	for name, spoil := range map[string]func(*config.Config){
		"secrets.master_key":       func(c *config.Config) { c.Secrets.MasterKey = "c2hvcnQ=" },
		"secrets.fleet_key":        func(c *config.Config) { c.Secrets.FleetKey = "not base64" },
		"secrets.master_key_id":    func(c *config.Config) { c.Secrets.MasterKeyID = "" },
		"admin.bootstrap_token":    func(c *config.Config) { c.Admin.BootstrapToken = "short" },
		"postgres.max_connections": func(c *config.Config) { c.Postgres.MaxConnections = 1 },
		"session.valid":            func(c *config.Config) { c.Session.Valid = 0 },
		"session.linger":           func(c *config.Config) { c.Session.Linger = 2 * time.Second },
		"shutdown_timeout":         func(c *config.Config) { c.ShutdownTimeout = 0 },
	} {
		c := valid
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v; want a fault of %s", err, name)
		}
	}
}

// TestSecretsNeverPrint: not in a log, not as JSON, not by any verb, and not as
// the default of a flag.
func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	const text = "do not tell anybody"
	cfg.Admin.BootstrapToken, cfg.Postgres.URL, cfg.NATS.Password = text, text, text
	cfg.Secrets.Pepper, cfg.Secrets.OldPeppers, cfg.Secrets.FleetKey = text, text, text
	cfg.Secrets.MasterKey, cfg.Secrets.OldMasterKeys = text, text
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("config", slog.Any("config", cfg), slog.Any("secret", cfg.Secrets.Pepper))
	}
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{
		log.String(), string(encoded), fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg),
		fmt.Sprintf("%q %x", cfg.NATS.Password, cfg.NATS.Password), fmt.Sprint(cfg.Validate()),
	} {
		if strings.Contains(printed, "tell") || strings.Contains(printed, fmt.Sprintf("%x", "tell")) {
			t.Errorf("a secret prints: %s", printed)
		}
	}
}

func TestEverySettingIsExplained(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s says nothing of itself", f.Name)
		}
	})
	if got := flags.Lookup("log.level").DefValue; got != slog.LevelInfo.String() {
		t.Errorf("the default of log.level is shown as %q", got)
	}
}
