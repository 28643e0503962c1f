// Package access owns how the operator's tool reaches a server: the file of
// named contexts, what the environment and flags say instead, and where a token comes from.
//
// The file holds no token, only where to find one: a file, an environment
// variable or a command. It is private all the same, since a command in it is run.
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

// Context is a server and where its token is.
type Context struct {
	// Server is the address of the admin API without /admin/v1.
	Server string `yaml:"server"`
	// One of these names the token; none leaves it to the environment.
	TokenFile    string `yaml:"token_file,omitempty"`
	TokenEnv     string `yaml:"token_env,omitempty"`
	TokenCommand string `yaml:"token_command,omitempty"`
	// CAFile holds the certificates that the server's is checked against; empty means the machine's.
	CAFile string `yaml:"ca_file,omitempty"`

	// token is known without looking anywhere.
	token string
}

// File is the file of contexts.
type File struct {
	// Current is the context in use; empty if none is.
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts"`
}

// DefaultPath is where the file is: $GWCTL_CONFIG, or the user's configuration
// directory.
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

// Load reads the file. One that is not there holds no contexts.
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

// Save writes the file, readable for the user alone, so that a reader sees the
// old text or the new.
func (f *File) Save(path string) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // is made with mode 0600
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // gone already when all went well
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// Validate reports everything that is wrong with a context.
func (c *Context) Validate() error {
	var faults []error
	if u, err := url.Parse(c.Server); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		faults = append(faults, fmt.Errorf("the server %q is no address such as https://admin.example.com", c.Server))
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

// Source says where the token comes from, for people.
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

// readPrivate reads a file that nobody else may read or write.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the operation and the file already
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so that others can use it: chmod 600 %s", path, mode, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the operation and the file already
	}
	return text, nil
}

// The names in the environment.
const (
	// ContextVariable names the context to use.
	ContextVariable = "GWCTL_CONTEXT"
	// ServerVariable overrides the address.
	ServerVariable = "GWCTL_SERVER"
	// TokenVariable holds a token and overrides every other source.
	TokenVariable = "GWCTL_TOKEN" //nolint:gosec // G101: the name of a variable
	// TokenFileVariable names a file with the token.
	TokenFileVariable = "GWCTL_TOKEN_FILE" //nolint:gosec // G101: the name of a variable
)

// Wish is what flags ask for; empty members ask for nothing.
type Wish struct {
	Context, Server, TokenFile string
	// Dev takes the stack of `make run` of the directory Dir or one above it.
	Dev bool
	Dir string
}

// Find settles which server is meant: flags before the environment before the
// file's current context.
func Find(path string, wish Wish, env func(string) string) (Context, error) {
	if wish.Dev {
		return devStack(wish.Dir)
	}
	f, err := Load(path)
	if err != nil {
		return Context{}, err
	}
	c, err := f.choose(path, wish, env)
	if err != nil {
		return Context{}, err
	}
	switch {
	case wish.TokenFile != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = wish.TokenFile, "", ""
	case env(TokenVariable) != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = "", TokenVariable, ""
	case env(TokenFileVariable) != "":
		c.TokenFile, c.TokenEnv, c.TokenCommand = env(TokenFileVariable), "", ""
	}
	return c, c.Validate()
}

// choose returns the context that is named, or one of an address alone. An
// address alone does not get the token of the current context: it may be
// somebody else's.
func (f *File) choose(path string, wish Wish, env func(string) string) (Context, error) {
	server := cmp.Or(wish.Server, env(ServerVariable))
	name := cmp.Or(wish.Context, env(ContextVariable))
	if name == "" && server == "" {
		name = f.Current
	}
	var c Context
	if name != "" {
		var known bool
		if c, known = f.Contexts[name]; !known {
			return Context{}, fmt.Errorf("there is no context %q in %s; `gwctl context list` shows those there are", name, path)
		}
	} else if server == "" {
		return Context{}, fmt.Errorf("no server is named: use --dev, --server or %s, or add a context with `gwctl context add`", ServerVariable)
	}
	c.Server = cmp.Or(server, c.Server)
	return c, nil
}

// Names are the names of the contexts, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }
