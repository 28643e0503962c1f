// Package access finds the server and the token that gwctl uses: in the file of named contexts, in the environment and
// in flags.
//
// The file contains no token, only the source of one: a file, an environment variable or a command. It must still be
// private, because gwctl runs the commands in it.
package access

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Context is a server and the source of its token.
type Context struct {
	// Server is the address of the admin API without /admin/v1.
	Server string `yaml:"server"`
	// At most one of these names the source of the token. Without them the token is in GWCTL_TOKEN or GWCTL_TOKEN_FILE.
	TokenFile    string `yaml:"token_file,omitempty"`
	TokenEnv     string `yaml:"token_env,omitempty"`
	TokenCommand string `yaml:"token_command,omitempty"`
	// CAFile has the CA certificates of the server; empty means those of the machine.
	CAFile string `yaml:"ca_file,omitempty"`

	// token is the token itself, if it is known.
	token string
}

// File is the file of contexts.
type File struct {
	// Current is the context in use; empty if none is.
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts"`
}

// DefaultPath returns the path of the file: $GWCTL_CONFIG, or a file in the user's configuration directory.
func DefaultPath(env func(string) string) (string, error) {
	if path := env("GWCTL_CONFIG"); path != "" {
		return path, nil
	}
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		home := env("HOME")
		if home == "" {
			return "", errors.New("neither GWCTL_CONFIG nor HOME is set")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "modelgateway", "contexts.yaml"), nil
}

// Load reads the file. A missing file has no contexts.
func Load(path string) (*File, error) {
	f := &File{Contexts: map[string]Context{}}
	text, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}

	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}

	return f, nil
}

// Save replaces the file atomically. Only the user can read it.
func (f *File) Save(path string) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}

	file, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // has mode 0600
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // fails after the rename
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}

	return nil
}

// Validate returns all errors of a context, joined.
func (c *Context) Validate() error {
	var faults []error
	if u, err := url.Parse(c.Server); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		faults = append(faults, fmt.Errorf("the server %q is not an address such as https://admin.example.com", c.Server))
	}
	sources := 0
	for _, source := range []string{c.TokenFile, c.TokenEnv, c.TokenCommand} {
		if source != "" {
			sources++
		}
	}
	if sources > 1 {
		faults = append(faults, errors.New("the token has more than one source"))
	}
	return errors.Join(faults...)
}

// Source describes the source of the token.
func (c *Context) Source() string {
	switch {
	case c.TokenFile != "":
		return "file " + c.TokenFile
	case c.TokenEnv != "":
		return "variable " + c.TokenEnv
	case c.TokenCommand != "":
		return "command " + c.TokenCommand
	default:
		return "variable " + TokenVariable
	}
}

// readPrivate reads a file. It is an error if other users have access to the file.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation and the file
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so other users have access; run chmod 600 %s", path, mode, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation and the file
	}
	return text, nil
}

// The environment variables.
const (
	// ContextVariable has the name of the context.
	ContextVariable = "GWCTL_CONTEXT"
	// ServerVariable overrides the address of the context.
	ServerVariable = "GWCTL_SERVER"
	// TokenVariable has a token. It overrides the source of the context.
	TokenVariable = "GWCTL_TOKEN" //nolint:gosec // G101: the name of a variable
	// TokenFileVariable has the name of a file with the token.
	TokenFileVariable = "GWCTL_TOKEN_FILE" //nolint:gosec // G101: the name of a variable
)

// Selection has the global flags that select a server. Empty members select nothing.
type Selection struct {
	Context, Server, TokenFile string
	// Dev selects the dev stack of the directory Dir or of one above it.
	Dev bool
	Dir string
}

// Find returns the selected server. Flags take precedence over the environment, and the environment over the current
// context.
func Find(path string, selection Selection, env func(string) string) (Context, error) {
	if selection.Dev {
		return devStack(selection.Dir)
	}

	f, err := Load(path)
	if err != nil {
		return Context{}, err
	}

	c, err := f.choose(path, selection, env)
	if err != nil {
		return Context{}, err
	}

	switch {
	case selection.TokenFile != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = selection.TokenFile, "", ""
	case env(TokenVariable) != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = "", TokenVariable, ""
	case env(TokenFileVariable) != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = env(TokenFileVariable), "", ""
	}

	return c, c.Validate()
}

// choose returns the selected context. If only an address is selected, the context has no token, because the server may
// not be the one that the token of the current context is for.
func (f *File) choose(path string, selection Selection, env func(string) string) (Context, error) {
	server := cmp.Or(selection.Server, env(ServerVariable))
	name := cmp.Or(selection.Context, env(ContextVariable))
	if name == "" && server == "" {
		name = f.Current
	}

	var c Context
	if name != "" {
		var known bool
		if c, known = f.Contexts[name]; !known {
			return Context{}, fmt.Errorf("unknown context %q in %s; `gwctl context list` lists the contexts", name, path)
		}
	} else if server == "" {
		return Context{}, fmt.Errorf(
			"no server is selected: use --dev, --server or %s, or add a context with `gwctl context add`",
			ServerVariable,
		)
	}

	c.Server = cmp.Or(server, c.Server)
	return c, nil
}

// Names returns the names of the contexts, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }
