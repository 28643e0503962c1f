package gwctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/catalogfile"
	"modelgateway/controlplane/internal/gwctl/render"
)

const catalogPath = "/admin/v1/catalog"

// catalogCommand keeps the catalog in a file.
func (t *tool) catalogCommand() *cobra.Command {
	group := newGroup("catalog", "Providers, models, prices, routes and grants, as one file")
	group.AddCommand(t.catalogDiff(), t.catalogApply(), t.catalogExport(), t.catalogImport())
	return group
}

const variablesHelp = "\n\nA credential's secret may name variables of the environment, such as ${OPENAI_API_KEY}; nothing else may."

func (t *tool) catalogDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff <file>", Short: "Show what a catalog file would change, and for whom", Args: cobra.ExactArgs(1),
		Long:    "Show what a catalog file would change, and for whom. The exit code is 0 if nothing would change, and 10 if something would." + variablesHelp,
		Example: "  gwctl catalog diff catalog.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := t.planCatalog(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := t.showPlan(plan); err != nil {
				return err
			}
			if plan.changes.Empty() {
				return nil
			}
			return &exitError{code: ExitDiffers}
		},
	}
}

func (t *tool) catalogApply() *cobra.Command {
	var dryRun, yes, wait bool
	cmd := &cobra.Command{
		Use: "apply <file>", Short: "Make the catalog what a file says, after showing what changes", Args: cobra.ExactArgs(1),
		Long: "Make the catalog what a file says. What the file does not name is removed; grants stay if it has none.\n" +
			"What changes is shown first and has to be confirmed. If the catalog changes in between, nothing is applied." + variablesHelp,
		Example:     "  gwctl catalog apply catalog.yaml",
		Annotations: map[string]string{operationAnnotation: "applyCatalog"},
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := t.planCatalog(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if dryRun || !t.isMachine() {
				if err := t.showPlan(plan); err != nil {
					return err
				}
			}
			if dryRun || (plan.changes.Empty() && !t.isMachine()) {
				return nil
			}
			if !yes {
				if err := t.confirm(args[0]); err != nil {
					return err
				}
			}
			return t.applyCatalog(cmd.Context(), plan, wait)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&wait, "wait", false, "end when every live proxy serves by the new catalog")
	return cmd
}

func (t *tool) catalogExport() *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Write the catalog as a file that can be applied again", Args: cobra.NoArgs,
		Long:        "Write the catalog as a file that can be applied again, without the secrets of credentials: applying it keeps those.",
		Example:     "  gwctl catalog export > catalog.yaml",
		Annotations: map[string]string{operationAnnotation: "getCatalog"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := t.client()
			if err != nil {
				return err
			}
			accept := mediaYAML
			if render.Format(t.output) == render.JSON {
				accept = mediaJSON
			}
			answer, err := client.Do(cmd.Context(), call.Request{
				Method: http.MethodGet, Path: catalogPath, Header: http.Header{"Accept": {accept}},
			})
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			if accept == mediaYAML {
				return t.stream(answer.Body)
			}
			text, err := readAnswer(answer.Body)
			if err != nil {
				return err
			}
			return t.writer().Show(nil, text)
		},
	}
}

// isMachine tells whether the output is for a program.
func (t *tool) isMachine() bool {
	return render.Format(t.output) != render.Table && render.Format(t.output) != render.Wide
}

// catalogPlan is what a file would change.
type catalogPlan struct {
	// document is what is sent; etag stands for the catalog that was compared with.
	document []byte
	etag     string
	answer   []byte
	changes  catalogfile.Changes
}

// planCatalog asks the server what a file would change.
func (t *tool) planCatalog(ctx context.Context, file string) (*catalogPlan, error) {
	text, err := t.read(file)
	if err != nil {
		return nil, err
	}
	document, err := catalogfile.Expand(text, t.cfg.EnvFunc)
	if err != nil {
		return nil, usagef("%s: %w", filepath.Base(file), err)
	}
	plan := &catalogPlan{document: document}
	answer, err := t.putCatalog(ctx, plan, url.Values{"dry_run": {"true"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	plan.etag = answer.Header.Get("ETag")
	if plan.answer, err = readAnswer(answer.Body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(plan.answer, &plan.changes); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return plan, nil
}

func (t *tool) putCatalog(ctx context.Context, plan *catalogPlan, query url.Values) (*http.Response, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	r := call.Request{
		Method: http.MethodPut, Path: catalogPath, Query: query, Body: plan.document,
		Header: http.Header{"Content-Type": {mediaYAML}, "Accept": {mediaJSON}},
	}
	if plan.etag != "" {
		r.Header.Set("If-Match", plan.etag)
	}
	return client.Do(ctx, r)
}

func (t *tool) showPlan(plan *catalogPlan) error {
	if t.isMachine() {
		return t.writer().Show(nil, plan.answer)
	}
	return plan.changes.Write(t.cfg.Out)
}

// confirm asks whoever types.
func (t *tool) confirm(file string) error {
	if file == "-" {
		return usagef("a catalog from the standard input needs --yes: there is nobody to ask")
	}
	fmt.Fprint(t.cfg.Err, "\nApply this? [y/N] ")
	line, err := bufio.NewReader(t.cfg.In).ReadString('\n')
	if err != nil && line == "" {
		return usagef("nobody answers; with --yes nobody is asked")
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &exitError{ExitFailure, errors.New("not applied")}
	}
	return nil
}

// applyCatalog applies what was shown: if the catalog is another by now, the
// server refuses.
func (t *tool) applyCatalog(ctx context.Context, plan *catalogPlan, wait bool) error {
	query := url.Values{}
	if wait {
		query.Set("wait", "applied")
	}
	answer, err := t.putCatalog(ctx, plan, query)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := readAnswer(answer.Body)
	if err != nil {
		return err
	}
	if t.isMachine() {
		if err := t.writer().Show(nil, text); err != nil {
			return err
		}
	} else {
		var applied catalogfile.Changes
		if err := json.Unmarshal(text, &applied); err != nil {
			return fmt.Errorf("the answer: %w", err)
		}
		fmt.Fprintf(t.cfg.Out, "Applied: revision %d, %d changes.\n", applied.Revision, len(applied.Changes))
	}
	return pending(answer, text)
}
