package customerpages

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/console/kit"
)

// inputTime is how browsers write the time of a field of the kind "datetime-local".
const inputTime = "2006-01-02T15:04"

// newLimit is the form that adds a limit to an account, or to the project or key of it that the query names.
func newLimit(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	of := &adminclient.SpendLimit{AccountID: a.ID, ProjectID: kit.Optional(r.Text("project_id")), KeyID: kit.Optional(r.Text("key_id"))}
	names, err := kit.Names(r, []string{ownerID(of)})
	if err != nil {
		return nil, err
	}

	owner := ownerLink(of, names[ownerID(of)])
	return &kit.Form{
		Title:   "Add a limit of the " + owner.Text,
		Crumbs:  limitsAbove(a),
		Submit:  "Add limit",
		Back:    owner.URL,
		Command: kit.Command("limits create "+a.ID, "--project-id", r.Text("project_id"), "--key-id", r.Text("key_id")),
		Fields:  limitFields(a.Balance.Currency),
		Effects: []string{"Requests that begin afterwards count. What was spent before does not."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body, err := readLimit(in)
			if err != nil {
				return nil, err
			}
			body.ProjectID, body.KeyID = of.ProjectID, of.KeyID
			params := &adminclient.CreateLimitParams{IdempotencyKey: in.Key(), Wait: kit.Wait()}
			made, err := r.API.CreateLimit(r.Context(), a.ID, params, body)
			if err != nil {
				return nil, err
			}
			return kit.Go(kit.Path("limits", made.Value.ID), kit.Applied("The limit was added.", made.Header))
		},
	}, nil
}

// limitFields are those of a new limit.
func limitFields(currency string) []kit.Field {
	calendar := []string{"day", "week", "month"}
	return []kit.Field{
		{Name: "name", Label: "Name", Hint: "It helps to recognize the limit."},
		{Name: "amount", Label: "Amount", Mono: true, Required: true, Unit: currency, Hint: "What requests may cost in each window."},
		{
			Name:     "window.period",
			Label:    "Window",
			Kind:     "select",
			Required: true,
			Value:    "month",
			Options: []kit.Option{
				{Value: "month", Text: "a month of the calendar"},
				{Value: "week", Text: "a week of the calendar, from Monday"},
				{Value: "day", Text: "a day of the calendar"},
				{Value: "fixed", Text: "hours, one window after the other"},
				{Value: "first_use", Text: "hours, from the first request after the window before"},
				{Value: "forever", Text: "one that never ends"},
			},
			Hint: "It can not be changed later.",
		},
		{
			Name:     "window.time_zone",
			Label:    "Time zone",
			Required: true,
			Value:    "UTC",
			When:     calendar,
			Hint:     "A name such as Europe/Moscow.",
		},
		{
			Name:  "window.length_seconds",
			Label: "Length",
			Mono:  true,
			Unit:  "hours",
			When:  []string{"fixed", "first_use"},
			Hint:  "1 to 744, which is 31 days.",
		},
		{
			Name:        "window.anchor",
			Label:       "A window begins at (UTC)",
			Mono:        true,
			Placeholder: "1970-01-01T00:00",
			When:        []string{"fixed"},
		},
		{
			Name:  "models",
			Label: "Models",
			Kind:  "area",
			Rows:  3,
			Mono:  true,
			Hint:  "Ids, one in a line, or their beginnings with a * at the end. Empty means all models.",
		},
	}
}

