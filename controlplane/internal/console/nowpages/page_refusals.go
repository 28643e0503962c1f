package nowpages

import (
	"cmp"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type refusalsView struct {
	AccountID, ProjectID, KeyID, Code, From, To string
	List                                        *adminclient.RefusalList
	Names                                       map[string]string
	// Chart has the refusals of the last day by hour and code; nil if there is a filter, because it is about all.
	Chart *chart
	Pages kit.Pages
}

// local writes a time in UTC as inputs of browsers have it. A chart puts times with their zone into the address.
func local(utc string) string { return strings.TrimSuffix(utc, "Z") }

// Limit is the link of the limit that was short, nil if it was none.
func (v *refusalsView) Limit(s *adminclient.Short) *kit.Link {
	return limitLink(s, v.Names)
}

// limitLink says which limit was short, by its name if that is known.
func limitLink(s *adminclient.Short, names map[string]string) *kit.Link {
	switch {
	case s.LimitID == nil:
		return nil
	case strings.HasPrefix(*s.LimitID, "key_"):
		return &kit.Link{Text: "spend limit of the key", URL: kit.Path("keys", *s.LimitID)}
	}
	text := "limit " + cmp.Or(names[*s.LimitID], view.ShortID(*s.LimitID))
	if s.LimitScope != nil {
		text += " of the " + string(*s.LimitScope)
	}
	return &kit.Link{Text: text, URL: kit.Path("limits", *s.LimitID)}
}

// Any reports whether there is a filter.
func (v *refusalsView) Any() bool { return v.AccountID+v.ProjectID+v.KeyID+v.Code+v.From+v.To != "" }

// listRefusals shows requests that were refused before a provider was called, by hour.
func listRefusals(r *kit.Request) (*kit.Page, error) {
	v := &refusalsView{
		AccountID: r.Text("account_id"),
		ProjectID: r.Text("project_id"),
		KeyID:     r.Text("key_id"),
		Code:      r.Text("code"),
		From:      local(r.Text("from")),
		To:        local(r.Text("to")),
	}

	params := &adminclient.ListRefusalsParams{
		AccountID: kit.Optional(v.AccountID),
		ProjectID: kit.Optional(v.ProjectID),
		KeyID:     kit.Optional(v.KeyID),
		Code:      kit.Optional(v.Code),
		Cursor:    kit.Cursor(r),
		Limit:     new(kit.PageSize),
	}

	var err error
	if params.From, err = kit.Moment("from", v.From); err != nil {
		return nil, err
	}
	if params.To, err = kit.Moment("to", v.To); err != nil {
		return nil, err
	}

	answer, err := r.API.ListRefusals(r.Context(), params)
	if err != nil {
		return nil, err
	}

	v.List, v.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	var ids []string
	for _, refusal := range answer.Value.Data {
		for _, id := range []*string{refusal.AccountID, refusal.KeyID} {
			if id != nil {
				ids = append(ids, *id)
			}
		}
		if s := refusal.Short; s != nil && s.LimitID != nil {
			ids = append(ids, *s.LimitID)
		}
	}

	if v.Names, err = kit.Names(r, ids); err != nil {
		return nil, err
	}

	if !v.Any() && v.Pages.First == "" {
		now := time.Now().UTC()
		v.Chart = refusalsByCode("Refusals of the last day by hour")
		v.Chart.read(r, period{from: now.Add(-24 * time.Hour), to: now, step: adminclient.GetTrafficSeriesParamsStepN1H})
	}

	return &kit.Page{
		Template: "refusals",
		Title:    "Refusals",
		Data:     v,
		Command: kit.Command(
			"refusals list",
			"--account-id",
			v.AccountID,
			"--project-id",
			v.ProjectID,
			"--key-id",
			v.KeyID,
			"--code",
			v.Code,
			"--from",
			v.From,
			"--to",
			v.To,
		),
	}, nil
}
