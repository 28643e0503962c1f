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

// catalogCommand returns the commands for catalog files.
func (t *tool) catalogCommand() *cobra.Command {
	group := newGroup("catalog", "Export, compare and apply the catalog as a file: providers, models, prices, routes, grants")
	group.AddCommand(t.catalogDiff(), t.catalogApply(), t.catalogExport(), t.catalogImport())
	return group
}

const variablesHelp = "\n\nThe secrets and parameters of credentials may contain environment variables, such as ${OPENAI_API_KEY}; " +
	"other values may not."

func (t *tool) catalogDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff <file>",
		Short: "Show the changes that a catalog file would make",
		Args:  cobra.ExactArgs(1),
		Long: "Show the changes that a catalog file would make and the accounts they affect. The exit code is 0 without changes " +
			"and 10 with changes." + variablesHelp,
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
		Use:   "apply <file>",
		Short: "Replace the catalog by a file, after showing the changes",
		Args:  cobra.ExactArgs(1),
		Long: "Replace the catalog by a file. Objects that are not in the file are removed; if the file has no grants, the grants are " +
			"kept.\n" +
			"The changes are shown first and must be confirmed. If the catalog is changed in the meantime, nothing is " +
			"applied." + variablesHelp,
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
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "apply without confirmation")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until every live proxy uses the new catalog")

	return cmd
}

func (t *tool) catalogExport() *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the catalog as a file for apply",
		Args:  cobra.NoArgs,
		Long: "Write the catalog as a file for apply. The file does not contain the secrets of credentials; applying it keeps " +
			"the existing ones.",
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

			text, err := readResponse(answer.Body)
			if err != nil {
				return err
			}

			return t.writer().Show(nil, text)
		},
	}
}

// isMachine reports whether a program reads the output.
func (t *tool) isMachine() bool {
	return render.Format(t.output) != render.Table && render.Format(t.output) != render.Wide
}

// catalogPlan has the changes that a file would make.
type catalogPlan struct {
	// document is the expanded file; etag is the ETag of the catalog that it was compared with.
	document []byte
	etag     string
	answer   []byte
	changes  catalogfile.Changes
}

// planCatalog gets the changes that a file would make from the server.
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
		return nil, withLines(err, text)
	}
	defer func() { _ = answer.Body.Close() }()
	plan.etag = answer.Header.Get("ETag")
	if plan.answer, err = readResponse(answer.Body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(plan.answer, &plan.changes); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}

	return plan, nil
}

// withLines adds the lines of the file to the members that the server refuses.
func withLines(err error, file []byte) error {
	if problem, ok := errors.AsType[*call.ProblemError](err); ok {
		for i, f := range problem.Fields {
			if line := catalogfile.Line(file, f.Field); line > 0 {
				problem.Fields[i].Field = fmt.Sprintf("line %d: %s", line, f.Field)
			}
		}
	}
	return err
}

func (t *tool) putCatalog(ctx context.Context, plan *catalogPlan, query url.Values) (*http.Response, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	r := call.Request{
		Method: http.MethodPut,
		Path:   catalogPath,
		Query:  query,
		Body:   plan.document,
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

// confirm asks for confirmation.
func (t *tool) confirm(file string) error {
	if file == "-" {
		return usagef("a catalog from standard input cannot be confirmed; add --yes")
	}
	fmt.Fprint(t.cfg.Err, "\nApply these changes? [y/N] ")
	line, err := bufio.NewReader(t.cfg.In).ReadString('\n')
	if err != nil && line == "" {
		return usagef("standard input ended before the confirmation; add --yes to apply without one")
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &exitError{ExitFailure, errors.New("not applied")}
	}
	return nil
}

// applyCatalog applies the changes of a plan. If the catalog was changed in the meantime, the server refuses.
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
	text, err := readResponse(answer.Body)
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
			return fmt.Errorf("decode the response: %w", err)
		}
		fmt.Fprintf(t.cfg.Out, "Applied: revision %d, %d changes.\n", applied.Revision, len(applied.Changes))
	}

	return pending(answer, text)
}
