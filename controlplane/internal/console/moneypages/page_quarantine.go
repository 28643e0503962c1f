package moneypages

import (
	"encoding/json"
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type quarantineView struct {
	List  *adminclient.QuarantineList
	State string
	Pages kit.Pages
}

// listQuarantine lists usage events that could not be settled, by default those that wait for a person.
func listQuarantine(r *kit.Request) (*kit.Page, error) {
	state := r.Text("state")
	if !r.Form.Has("state") {
		state = string(adminclient.QuarantineStateOpen)
	}

	params := &adminclient.ListQuarantineParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)}
	if state != "" {
		params.State = new(adminclient.QuarantineState(state))
	}

	answer, err := r.API.ListQuarantine(r.Context(), params)
	if err != nil {
		return nil, err
	}

	return &kit.Page{
		Template: "quarantine",
		Title:    "Quarantine",
		Command:  kit.Command("quarantine list", "--state", state),
		Data:     &quarantineView{answer.Value, state, kit.PagesOf(r, answer.Value.NextCursor)},
	}, nil
}

type quarantinedView struct {
	*adminclient.Quarantined
	// AccountID, KeyID and Model are those of the event, if it names them.
	AccountID, KeyID, Model string
}

func quarantined(r *kit.Request) (*adminclient.Quarantined, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, kit.NotFound()
	}
	answer, err := r.API.GetQuarantined(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return kit.Exact(answer)
}

// showQuarantined shows an event with its reason.
func showQuarantined(r *kit.Request) (*kit.Page, error) {
	q, err := quarantined(r)
	if err != nil {
		return nil, err
	}

	v := &quarantinedView{Quarantined: q}
	if event, ok := q.Event.(map[string]any); ok {
		for name, to := range map[string]*string{"account_id": &v.AccountID, "key_id": &v.KeyID, "model": &v.Model} {
			*to, _ = event[name].(string)
		}
	}

	return &kit.Page{
		Template: "quarantined",
		Title:    "Event " + strconv.FormatInt(q.ID, 10),
		Crumbs:   listed,
		Data:     v,
		Command:  "gwctl quarantine get " + strconv.FormatInt(q.ID, 10),
	}, nil
}

var listed = []kit.Link{{Text: "Quarantine", URL: "/console/quarantine"}}

// settle is the form that tries to settle an event again.
func settle(r *kit.Request) (*kit.Form, error) {
	q, err := quarantined(r)
	if err != nil {
		return nil, err
	}

	id := strconv.FormatInt(q.ID, 10)
	back := kit.Path("quarantine", id)
	return &kit.Form{
		Title:   "Settle event " + id,
		Crumbs:  listed,
		Submit:  "Settle",
		Back:    back,
		Command: "gwctl quarantine release " + id,
		Effects: append([]string{
			"The event is settled as it is: its usage record is written and its charge is booked. If the cause still exists, nothing " +
				"changes and the reason is shown.",
		}, charge(q)...),
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			if _, err := r.API.ReleaseQuarantined(
				r.Context(),
				q.ID,
				&adminclient.ReleaseQuarantinedParams{IdempotencyKey: in.Key()},
			); err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The event was settled."))
		},
	}, nil
}

// charge tells the cost that an event names.
func charge(q *adminclient.Quarantined) []string {
	event, ok := q.Event.(map[string]any)
	if !ok {
		return nil
	}
	if cost, ok := event["cost"].(json.Number); ok {
		return []string{"The event names a cost of " + view.Mul(cost.String(), "0.000000001") + "."}
	}
	return nil
}

// dismiss is the form that gives an event up.
func dismiss(r *kit.Request) (*kit.Form, error) {
	q, err := quarantined(r)
	if err != nil {
		return nil, err
	}

	id := strconv.FormatInt(q.ID, 10)
	back := kit.Path("quarantine", id)
	return &kit.Form{
		Title:   "Give up event " + id,
		Crumbs:  listed,
		Submit:  "Give up",
		Danger:  true,
		Confirm: id,
		Back:    back,
		Command: "gwctl quarantine dismiss " + id + " --reason REASON",
		Fields: []kit.Field{{
			Name:     "reason",
			Label:    "Reason",
			Kind:     "area",
			Rows:     2,
			Required: true,
			Hint:     "It stays with the event and in the audit log.",
		}},
		Effects: []string{
			"The request is never charged, and has no usage record. This cannot be undone.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			_, err := r.API.DismissQuarantined(r.Context(), q.ID, &adminclient.DismissQuarantinedParams{IdempotencyKey: in.Key()},
				adminclient.QuarantineDismissal{Reason: in.Text("reason")})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The event was given up."))
		},
	}, nil
}
