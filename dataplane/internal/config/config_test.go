package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// load loads with arguments, an environment and, if there is one, a file.
func load(t *testing.T, file string, env map[string]string, args ...string) (Config, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	if file != "" {
		args = append(args, "--config", write(t, "config.yaml", file))
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(flags)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustLoad(t *testing.T, file string, env map[string]string, args ...string) Config {
	t.Helper()
	cfg, err := load(t, file, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDefaults(t *testing.T) {
	if diff := cmp.Diff(Default(), mustLoad(t, "", nil)); diff != "" {
		t.Errorf("(-default +loaded):\n%s", diff)
	}
}

// The file is weaker than the environment, and that is weaker than flags.
func TestPrecedence(t *testing.T) {
	file := "name: file\nspool: {dir: file, max_events: 1000}\nnats: {url: 'nats://file'}\nlog: {level: debug}\ndrain_timeout: 1m\nops: {pprof: true}\n"
	env := map[string]string{"MGW_NAME": "env", "MGW_SPOOL_DIR": "env", "MGW_SPOOL_MAX_BYTES": "2000000", "MGW_NATS_URL": ""}
	got := mustLoad(t, file, env, "--name=flag", "--upstream.idle_timeout=9s")
	want := Default()
	want.Name = "flag"
	want.Spool = Spool{Dir: "env", MaxEvents: 1000, MaxBytes: 2_000_000}
	want.NATS.URL = "nats://file" // empty in the environment is not set
	want.Log.Level = slog.LevelDebug
	want.DrainTimeout = time.Minute
	want.Ops.Pprof = true
	want.Upstream.IdleTimeout = 9 * time.Second
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A flag that is given wins even if it says what the default says.
func TestFlagWithDefaultValue(t *testing.T) {
	got := mustLoad(t, "ops: {pprof: true}\napi: {listen: ':1'}", nil, "--ops.pprof=false", "--api.listen=:8080")
	if got.Ops.Pprof || got.API.Listen != ":8080" {
		t.Errorf("got %+v, %+v; want what the flags say", got.Ops, got.API)
	}
	if got := mustLoad(t, "", nil, "--ops.pprof"); !got.Ops.Pprof {
		t.Error("a flag without value is not true")
	}
}

// Every setting can be given in each of the three ways.
func TestEverySettingEverywhere(t *testing.T) {
	values := map[reflect.Type]string{
		reflect.TypeFor[string](): "x", reflect.TypeFor[Secret](): "x", reflect.TypeFor[time.Duration](): "7s",
		reflect.TypeFor[int64](): "77", reflect.TypeFor[bool](): "true", reflect.TypeFor[slog.Level](): "WARN",
	}
	visit := func(cfg Config, f func(key, text string)) {
		eachSetting(reflect.ValueOf(cfg), "", func(key string, v reflect.Value, _ string) {
			if key == "" || strings.HasSuffix(key, ".") {
				t.Errorf("setting %q has no name", key)
			}
			if !strings.HasSuffix(key, "_file") || v.Kind() != reflect.String { // a secret's file would be read
				f(key, values[v.Type()])
			}
		})
	}
	given := func(cfg Config) map[string]string {
		got := map[string]string{}
		eachSetting(reflect.ValueOf(cfg), "", func(key string, v reflect.Value, _ string) { got[key] = fmt.Sprint(v.Interface()) })
		return got
	}
	var args []string
	env := map[string]string{}
	var file strings.Builder
	visit(Default(), func(key, text string) {
		args = append(args, "--"+key+"="+text)
		env["MGW_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = text
	})
	all := map[string]any{}
	visit(Default(), func(key, text string) {
		group, name, nested := strings.Cut(key, ".")
		if !nested {
			all[key] = text
			return
		}
		if all[group] == nil {
			all[group] = map[string]any{}
		}
		all[group].(map[string]any)[name] = text //nolint:forcetypeassert // just made
	})
	if err := json.NewEncoder(&file).Encode(all); err != nil { // which is YAML too
		t.Fatal(err)
	}
	byFlags := given(mustLoad(t, "", nil, args...))
	byFile := given(mustLoad(t, file.String(), nil))
	byEnv := given(mustLoad(t, "", env))
	if diff := cmp.Diff(byFlags, byFile); diff != "" {
		t.Errorf("(-flags +file):\n%s", diff)
	}
	if diff := cmp.Diff(byFlags, byEnv); diff != "" {
		t.Errorf("(-flags +environment):\n%s", diff)
	}
	defaults := given(Default())
	visit(Default(), func(key, _ string) {
		if byFlags[key] == defaults[key] && byFlags[key] != "[hidden]" {
			t.Errorf("%s is still %q", key, defaults[key])
		}
	})
}

func TestRefusedFiles(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"unknown key", "nickname: x", "nickname"},
		{"unknown key within", "spool: {dri: x}", "dri"},
		{"a group that is none", "spool: x", "spool"},
		{"no duration", "drain_timeout: soon", "drain_timeout"},
		{"no number", "spool: {max_events: many}", "max_events"},
		{"no level", "log: {level: loud}", "level"},
		{"no YAML", "name: [", "config"},
	}
	for _, tt := range tests {
		if _, err := load(t, tt.file, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want an error that names %s", tt.name, err, tt.want)
		}
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--config", filepath.Join(t.TempDir(), "missing.yaml")}); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(flags); err == nil {
		t.Error("a file that is not there is no error")
	}
	if err := flags.Parse([]string{"--nonsense=1"}); err == nil {
		t.Error("an unknown flag is no error")
	}
}

func TestSecretFiles(t *testing.T) {
	pepper := write(t, "pepper", "pepper of the fleet\r\n")
	got := mustLoad(t, "secrets: {pepper_file: '"+pepper+"'}", map[string]string{"MGW_NATS_PASSWORD_FILE": write(t, "password", " spaces stay \n")})
	if got.Secrets.Pepper != "pepper of the fleet" || got.NATS.Password != " spaces stay " {
		t.Errorf("got %q and %q", string(got.Secrets.Pepper), string(got.NATS.Password))
	}
	_, err := load(t, "secrets: {pepper_file: '"+pepper+"', pepper: other, fleet_key_file: /nowhere}", nil)
	for _, want := range []string{"both secrets.pepper and secrets.pepper_file", "secrets.fleet_key_file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q in it", err, want)
		}
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	cfg := Default()
	cfg.Secrets.Pepper, cfg.Secrets.FleetKey, cfg.NATS.Password = "hush-1", "hush-2", "hush-3"
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", slog.Any("config", cfg), slog.Any("secret", cfg.Secrets.Pepper))
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", slog.Any("config", cfg), slog.Any("secret", cfg.Secrets.Pepper))
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	for _, printed := range []string{
		log.String(), string(text), fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), fmt.Sprintf("%q %x", cfg.NATS.Password, cfg.NATS.Password),
		flags.FlagUsages(), fmt.Sprint(cfg.Validate()),
	} {
		if strings.Contains(printed, "hush") || strings.Contains(printed, fmt.Sprintf("%x", "hush")) {
			t.Errorf("a secret prints: %s", printed)
		}
	}
}

// valid is a configuration without fault.
func valid() Config {
	cfg := Default()
	cfg.NATS.URL = "nats://127.0.0.1:4222"
	cfg.Secrets.Pepper = "sixteen bytes are enough"
	cfg.Secrets.FleetKey = Secret(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	return cfg
}

func TestValidate(t *testing.T) {
	t.Parallel()
	cfg := valid()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil || cfg.Name != host {
		t.Errorf("got %v, name %q; want none, and the host's name", err, cfg.Name)
	}
	if key, err := cfg.Secrets.FleetKey.Key(); err != nil || len(key) != 32 {
		t.Errorf("fleet key: %v, %v", key, err)
	}
	tests := []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.NATS.URL = "" }, "nats.url"},
		{func(c *Config) { c.Secrets.Pepper = "fifteen bytes  " }, "secrets.pepper"},
		{func(c *Config) { c.Secrets.FleetKey = "" }, "secrets.fleet_key: is not set"},
		{func(c *Config) { c.Secrets.FleetKey = "c2hvcnQ=" }, "secrets.fleet_key: is not 32 bytes"},
		{func(c *Config) { c.Secrets.FleetKey = "?" }, "secrets.fleet_key: is not 32 bytes"},
		{func(c *Config) { c.Spool.Dir = "" }, "spool.dir"},
		{func(c *Config) { c.Spool.MaxEvents = 99 }, "spool.max_events"},
		{func(c *Config) { c.Spool.MaxBytes = 1<<20 - 1 }, "spool.max_bytes"},
		{func(c *Config) { c.Upstream.TotalTimeout = 0 }, "upstream.total_timeout"},
		{func(c *Config) { c.Upstream.TotalTimeout = maxTotal + 1 }, "upstream.total_timeout"},
		{func(c *Config) { c.Upstream.ConnectTimeout = 0 }, "a time limit of upstream"},
		{func(c *Config) { c.Upstream.FirstByteTimeout = -1 }, "a time limit of upstream"},
		{func(c *Config) { c.Upstream.IdleTimeout = 0 }, "a time limit of upstream"},
		{func(c *Config) { c.API.BodyTimeout = 0 }, "api.body_timeout"},
		{func(c *Config) { c.DrainTimeout = -1 }, "drain_timeout"},
		{func(c *Config) { c.ShutdownTimeout = 0 }, "shutdown_timeout"},
	}
	for _, tt := range tests {
		cfg := valid()
		tt.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v; want one fault that names %s", err, tt.want)
		}
	}
	// All faults are told at once.
	var none Config
	if got := strings.Count(none.Validate().Error(), "\n") + 1; got != 10 {
		t.Errorf("%d faults of nothing; want 10:\n%v", got, none.Validate())
	}
}

func TestEverySettingIsExplained(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s says nothing of itself", f.Name)
		}
	})
	if got := flags.Lookup("log.level").DefValue; got != slog.LevelInfo.String() {
		t.Errorf("the default of log.level is shown as %q", got)
	}
}
