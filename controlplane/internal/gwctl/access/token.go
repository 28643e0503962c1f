package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Token returns the token. Errors never contain it.
func (c *Context) Token(ctx context.Context, env func(string) string) (string, error) {
	token, err := c.find(ctx, env)
	if err != nil {
		return "", &TokenError{err}
	}
	if token = strings.TrimSpace(token); token == "" || strings.ContainsAny(token, "\r\n") {
		return "", &TokenError{fmt.Errorf("the %s must have one line with the token", c.Source())}
	}
	return token, nil
}

// TokenError means that there is no token.
type TokenError struct{ Err error }

// Error names the source of the token.
func (e *TokenError) Error() string { return "no token: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *TokenError) Unwrap() error { return e.Err }

func (c *Context) find(ctx context.Context, env func(string) string) (string, error) {
	switch {
	case c.token != "":
		return c.token, nil
	case c.TokenFile != "":
		text, err := readPrivate(home(c.TokenFile, env))
		return string(text), err
	case c.TokenCommand != "":
		return run(ctx, c.TokenCommand)
	default:
		name := cmp.Or(c.TokenEnv, TokenVariable)
		if env(name) == "" {
			if c.TokenEnv == "" {
				return "", fmt.Errorf("%s is not set; use --token-file or GWCTL_TOKEN_FILE for a token in a file", name)
			}
			return "", fmt.Errorf("%s is not set", name)
		}
		return env(name), nil
	}
}

// home replaces a leading ~ by the user's home directory.
func home(path string, env func(string) string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(env("HOME"), rest)
	}
	return path
}

// run runs a command of the contexts file and returns its output, the token. The command may use the terminal.
func run(ctx context.Context, command string) (string, error) {
	//nolint:gosec // G204: the user's own command, from a file that only the user can write
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("command %q: %w", command, err)
	}
	return out.String(), nil
}

// devStack returns the running dev stack of a repository.
func devStack(dir string) (Context, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Context{}, fmt.Errorf("dev stack: %w", err)
	}

	for at := dir; ; at = filepath.Dir(at) {
		name := filepath.Join(at, ".dev", "stack.json")
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return Context{}, fmt.Errorf("no .dev/stack.json in %s or above it; is `make run` running there?", dir)
		}

		var stack struct {
			AdminURL   string `json:"admin_url"`
			AdminToken string `json:"admin_token"`
		}

		if err := json.Unmarshal(text, &stack); err != nil {
			return Context{}, fmt.Errorf("%s: %w", name, err)
		}

		return Context{Server: stack.AdminURL, token: stack.AdminToken}, nil
	}
}

// HTTP returns a client that trusts the CA certificates of the context.
func (c *Context) HTTP(env func(string) string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CAFile != "" {
		text, err := os.ReadFile(home(c.CAFile, env))
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s contains no certificate", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// A redirect would send the token to another server.
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
