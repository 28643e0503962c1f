// Package settings loads the settings of a program into a struct: from a YAML
// file, from the environment and from flags. Flags override the environment,
// which overrides the file, which overrides the defaults.
//
// The struct is the only list of the settings. Each field has a tag
// `mapstructure:"name"` and, unless it is a struct itself, a tag
// `usage:"sentence"`. The names of nested fields joined by dots are the key of a
// setting: `spool.dir` in the file is the flag --spool.dir and the environment
// variable MGW_SPOOL_DIR. Every Secret x needs a string setting x_file beside
// it, which names a file that holds x.
package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// envPrefix begins the name of every environment variable.
const envPrefix = "MGW"

// fileSuffix ends the key of the setting that names a secret's file.
const fileSuffix = "_file"

// AddFlags adds the flag --config and one flag for every setting of defaults,
// which is a struct.
func AddFlags(flags *pflag.FlagSet, defaults any) {
	flags.String("config", "", "YAML `file` with settings")
	for _, s := range list(reflect.ValueOf(defaults)) {
		flags.String(s.key, fmt.Sprint(s.value.Interface()), s.usage)
		f := flags.Lookup(s.key)
		f.DefValue = s.defaultText()
		if s.value.Kind() == reflect.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

// Load overwrites the defaults in cfg, a pointer to a struct, with the settings
// of the file that --config names, of the environment, of the flags that were
// given, and of the files that hold secrets. A key of the file that is not a
// setting is an error. Load does not validate values.
func Load(flags *pflag.FlagSet, cfg any) error {
	v := viper.New()
	settings := list(reflect.ValueOf(cfg).Elem())
	var errs []error
	for _, s := range settings {
		errs = append(errs, v.BindEnv(s.key, s.variable()))
		if f := flags.Lookup(s.key); f != nil && f.Changed {
			v.Set(s.key, f.Value.String())
		}
	}

	if f := flags.Lookup("config"); f != nil && f.Value.String() != "" {
		v.SetConfigFile(f.Value.String())
		v.SetConfigType("yaml")
		errs = append(errs, v.ReadInConfig())
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("config: read: %w", err)
	}

	if err := v.UnmarshalExact(cfg, viper.DecodeHook(mapstructure.ComposeDecodeHookFunc(
		mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc(),
	))); err != nil {
		return fmt.Errorf("config: %w", err)
	}

	return readSecretFiles(settings)
}

// readSecretFiles sets each secret whose x_file setting names a file to the
// text of the file, without line breaks at its end.
func readSecretFiles(settings []setting) error {
	byKey := make(map[string]reflect.Value, len(settings))
	for _, s := range settings {
		byKey[s.key] = s.value
	}

	var errs []error
	for _, s := range settings {
		secret, ok := reflect.TypeAssert[Secret](s.value)
		if !ok {
			continue
		}

		fileKey := s.key + fileSuffix
		file := byKey[fileKey].String() // panics if the struct has no such setting
		if file == "" {
			continue
		}

		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("config: %s: %w", fileKey, err))
		case secret != "":
			errs = append(errs, fmt.Errorf("config: both %s and %s are set", s.key, fileKey))
		default:
			s.value.SetString(strings.TrimRight(string(text), "\r\n"))
		}
	}

	return errors.Join(errs...)
}

// setting is one leaf of a struct of settings.
type setting struct {
	key   string
	usage string
	value reflect.Value
}

// variable returns the name of the environment variable.
func (s *setting) variable() string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// defaultText returns the value as help and reference show it: nothing for a
// secret and for a text that is not set.
func (s *setting) defaultText() string {
	if _, isSecret := reflect.TypeAssert[Secret](s.value); isSecret {
		return ""
	}
	return fmt.Sprint(s.value.Interface())
}

// list returns the settings of a struct in the order of its fields.
func list(v reflect.Value) []setting { return appendSettings(nil, v, "") }

func appendSettings(all []setting, v reflect.Value, prefix string) []setting {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := prefix + tag.Get("mapstructure")
		if f := v.Field(i); f.Kind() == reflect.Struct {
			all = appendSettings(all, f, key+".")
		} else {
			all = append(all, setting{key, tag.Get("usage"), f})
		}
	}
	return all
}
