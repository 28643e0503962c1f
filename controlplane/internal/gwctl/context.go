package gwctl

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/gwctl/access"
)

// contextCommand returns the commands for the file of contexts.
func (t *tool) contextCommand() *cobra.Command {
	group := newGroup("context", "Contexts: named servers and the sources of their tokens")
	group.Long = "Named servers and the sources of their tokens. The file is $GWCTL_CONFIG, or modelgateway/contexts.yaml in the " +
		"configuration directory.\n" +
		"It contains no tokens, only where to find them, and only you may have access to it."
	group.AddCommand(t.contextList(), t.contextUse(), t.contextAdd(), t.contextRemove())
	return group
}

// edit loads the file, changes it and writes it.
func (t *tool) edit(change func(*access.File) error) error {
	path, err := access.DefaultPath(t.cfg.EnvFunc)
	if err != nil {
		return &usageError{err}
	}
	f, err := access.Load(path)
	if err != nil {
		return &usageError{err}
	}
	if err := change(f); err != nil {
		return err
	}
	return f.Save(path)
}

func (t *tool) contextList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the contexts",
		Args:    cobra.NoArgs,
		Example: "  gwctl context list",
		RunE: func(*cobra.Command, []string) error {
			path, err := access.DefaultPath(t.cfg.EnvFunc)
			if err != nil {
				return &usageError{err}
			}

			f, err := access.Load(path)
			if err != nil {
				return &usageError{err}
			}

			type row struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
				Server  string `json:"server"`
				Token   string `json:"token"`
			}

			rows := []row{}
			for _, name := range f.Names() {
				c := f.Contexts[name]
				rows = append(rows, row{name, name == f.Current, c.Server, c.Source()})
			}

			return t.show(map[string]any{"data": rows}, "name", "current", "server", "token")
		},
	}
}

func (t *tool) contextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use <name>",
		Short:             "Set the current context",
		Args:              cobra.ExactArgs(1),
		Example:           "  gwctl context use production",
		ValidArgsFunction: t.completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return t.edit(func(f *access.File) error {
				if _, known := f.Contexts[args[0]]; !known {
					return usagef("unknown context %q", args[0])
				}
				f.Current = args[0]
				return nil
			})
		},
	}
}

func (t *tool) contextAdd() *cobra.Command {
	var c access.Context
	var address string
	cmd := &cobra.Command{
		Use:     "add <name>",
		Short:   "Add or replace a context",
		Args:    cobra.ExactArgs(1),
		Example: "  gwctl context add production --address https://admin.example.com --token-command 'pass show gateway'",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Server, c.TokenFile = address, t.target.TokenFile
			if c.TokenFile != "" {
				c.TokenFile = t.path(c.TokenFile)
			}
			if err := c.Validate(); err != nil {
				return &usageError{err}
			}
			if c.TokenFile != "" {
				if _, err := c.Token(cmd.Context(), t.cfg.EnvFunc); err != nil {
					return &usageError{err} // a wrong path would show at the next command only
				}
			}
			return t.edit(func(f *access.File) error {
				f.Contexts[args[0]] = c
				if f.Current == "" {
					f.Current = args[0]
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "`address` of the admin API (required)")
	cmd.Flags().StringVar(&c.TokenEnv, "token-env", "", "environment `variable` with the token")
	cmd.Flags().StringVar(&c.TokenCommand, "token-command", "", "shell `command` that prints the token")
	cmd.Flags().StringVar(&c.CAFile, "ca-file", "", "`file` with the CA certificates of the server")

	return cmd
}

func (t *tool) contextRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "remove <name>",
		Short:             "Remove a context",
		Args:              cobra.ExactArgs(1),
		Example:           "  gwctl context remove old",
		ValidArgsFunction: t.completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return t.edit(func(f *access.File) error {
				if _, known := f.Contexts[args[0]]; !known {
					return usagef("unknown context %q", args[0])
				}
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current = ""
				}
				return nil
			})
		},
	}
}

// versionCommand prints the version.
func (t *tool) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Args:    cobra.NoArgs,
		Example: "  gwctl version",
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintln(t.cfg.Out, "gwctl", t.cfg.Version)
			return nil
		},
	}
}

// show writes a value that does not come from the server.
func (t *tool) show(value any, columns ...string) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("show: %w", err)
	}
	w := t.writer()
	if len(w.Columns) == 0 {
		w.Columns = columns
	}
	return w.Show(nil, text)
}

// path returns the absolute name of a file.
func (t *tool) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(t.cfg.Dir, name)
}
