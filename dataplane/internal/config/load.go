package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// envPrefix stands before every setting in the environment.
const envPrefix = "MGW"

// AddFlags adds a flag for --config and one for every setting.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML `file` with settings")
	defaults := Default()
	eachSetting(reflect.ValueOf(defaults), "", func(key string, value reflect.Value, usage string) {
		flags.String(key, fmt.Sprint(value.Interface()), usage)
		f := flags.Lookup(key)
		if _, level := reflect.TypeAssert[slog.Level](value); value.IsZero() && !level { // the zero level is info
			f.DefValue = "" // nothing to show, or a secret
		}
		if value.Kind() == reflect.Bool {
			f.NoOptDefVal = "true"
		}
	})
}

// Load reads the file that --config names, the environment and the flags that
// were given, and the files that hold secrets. It does not validate.
func Load(flags *pflag.FlagSet) (Config, error) {
	cfg := Default()
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	var faults []error
	eachSetting(reflect.ValueOf(cfg), "", func(key string, _ reflect.Value, _ string) {
		faults = append(faults, v.BindEnv(key))
		if f := flags.Lookup(key); f != nil && f.Changed {
			v.Set(key, f.Value.String())
		}
	})
	if f := flags.Lookup("config"); f != nil && f.Value.String() != "" {
		v.SetConfigFile(f.Value.String())
		v.SetConfigType("yaml")
		faults = append(faults, v.ReadInConfig())
	}
	if err := errors.Join(faults...); err != nil {
		return Config{}, fmt.Errorf("config: read: %w", err)
	}
	if err := v.UnmarshalExact(&cfg, viper.DecodeHook(mapstructure.ComposeDecodeHookFunc(
		mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc(),
	))); err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	return cfg, cfg.readSecrets()
}

// readSecrets takes over secrets from the files that are named for them.
func (c *Config) readSecrets() error {
	var faults []error
	for _, s := range []struct {
		key  string
		file string
		into *Secret
	}{
		{"nats.password", c.NATS.PasswordFile, &c.NATS.Password},
		{"secrets.pepper", c.Secrets.PepperFile, &c.Secrets.Pepper},
		{"secrets.old_peppers", c.Secrets.OldPeppersFile, &c.Secrets.OldPeppers},
		{"secrets.fleet_key", c.Secrets.FleetKeyFile, &c.Secrets.FleetKey},
	} {
		if s.file == "" {
			continue
		}
		text, err := os.ReadFile(s.file)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("config: %s_file: %w", s.key, err))
		case *s.into != "":
			faults = append(faults, fmt.Errorf("config: both %s and %s_file are set", s.key, s.key))
		default:
			*s.into = Secret(strings.TrimRight(string(text), "\r\n"))
		}
	}
	return errors.Join(faults...)
}

// eachSetting calls visit for every leaf of a struct, with its dotted key and
// its usage.
func eachSetting(v reflect.Value, prefix string, visit func(key string, value reflect.Value, usage string)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := prefix + tag.Get("mapstructure")
		if f := v.Field(i); f.Kind() == reflect.Struct {
			eachSetting(f, key+".", visit)
		} else {
			visit(key, f, tag.Get("usage"))
		}
	}
}
