// Package gwctl implements the command line tool of operators for the admin API.
//
// The commands are derived from the API document: each operation is a command. Only the commands that are not a single
// call are written by hand: contexts, catalog files and the doctor. All rules of the product are in the admin API.
package gwctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl/access"
	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/render"
	"modelgateway/controlplane/internal/gwctl/revokedirect"
	"modelgateway/shared/platform/apidoc"
)

// Config has the environment of a run.
type Config struct {
	In       io.Reader
	Out, Err io.Writer
	// EnvFunc returns an environment variable, like os.Getenv.
	EnvFunc func(string) string
	// Dir is the directory of relative file names. The dev stack is searched there and above.
	Dir     string
	Version string
	// Document is the API document.
	Document *apidoc.Document
	// DiagnoseFunc checks Postgres and NATS without a control plane; nil if the build does not support it.
	DiagnoseFunc func(context.Context, Direct) *diagnosis.Report
	// RevokeFunc revokes keys by the stream of changes, without a control plane; nil if the build does not support it.
	RevokeFunc revokedirect.Func
	// FirstPause is the pause before the first retry of a call; zero means the default.
	FirstPause time.Duration
}

// tool is one run.
type tool struct {
	cfg  Config
	doc  *apidoc.Document
	root *cobra.Command

	// The values of the global flags.
	target  access.Selection
	output  string
	columns []string
	timeout time.Duration
	verbose bool
	// parsed is set once the command line is known to be valid.
	parsed bool
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, cfg Config, args []string) int {
	t := newTool(cfg)
	t.root.SetArgs(args)
	err := t.root.ExecuteContext(ctx)
	if err != nil && !t.parsed {
		err = &usageError{err}
	}
	if err != nil {
		report(cfg.Err, err)
	}
	if _, usage := errors.AsType[*usageError](err); usage {
		fmt.Fprintln(cfg.Err, "Run the command with --help for its usage.")
	}
	return exitCode(err)
}

func newTool(cfg Config) *tool {
	t := &tool{cfg: cfg, doc: cfg.Document}
	t.root = &cobra.Command{
		Use:     "gwctl",
		Version: cfg.Version,
		Short:   "Operate a model gateway",
		Long: "Operate a model gateway over its admin API.\n\n" +
			"Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 invalid input, 5 not authorized, 6 conflict, " +
			"7 server unavailable or change not yet effective, 10 `catalog diff` found a difference.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return t.begin() },
	}
	t.root.SetIn(cfg.In)
	t.root.SetOut(cfg.Out)
	t.root.SetErr(cfg.Err)
	t.addGlobalFlags()
	t.root.AddCommand(t.contextCommand(), t.catalogCommand(), t.doctorCommand(), t.natsPermissionsCommand(), t.versionCommand())
	t.addOperations()
	t.addExplain()
	t.addRevokeDirect()
	describe(t.root)
	arrange(t.root)

	return t
}

func (t *tool) addGlobalFlags() {
	flags := t.root.PersistentFlags()
	flags.StringVar(&t.target.Context, "context", "", "`name` of the context to use ("+access.ContextVariable+")")
	flags.StringVar(&t.target.Server, "server", "", "`address` of the admin API ("+access.ServerVariable+")")
	flags.StringVar(
		&t.target.TokenFile,
		"token-file",
		"",
		"`file` with the token ("+access.TokenFileVariable+"; or "+access.TokenVariable+")",
	)
	flags.BoolVar(&t.target.Dev, "dev", false, "use the dev stack that make run started in this repository")
	flags.StringVarP(&t.output, "output", "o", string(render.Table), "output `format`: "+strings.Join(render.Formats, ", "))
	flags.StringSliceVar(&t.columns, "columns", nil, "`columns` of a table, such as id,balance.available")
	flags.DurationVar(&t.timeout, "request-timeout", time.Minute, "time limit until the response begins, retries included")
	flags.BoolVarP(&t.verbose, "verbose", "v", false, "print requests and responses with request ids and ETags")
	t.complete(t.root, "output", render.Formats)
	t.failOn(t.root.RegisterFlagCompletionFunc("context", t.completeContext))
}

