// Package gwctl owns the operator's command line over the admin API.
//
// The commands are derived from the API's own document, so that an operation
// that is added there is a command here; by hand are only those that do more than one
// call: contexts, catalog files and the doctor. It has no rules of the product: whatever it can
// do, the admin API does.
package gwctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl/access"
	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/render"
	"modelgateway/shared/apidoc"
)

// Config is what the tool works with.
type Config struct {
	In       io.Reader
	Out, Err io.Writer
	// EnvFunc is os.Getenv.
	EnvFunc func(string) string
	// Dir is where relative names start and the development stack is looked for.
	Dir     string
	Version string
	// Document describes the API.
	Document *apidoc.Document
	// DiagnoseFunc looks at servers without a control plane; nil if the build cannot.
	DiagnoseFunc func(context.Context, Direct) *diagnosis.Report
	// FirstPause is how long the first repetition of a call waits; zero takes the default.
	FirstPause time.Duration
}

// tool is one run.
type tool struct {
	cfg  Config
	doc  *apidoc.Document
	root *cobra.Command

	// The values of the flags of every command.
	wish    access.Wish
	output  string
	columns []string
	timeout time.Duration
	verbose bool
	// begun is set once the command line was understood.
	begun bool
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, cfg Config, args []string) int {
	t := newTool(cfg)
	t.root.SetArgs(args)
	err := t.root.ExecuteContext(ctx)
	if err != nil && !t.begun {
		err = &usageError{err}
	}
	if err != nil {
		report(cfg.Err, err)
	}
	if _, usage := errors.AsType[*usageError](err); usage {
		fmt.Fprintln(cfg.Err, "Try --help.")
	}
	return exitCode(err)
}

func newTool(cfg Config) *tool {
	t := &tool{cfg: cfg, doc: cfg.Document}
	t.root = &cobra.Command{
		Use:   "gwctl",
		Short: "Operate a model gateway",
		Long: "Operate a model gateway over its admin API.\n\n" +
			"Exit codes: 0 done, 1 failure, 2 wrong usage, 3 not found, 4 refused, 5 not authorized, 6 conflict, 7 not reached in time, " +
			"10 `catalog diff` found a difference.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return t.begin() },
	}
	t.root.SetIn(cfg.In)
	t.root.SetOut(cfg.Out)
	t.root.SetErr(cfg.Err)
	t.addGlobalFlags()
	t.root.AddCommand(t.contextCommand(), t.catalogCommand(), t.doctorCommand(), t.versionCommand())
	t.addOperations()
	describe(t.root)
	return t
}

func (t *tool) addGlobalFlags() {
	flags := t.root.PersistentFlags()
	flags.StringVar(&t.wish.Context, "context", "", "`name` of the context to use ("+access.ContextVariable+")")
	flags.StringVar(&t.wish.Server, "server", "", "`address` of the admin API ("+access.ServerVariable+")")
	flags.StringVar(&t.wish.TokenFile, "token-file", "", "`file` that holds the token ("+access.TokenFileVariable+"; or "+access.TokenVariable+")")
	flags.BoolVar(&t.wish.Dev, "dev", false, "use the stack that make run has started in this repository")
	flags.StringVarP(&t.output, "output", "o", string(render.Table), "`form` of the output: "+strings.Join(render.Formats, ", "))
	flags.StringSliceVar(&t.columns, "columns", nil, "`names` of the columns of a table, such as id,balance.available")
	flags.DurationVar(&t.timeout, "request-timeout", time.Minute, "longest wait for the beginning of an answer, repetitions included")
	flags.BoolVarP(&t.verbose, "verbose", "v", false, "tell what is sent and answered, with request ids and ETags")
	t.complete(t.root, "output", render.Formats)
	t.failOn(t.root.RegisterFlagCompletionFunc("context", t.completeContext))
}

// failOn is for mistakes in the commands themselves.
func (t *tool) failOn(err error) {
	if err != nil {
		panic(err)
	}
}

// reserved tells whether a flag's name belongs to the tool.
func (t *tool) reserved(name string) bool {
	return slices.Contains([]string{"help", "data", "all", "accept"}, name) || t.root.PersistentFlags().Lookup(name) != nil
}

// complete offers words for a flag.
func (t *tool) complete(cmd *cobra.Command, flag string, words []string) {
	t.failOn(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// begin runs before every command, when its arguments are known to be right.
func (t *tool) begin() error {
	if !slices.Contains(render.Formats, t.output) {
		return fmt.Errorf("--output %s: there are %s", t.output, strings.Join(render.Formats, ", "))
	}
	t.begun = true
	return nil
}

// addOperations derives a command of every operation that has none yet.
func (t *tool) addOperations() {
	derived := names(t.doc)
	for _, op := range t.doc.Operations {
		name := derived[op.ID]
		group := t.group(name.group, op)
		if find(group, name.verb) == nil {
			group.AddCommand(t.command(op, name))
		}
		for _, other := range aliases {
			if other.matches(op) {
				t.group(other.name.group, op).AddCommand(t.command(op, other.name))
			}
		}
	}
}

// alias is a second name of an operation.
type alias struct {
	name commandName
	// words are in the id of the operation.
	words []string
}

var aliases = []alias{
	{commandName{"keys", "rotate-master"}, []string{"rotate", "master"}},
}

func (a *alias) matches(op *apidoc.Operation) bool {
	id := strings.Split(kebab(op.ID), "-")
	return op.Method != http.MethodGet && !slices.ContainsFunc(a.words, func(word string) bool { return !slices.Contains(id, word) })
}

// group finds or makes a command that holds others.
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

// newGroup is a command that does nothing by itself.
func newGroup(name, about string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: about, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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

// client reaches the server that is meant.
func (t *tool) client() (*call.Client, error) {
	path, err := access.DefaultPath(t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}
	wish := t.wish
	wish.Dir = t.cfg.Dir
	where, err := access.Find(path, wish, t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}
	transport, err := where.HTTP(t.cfg.EnvFunc)
	if err != nil {
		return nil, &usageError{err}
	}
	c := &call.Client{
		Server: where.Server, HTTP: transport, Agent: "gwctl/" + t.cfg.Version, Timeout: t.timeout, FirstPause: t.cfg.FirstPause,
		TokenFunc: func(ctx context.Context) (string, error) { return where.Token(ctx, t.cfg.EnvFunc) },
	}
	if t.verbose {
		c.NoteFunc = t.say
	}
	return c, nil
}

// say tells people something beside the output.
func (t *tool) say(format string, args ...any) { fmt.Fprintf(t.cfg.Err, format+"\n", args...) }

func (t *tool) writer() *render.Writer {
	return &render.Writer{Out: t.cfg.Out, Doc: t.doc, Format: render.Format(t.output), Columns: t.columns}
}

// stream copies an answer that is no JSON as it comes.
func (t *tool) stream(body io.Reader) error {
	if _, err := io.Copy(t.cfg.Out, body); err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	return nil
}

// readData reads what --data names.
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
