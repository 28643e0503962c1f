package settings

import (
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

// example has a setting of every kind.
type example struct {
	Name  string        `mapstructure:"name"  usage:"Name | label."`
	Wait  time.Duration `mapstructure:"wait"  usage:"Wait."`
	Level slog.Level    `mapstructure:"level" usage:"Level."`
	Group group         `mapstructure:"group"`
}

type group struct {
	Count int    `mapstructure:"count"    usage:"Count."`
	Size  int64  `mapstructure:"size"     usage:"Size."`
	On    bool   `mapstructure:"on"       usage:"On."`
	Key   Secret `mapstructure:"key"      usage:"Key."`
	Pin   Secret `mapstructure:"pin"      usage:"Pin."`
}

func defaults() example {
	return example{Name: "default", Wait: time.Minute, Group: group{Count: 3, Size: 4}}
}

// load loads an example from a file, if there is one, an environment and arguments.
func load(t *testing.T, file string, env map[string]string, args ...string) (example, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	if file != "" {
		args = append(args, "--config", writeFile(t, "config.yaml", file))
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg := defaults()
	AddFlags(flags, cfg)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	err := Load(flags, &cfg)
	return cfg, err
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustLoad(t *testing.T, file string, env map[string]string, args ...string) example {
	t.Helper()
	cfg, err := load(t, file, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestUnsetSettingsKeepTheirDefaults(t *testing.T) {
	if diff := cmp.Diff(defaults(), mustLoad(t, "", nil)); diff != "" {
		t.Errorf("(-default +loaded):\n%s", diff)
	}
}

func TestFlagsOverrideEnvironmentOverridesFile(t *testing.T) {
	file := "name: file\nwait: 1s\nlevel: debug\ngroup: {count: 10, size: 10, on: true}\n"
	env := map[string]string{"MGW_NAME": "env", "MGW_GROUP_COUNT": "20", "MGW_WAIT": ""} // an empty variable counts as not set
	got := mustLoad(t, file, env, "--name=flag")
	want := example{Name: "flag", Wait: time.Second, Level: slog.LevelDebug, Group: group{Count: 20, Size: 10, On: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlagWithTheDefaultValueOverridesTheFile(t *testing.T) {
	got := mustLoad(t, "name: file\ngroup: {on: true}", nil, "--group.on=false", "--name=default")
	if got.Group.On || got.Name != "default" {
		t.Errorf("got %+v; want the values of the flags", got)
	}
	if got := mustLoad(t, "", nil, "--group.on"); !got.Group.On {
		t.Error("--group.on without a value is not true")
	}
}

func TestEverySettingCanComeFromEverySource(t *testing.T) {
	values := map[string]string{"name": "x", "wait": "7s", "level": "WARN", "group.count": "7", "group.size": "7", "group.on": "true", "group.key": "x", "group.pin": "x"}
	var args []string
	env, top, nested := map[string]string{}, map[string]any{}, map[string]any{}
	for key, value := range values {
		args = append(args, "--"+key+"="+value)
		env["MGW_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = value
		if _, name, ok := strings.Cut(key, "."); ok {
			nested[name] = value
		} else {
			top[key] = value
		}
	}
	top["group"] = nested
	file, err := json.Marshal(top) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	want := example{Name: "x", Wait: 7 * time.Second, Level: slog.LevelWarn, Group: group{Count: 7, Size: 7, On: true, Key: "x", Pin: "x"}}
	for source, got := range map[string]example{"flags": mustLoad(t, "", nil, args...), "file": mustLoad(t, string(file), nil), "environment": mustLoad(t, "", env)} {
		if got != want {
			t.Errorf("%s: got %#v; want %#v", source, got, want)
		}
	}
}

func TestInvalidFilesAreRejected(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"unknown key", "nickname: x", "nickname"},
		{"unknown nested key", "group: {cuont: x}", "cuont"},
		{"a text for a group", "group: x", "group"},
		{"not a duration", "wait: soon", "wait"},
		{"not a number", "group: {count: many}", "count"},
		{"not a level", "level: loud", "level"},
		{"not YAML", "name: [", "config"},
	}
	for _, tt := range tests {
		if _, err := load(t, tt.file, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want an error that names %s", tt.name, err, tt.want)
		}
	}
	if _, err := load(t, "", nil, "--config", filepath.Join(t.TempDir(), "missing.yaml")); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestSecretsAreReadFromFiles(t *testing.T) {
	key := writeFile(t, "key", "the key\r\n")
	got := mustLoad(t, "group: {key_file: '"+key+"'}", map[string]string{"MGW_GROUP_PIN_FILE": writeFile(t, "pin", " spaces stay \n")})
	if got.Group.Key != "the key" || got.Group.Pin != " spaces stay " {
		t.Errorf("got %q and %q", string(got.Group.Key), string(got.Group.Pin))
	}
	_, err := load(t, "group: {key_file: '"+key+"', key: other, pin_file: /nowhere}", map[string]string{"MGW_GROUP_PIN_FILE": ""})
	for _, want := range []string{"both group.key and group.key_file are set", "group.pin_file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q in it", err, want)
		}
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	cfg := defaults()
	cfg.Group.Key = "hush-1"
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", slog.Any("config", cfg), slog.Any("secret", cfg.Group.Key))
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", slog.Any("config", cfg), slog.Any("secret", cfg.Group.Key))
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags, cfg)
	for _, printed := range []string{
		log.String(), string(text), fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), fmt.Sprintf("%q %x", cfg.Group.Key, cfg.Group.Key),
		flags.FlagUsages(), Reference(cfg),
	} {
		if strings.Contains(printed, "hush") || strings.Contains(printed, fmt.Sprintf("%x", "hush")) {
			t.Errorf("a secret is printed: %s", printed)
		}
	}
}

func TestSecretKey(t *testing.T) {
	t.Parallel()
	for _, text := range []Secret{"", "c2hvcnQ=", "?"} {
		if _, err := text.Key(); err == nil {
			t.Errorf("%q is accepted as a key", string(text))
		}
	}
	if key, err := Secret(strings.Repeat("A", 43) + "=\n").Key(); err != nil || len(key) != 32 {
		t.Errorf("got %d bytes, %v; want 32", len(key), err)
	}
}

func TestReferenceListsEverySetting(t *testing.T) {
	t.Parallel()
	got := Reference(defaults())
	for _, want := range []string{"| `name` | `MGW_NAME` | `default` | Name \\| label. |  |\n", "| `level` | `MGW_LEVEL` | `INFO` | Level. |  |\n", "| `group.key`, `group.key_file` | `MGW_GROUP_KEY` |  | Key. |  |\n", "| `group.on` | `MGW_GROUP_ON` | `false` | On. |  |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if rows, want := strings.Count(got, "\n"), 2+len(list(reflect.ValueOf(defaults()))); rows != want {
		t.Errorf("%d lines; want %d", rows, want)
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	const document = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
	got, err := ReplaceSection(document, "x", "new\n")
	if want := "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := ReplaceSection(document, "y", ""); err == nil {
		t.Error("no error for a missing section")
	}
}
