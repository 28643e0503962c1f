package gwctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/render"
)

// addExplain adds `usage explain`, which explains a past request by its id and any other by flags, as `requests explain`.
func (t *tool) addExplain() {
	for _, op := range t.doc.Operations {
		if op.ID != "explainRequest" {
			continue
		}

		cmd := t.command(op, commandName{"usage", "explain"})
		of, example := cmd.RunE, cmd.Example
		cmd.Use, cmd.Args = "explain [request_id]", cobra.MaximumNArgs(1)
		cmd.Short = "Explain a past request, or what would happen to one now"
		cmd.Long = "Explain a past request by its id: its receipt, what was held, and which routes were skipped and tried and why; " +
			"or, for a refused one, what was short.\n" +
			"With flags instead, explain what would happen to such a request now. Only the last refusal in an hour of each account, " +
			"key and code is known by its id."
		cmd.Example = "  gwctl usage explain req_0192f0c1d2e37a4b8c5d6e7f8091a2b7\n" + example
		cmd.Annotations = nil // `requests explain` is the command of the operation
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return of(cmd, nil)
			}
			return t.explainPast(cmd.Context(), args[0])
		}
		find(t.root, "usage").AddCommand(cmd)
	}
}

// explainPast prints the explanation of a request that has ended.
func (t *tool) explainPast(ctx context.Context, id string) error {
	var u adminclient.UsageDetail
	err := t.getJSON(ctx, "/admin/v1/usage/"+url.PathEscape(id), &u)
	if problem, ok := errors.AsType[*call.ProblemError](err); ok && problem.Status == http.StatusNotFound {
		return t.explainRefused(ctx, id, err)
	}
	if err != nil {
		return err
	}
	if t.isMachine() {
		return t.show(u)
	}
	return render.Usage(t.cfg.Out, &u)
}

// explainRefused prints why a request was refused; notFound is the error for an unknown id.
func (t *tool) explainRefused(ctx context.Context, id string, notFound error) error {
	var refusals adminclient.RefusalList
	if err := t.getJSON(ctx, "/admin/v1/refusals?"+url.Values{"request_id": {id}}.Encode(), &refusals); err != nil {
		return err
	}
	if len(refusals.Data) == 0 {
		return notFound
	}

	r := refusals.Data[0]
	if t.isMachine() {
		return t.show(r)
	}

	fmt.Fprintf(t.cfg.Out, "%s was refused with %d %s before any provider was called; it cost nothing.\n", id, r.Status, r.Code)
	if r.Reason != nil {
		fmt.Fprintf(t.cfg.Out, "Why: %s.\n", strings.ReplaceAll(*r.Reason, "_", " "))
	}
	if s := r.Short; s != nil {
		return t.explainLimit(ctx, s)
	}

	return nil
}

// explainLimit prints which limit refused a request, and what it is now.
func (t *tool) explainLimit(ctx context.Context, s *adminclient.Short) error {
	render.Short(t.cfg.Out, s)
	if s.LimitID == nil || strings.HasPrefix(*s.LimitID, "key_") {
		return nil
	}
	var l adminclient.SpendLimit
	if err := t.getJSON(ctx, "/admin/v1/limits/"+url.PathEscape(*s.LimitID), &l); err != nil {
		return err
	}
	render.Limit(t.cfg.Out, &l)
	return nil
}

// getJSON reads a document of the API.
func (t *tool) getJSON(ctx context.Context, path string, to any) error {
	client, err := t.client()
	if err != nil {
		return err
	}

	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("query of %s: %w", path, err)
	}

	answer, err := client.Do(ctx, call.Request{
		Method: http.MethodGet,
		Path:   path,
		Query:  values,
		Header: http.Header{"Accept": {mediaJSON}},
	})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := readResponse(answer.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("decode the response: %w", err)
	}

	return nil
}
