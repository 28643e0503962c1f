package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"modelgateway/controlplane/adminclient"
)

// Short prints what a refused request was short of, and which limit that is.
func Short(out io.Writer, s *adminclient.Short) {
	fmt.Fprintf(
		out,
		"Short of %s (%s): wanted %s, available %s, reserved by others %s.\n",
		s.Pool,
		strings.ReplaceAll(s.Reason, "_", " "),
		s.Wanted,
		s.Available,
		s.Reserved,
	)

	switch {
	case s.LimitID == nil && s.LimitScope != nil:
		fmt.Fprintf(out, "They are the %s of the %s.\n", s.Pool, *s.LimitScope)
	case s.LimitID == nil:
	case strings.HasPrefix(*s.LimitID, "key_"):
		fmt.Fprintf(out, "It is the spend limit of the key %s.\n", *s.LimitID)
	default:
		fmt.Fprintf(out, "It is limit %s of the %s%s.\n", *s.LimitID, *s.LimitScope, untilText(s.LimitResetsAt))
	}
}

// Limit prints what a limit is now.
func Limit(out io.Writer, l *adminclient.SpendLimit) {
	name := ""
	if l.Name != nil {
		name = strconv.Quote(*l.Name) + ", "
	}

	fmt.Fprintf(out, "Now: %s%s in each window of the period %s", name, l.Amount, l.Window.Period)
	if w := l.Current; w != nil {
		fmt.Fprintf(
			out,
			"; of %s in the current one, %s is spent, %s reserved, %s left%s",
			w.Amount,
			w.Spent,
			w.Reserved,
			w.Left,
			untilText(w.EndsAt),
		)
	}
	if l.RemovedAt != nil {
		fmt.Fprintf(out, "; removed at %s", l.RemovedAt.Format(time.RFC3339))
	}
	fmt.Fprintln(out, ".")
}

// untilText says when a window ends, or nothing if it does not.
func untilText(ends *time.Time) string {
	if ends == nil {
		return ""
	}
	return ", whose window ends at " + ends.UTC().Format(time.RFC3339)
}

// Usage prints the receipt, the hold and the routes of a request.
func Usage(to io.Writer, u *adminclient.UsageDetail) error {
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