// readLimit reads the fields of limitFields. Those of another window than the one that was chosen are not shown, and not read.
func readLimit(in *kit.Input) (adminclient.LimitCreate, error) {
	body := adminclient.LimitCreate{
		Name:   in.Optional("name"),
		Amount: in.Text("amount"),
		Models: strings.Fields(in.Text("models")),
		Window: adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriod(in.Text("window.period"))},
	}

	w := &body.Window
	var wrong, unread error
	switch w.Period {
	case adminclient.LimitPeriodPeriodFixed, adminclient.LimitPeriodPeriodFirstUse:
		var hours *int64
		if hours, wrong = in.Int("window.length_seconds"); hours != nil {
			w.LengthSeconds = new(min(max(*hours, -1), 1e6) * int64(time.Hour/time.Second))
		}
		if w.Period == adminclient.LimitPeriodPeriodFixed {
			w.Anchor, unread = kit.Moment("window.anchor", in.Text("window.anchor"))
		}
	case adminclient.LimitPeriodPeriodForever:
	default:
		w.TimeZone = in.Optional("window.time_zone")
	}
	return body, errors.Join(wrong, unread)
}

// editLimit is the form that changes a limit. Its window never changes.
func editLimit(r *kit.Request) (*kit.Form, error) {
	l, a, match, err := limitOf(r)
	if err != nil {
		return nil, err
	}

	name := ""
	if l.Name != nil {
		name = *l.Name
	}
	fields := limitFields(a.Balance.Currency)
	fields[0].Value, fields[1].Value = name, l.Amount
	models := fields[len(fields)-1]
	models.Value = strings.Join(l.Models, "\n")
	back := kit.Path("limits", l.ID)
	return &kit.Form{
		Title:   "Change the limit “" + l.Title + "”",
		Crumbs:  limitsAbove(a),
		Submit:  "Save",
		Back:    back,
		Match:   match,
		Command: "gwctl limits update " + l.ID,
		Fields:  []kit.Field{fields[0], fields[1], models},
		Effects: []string{
			"A change of the amount changes the current window, too.",
			"The windows (" + l.Period() + ") stay as they are: add another limit for others.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			return changeLimit(r, in, l.ID, "The limit was saved.", adminclient.LimitPatch{
				Name:   new(in.Text("name")),
				Amount: new(in.Text("amount")),
				Models: optional.Of(strings.Fields(in.Text("models"))),
			})
		},
	}, nil
}

func changeLimit(r *kit.Request, in *kit.Input, id, done string, patch adminclient.LimitPatch) (*kit.Page, error) {
	changed, err := r.API.UpdateLimit(r.Context(), id, &adminclient.UpdateLimitParams{Wait: kit.Wait(), IfMatch: in.Match()}, patch)
	if err != nil {
		return nil, err
	}
	return kit.Go(kit.Path("limits", id), kit.Applied(done, changed.Header))
}

// raiseLimit is the form that raises a limit until a time.
func raiseLimit(r *kit.Request) (*kit.Form, error) {
	l, a, match, err := limitOf(r)
	if err != nil {
		return nil, err
	}

	until, hint := time.Now().Add(24*time.Hour), "In a day."
	if l.Current != nil && l.Current.EndsAt != nil {
		until, hint = *l.Current.EndsAt, "The end of the current window."
	}
	to := ""
	if l.RaisedTo != nil {
		to, until, hint = *l.RaisedTo, *l.RaisedUntil, "The end of the raise that holds now."
	}
	currency := a.Balance.Currency
	return &kit.Form{
		Title:   "Raise the limit “" + l.Title + "”",
		Crumbs:  limitsAbove(a),
		Submit:  "Raise limit",
		Back:    kit.Path("limits", l.ID),
		Match:   match,
		Command: "gwctl limits update " + l.ID + " --raised-to AMOUNT --raised-until TIME",
		Fields: []kit.Field{
			{
				Name:     "raised_to",
				Label:    "Raise to",
				Mono:     true,
				Required: true,
				Unit:     currency,
				Value:    to,
				Hint:     fmt.Sprintf("Now %s %s: %s spent, %s reserved, %s left.", l.InForce, currency, l.Spent, l.Reserved, l.Left),
			},
			{
				Name:     "raised_until",
				Label:    "Until (UTC)",
				Kind:     "datetime-local",
				Required: true,
				Value:    until.UTC().Add(time.Minute - 1).Format(inputTime),
				Hint:     hint,
			},
		},
		Effects: []string{
			"The " + l.Owner.Text + " may spend so much in the current window, and in those that begin until then.",
			"Then " + l.Amount + " " + currency + " holds again, by itself.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			until, err := kit.Moment("raised_until", in.Text("raised_until"))
			if err != nil {
				return nil, err
			}
			if until == nil {
				return nil, kit.Invalid("raised_until", "is required")
			}
			return changeLimit(r, in, l.ID, "The limit is raised.", adminclient.LimitPatch{
				RaisedTo:    optional.Of(in.Text("raised_to")),
				RaisedUntil: optional.Of(*until),
			})
		},
	}, nil
}

