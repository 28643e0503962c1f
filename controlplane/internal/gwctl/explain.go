package gwctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/gwctl/call"
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
	return printUsage(t.cfg.Out, &u)
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
		fmt.Fprintf(t.cfg.Out, "Short of %s (%s): wanted %s, available %s, reserved by others %s.\n",
			s.Pool, strings.ReplaceAll(s.Reason, "_", " "), s.Wanted, s.Available, s.Reserved)
		return t.explainLimit(ctx, s)
	}

	return nil
}

// explainLimit prints which limit refused a request, and what it is now.
func (t *tool) explainLimit(ctx context.Context, s *adminclient.Short) error {
	switch {
	case s.LimitID == nil && s.LimitScope != nil:
		fmt.Fprintf(t.cfg.Out, "They are the %s of the %s.\n", s.Pool, *s.LimitScope)
		return nil
	case s.LimitID == nil:
		return nil
	case strings.HasPrefix(*s.LimitID, "key_"):
		fmt.Fprintf(t.cfg.Out, "It is the spend limit of the key %s.\n", *s.LimitID)
		return nil
	}

	fmt.Fprintf(t.cfg.Out, "It is limit %s of the %s%s.\n", *s.LimitID, *s.LimitScope, untilText(s.LimitResetsAt))
	var l adminclient.SpendLimit
	if err := t.getJSON(ctx, "/admin/v1/limits/"+url.PathEscape(*s.LimitID), &l); err != nil {
		return err
	}

	name := ""
	if l.Name != nil {
		name = strconv.Quote(*l.Name) + ", "
	}
	fmt.Fprintf(t.cfg.Out, "Now: %s%s in each window of the period %s", name, l.Amount, l.Window.Period)
	if w := l.Current; w != nil {
		fmt.Fprintf(t.cfg.Out, "; of %s in the current one, %s is spent, %s reserved, %s left%s", w.Amount, w.Spent, w.Reserved, w.Left, untilText(w.EndsAt))
	}
	if l.RemovedAt != nil {
		fmt.Fprintf(t.cfg.Out, "; removed at %s", l.RemovedAt.Format(time.RFC3339))
	}
	fmt.Fprintln(t.cfg.Out, ".")

	return nil
}

// untilText says when a window ends, or nothing if it does not.
func untilText(ends *time.Time) string {
	if ends == nil {
		return ""
	}
	return ", whose window ends at " + ends.UTC().Format(time.RFC3339)
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

// printUsage prints the receipt, the hold and the routes of a request.
func printUsage(to io.Writer, u *adminclient.UsageDetail) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(
		out,
		"%s %s: %s of %s as %s, %d ms\n\n",
		u.RequestID,
		u.Status,
		u.Model,
		u.AccountID,
		u.Format,
		u.FinishedAt.Sub(u.StartedAt).Milliseconds(),
	)
	r := &u.Receipt
	for _, line := range r.Lines {
		fmt.Fprintf(out, "%s\t%d\tx %s / %d\t= %s\n", line.Line, line.Quantity, line.UnitPrice, line.Per, line.Amount)
	}

	fmt.Fprintf(out, "list %s x multiplier %s\t\t\t= %s %s\n\n", r.ListCost, r.PriceMultiplier, r.Cost, r.Currency)
	fmt.Fprintf(
		out,
		"Held %s %s while it ran, and released when it was settled. Price version %d; quantities: %s.\n",
		r.Reservation,
		r.Currency,
		r.PriceVersion,
		r.Rule,
	)

	if len(u.Attempts) == 0 {
		if u.Route != nil {
			fmt.Fprintf(out, "The first route, %s, served it.\n", *u.Route)
		}
		return flush(out)
	}

	fmt.Fprintln(out, "\nRoutes:")
	for _, a := range u.Attempts {
		why, with := "", ""
		for _, text := range []*string{a.Skipped, a.Class} {
			if text != nil {
				why = *text
			}
		}
		if a.Credential != nil {
			with = "credential " + *a.Credential
		}
		took := ""
		if a.MS != nil {
			took = fmt.Sprintf("%d ms", *a.MS)
		}
		fmt.Fprintf(out, "  %s\t%s\t%s\t%s\t%s\n", a.Route, a.Result, why, with, took)
	}

	return flush(out)
}

func flush(out *tabwriter.Writer) error {
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