// failOn panics on errors in the definition of the commands.
func (t *tool) failOn(err error) {
	if err != nil {
		panic(err)
	}
}

// reserved reports whether the tool itself uses the name of a flag.
func (t *tool) reserved(name string) bool {
	return slices.Contains([]string{"help", "data", "all", "accept"}, name) || t.root.PersistentFlags().Lookup(name) != nil
}

// complete registers the completions of a flag.
func (t *tool) complete(cmd *cobra.Command, flag string, words []string) {
	t.failOn(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// begin runs before every command, after its arguments were checked.
func (t *tool) begin() error {
	if !slices.Contains(render.Formats, t.output) {
		return fmt.Errorf("--output %s: must be one of %s", t.output, strings.Join(render.Formats, ", "))
	}
	t.parsed = true
	return nil
}

// addOperations adds a command for every operation without one.
func (t *tool) addOperations() {
	derived := names(t.doc)
	for _, op := range t.doc.Operations {
		name := derived[op.ID]
		group := t.group(name.group, op)
		if find(group, name.verb) == nil {
			group.AddCommand(t.command(op, name))
		}
	}
}

// group returns the group of a name; it adds the group if there is none.
func (t *tool) group(name string, op *apidoc.Operation) *cobra.Command {
	if cmd := find(t.root, name); cmd != nil {
		return cmd
	}
	cmd := newGroup(name, strings.TrimSuffix(cmp.Or(t.doc.Tags[name], op.Summary), "."))
	if single := singular(name); single != name && find(t.root, single) == nil {
		cmd.Aliases = []string{single}
	}
	t.root.AddCommand(cmd)
	return cmd
}

// newGroup returns a command that runs its only command, if that only reads and needs no argument, or prints its help.
func newGroup(name, about string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: about,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if children := cmd.Commands(); len(children) == 1 && children[0].Annotations[readsAnnotation] != "" {
				children[0].SetContext(cmd.Context())
				return children[0].RunE(children[0], nil)
			}
			return cmd.Help()
		},
	}
}

func find(parent *cobra.Command, name string) *cobra.Command {
	for _, cmd := range parent.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	return nil
}

// client returns a client of the selected server.
func (t *tool) client() (*call.Client, error) {
	path, err := access.DefaultPath(t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}

	target := t.target
	target.Dir = t.cfg.Dir
	where, err := access.Find(path, target, t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}

	transport, err := where.HTTP(t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}

	c := &call.Client{
		Server:     where.Server,
		HTTP:       transport,
		Agent:      "gwctl/" + t.cfg.Version,
		Timeout:    t.timeout,
		FirstPause: t.cfg.FirstPause,
		TokenFunc:  func(ctx context.Context) (string, error) { return where.Token(ctx, t.cfg.EnvFunc) },
	}
	if t.verbose {
		c.NoteFunc = t.printErr
	}

	return c, nil
}

// printErr prints a line to the standard error output.
func (t *tool) printErr(format string, args ...any) { fmt.Fprintf(t.cfg.Err, format+"\n", args...) }

func (t *tool) writer() *render.Writer {
	return &render.Writer{
		Out:     t.cfg.Out,
		Doc:     t.doc,
		Format:  render.Format(t.output),
		Columns: t.columns,
	}
}

// stream copies a response that is not JSON as it arrives.
func (t *tool) stream(body io.Reader) error {
	if _, err := io.Copy(t.cfg.Out, body); err != nil {
		return fmt.Errorf("the response is incomplete: %w", err)
	}
	return nil
}

// readData returns the body that --data names.
func (t *tool) readData(data string) ([]byte, error) {
	switch {
	case data == "-" || data == "@-":
		return t.read("-")
	case strings.HasPrefix(data, "@"):
		return t.read(data[1:])
	default:
		return []byte(data), nil
	}
}

// read reads a file, or the standard input for "-".
func (t *tool) read(name string) ([]byte, error) {
	if name == "-" {
		text, err := io.ReadAll(t.cfg.In)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(t.path(name))
	if err != nil {
		return nil, &usageError{err}
	}
	return text, nil
}