// lowerLimit is the form that ends a raise before its time.
func lowerLimit(r *kit.Request) (*kit.Form, error) {
	l, a, match, err := limitOf(r)
	if err != nil {
		return nil, err
	}
	return &kit.Form{
		Title:   "End the raise of the limit “" + l.Title + "”",
		Crumbs:  limitsAbove(a),
		Submit:  "End the raise",
		Back:    kit.Path("limits", l.ID),
		Match:   match,
		Command: "gwctl limits update " + l.ID + " --raised-to null --raised-until null",
		Effects: []string{
			"The amount " + l.Amount + " " + a.Balance.Currency + " holds again at once.",
			"If more is spent already, requests are refused with 403 until the window ends.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			return changeLimit(r, in, l.ID, "The raise has ended.", adminclient.LimitPatch{
				RaisedTo:    optional.Null[string](),
				RaisedUntil: optional.Null[time.Time](),
			})
		},
	}, nil
}

// resetLimit is the form that forgives what was spent in the current window.
func resetLimit(r *kit.Request) (*kit.Form, error) {
	l, a, _, err := limitOf(r)
	if err != nil {
		return nil, err
	}
	return &kit.Form{
		Title:   "Reset the window of the limit “" + l.Title + "”",
		Crumbs:  limitsAbove(a),
		Submit:  "Reset window",
		Danger:  true,
		Confirm: "reset",
		Back:    kit.Path("limits", l.ID),
		Command: "gwctl limits reset " + l.ID,
		Effects: []string{
			"The " + l.Spent + " " + a.Balance.Currency + " that were spent in the current window do not count any more.",
			"They stay charged to the balance.",
			"What running requests have reserved (" + l.Reserved + " " + a.Balance.Currency + ") counts when they end.",
			"The audit log keeps what was forgiven. It can not be undone.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.ResetLimit(r.Context(), l.ID, &adminclient.ResetLimitParams{Wait: kit.Wait(), IdempotencyKey: in.Key()})
			if err != nil {
				return nil, err
			}
			return kit.Go(kit.Path("limits", l.ID), kit.Applied("The window was reset.", done.Header))
		},
	}, nil
}

// removeLimit is the form that removes a limit.
func removeLimit(r *kit.Request) (*kit.Form, error) {
	l, a, match, err := limitOf(r)
	if err != nil {
		return nil, err
	}
	return &kit.Form{
		Title:   "Remove the limit “" + l.Title + "”",
		Crumbs:  limitsAbove(a),
		Submit:  "Remove limit",
		Danger:  true,
		Confirm: l.Title,
		Back:    kit.Path("limits", l.ID),
		Match:   match,
		Command: "gwctl limits delete " + l.ID,
		Effects: []string{"It holds requests of the " + l.Owner.Text + " no more. Its windows keep their figures."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.DeleteLimit(r.Context(), l.ID, &adminclient.DeleteLimitParams{Wait: kit.Wait(), IfMatch: in.Match()})
			if err != nil {
				return nil, err
			}
			return kit.Go(l.Owner.URL, kit.Applied("The limit was removed.", done.Header))
		},
	}, nil
}
