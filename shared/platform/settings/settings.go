// Package settings loads the settings of a program into a struct: from a YAML
// file, from the environment and from flags. Flags override the environment,
// which overrides the file, which overrides the defaults.
//
// The struct is the only list of the settings. Each field has a tag
// `mapstructure:"name"` and, unless it is a struct itself, a tag
// `usage:"sentence"`. The usage of a required one has the sentence "Required."; others
// have a tag `when:"reason"` to touch them. The names of nested fields joined by dots
// are the key of a setting: `spool.dir` in the file is the flag --spool.dir and the environment
// variable MGW_SPOOL_DIR. Every Secret x can be given by x_file instead, which names
// a file that holds x.
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

// fileSuffix ends the key that names a secret's file.
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
		if s.isSecret() {
			flags.String(s.key+fileSuffix, "", "File that holds "+s.key+".")
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
	bind := func(key string) {
		errs = append(errs, v.BindEnv(key, variable(key)))
		if f := flags.Lookup(key); f != nil && f.Changed {
			v.Set(key, f.Value.String())
		}
	}
	for _, s := range settings {
		bind(s.key)
		if s.isSecret() {
			bind(s.key + fileSuffix)
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

	all := v.AllSettings()
	secretFiles := takeSecretFiles(settings, all)
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result:           cfg,
		ErrorUnused:      true,
		WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc(),
		),
	})
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if err := decoder.Decode(all); err != nil {
		return fmt.Errorf("config: %w", err)
	}

	return readSecretFiles(settings, secretFiles)
}

// takeSecretFiles removes the names of the files of secrets from what was read, and
// returns them by the keys of the secrets.
func takeSecretFiles(settings []setting, read map[string]any) map[string]string {
	files := map[string]string{}
	for _, s := range settings {
		if !s.isSecret() {
			continue
		}
		section, path := read, strings.Split(s.key+fileSuffix, ".")
		for _, name := range path[:len(path)-1] {
			section, _ = section[name].(map[string]any)
		}
		last := path[len(path)-1]
		if name, given := section[last]; given {
			files[s.key] = fmt.Sprint(name)
			delete(section, last)
		}
	}
	return files
}

// readSecretFiles sets each secret that a file holds to the text of the file, without
// line breaks at its end.
func readSecretFiles(settings []setting, files map[string]string) error {
	var errs []error
	for _, s := range settings {
		file := files[s.key]
		if file == "" {
			continue
		}

		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("config: %s: %w", s.key+fileSuffix, err))
		case s.value.String() != "":
			errs = append(errs, fmt.Errorf("config: both %s and %s are set", s.key, s.key+fileSuffix))
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
	when  string
	value reflect.Value
}

// variable returns the name of the environment variable of a key.
func variable(key string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func (s *setting) isSecret() bool { return s.value.Type() == reflect.TypeFor[Secret]() }

// defaultText returns the value as help and reference show it: nothing for a
// secret and for a text that is not set.
func (s *setting) defaultText() string {
	if s.isSecret() {
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
			all = append(all, setting{key, tag.Get("usage"), tag.Get("when"), f})
		}
	}
	return all
}
