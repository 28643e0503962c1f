package systempages

import (
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type auditView struct {
	List  *adminclient.AuditList
	Pages kit.Pages
	// Names are those of accounts and keys by their ids.
	Names  map[string]string
	Filter struct{ Object, Actor, Action, RequestID, From, To string }
}

// listAudit shows the changes that were made, newest first.
func listAudit(r *kit.Request) (*kit.Page, error) {
	data := &auditView{}
	f := &data.Filter
	f.Object, f.Actor, f.Action = r.Text("object"), r.Text("actor"), r.Text("action")
	f.RequestID, f.From, f.To = r.Text("request_id"), r.Text("from"), r.Text("to")
	params := &adminclient.ListAuditParams{
		Object:    kit.Optional(f.Object),
		Actor:     kit.Optional(f.Actor),
		Action:    kit.Optional(f.Action),
		RequestID: kit.Optional(f.RequestID),
		Cursor:    kit.Cursor(r),
		Limit:     new(kit.PageSize),
	}

	var err error
	if params.From, err = kit.Moment("from", f.From); err != nil {
		return nil, err
	}
	if params.To, err = kit.Moment("to", f.To); err != nil {
		return nil, err
	}

	answer, err := r.API.ListAudit(r.Context(), params)
	if err != nil {
		return nil, err
	}

	var ids []string
	for i := range answer.Value.Data {
		object := answer.Value.Data[i].Object
		if kind, _, _ := strings.Cut(object, "_"); kind == "acc" || kind == "prj" || kind == "key" {
			ids = append(ids, object)
		}
	}
	if data.Names, err = kit.Names(r, ids); err != nil {
		return nil, err
	}

	data.List, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	command := kit.Command(
		"audit list",
		"--object",
		f.Object,
		"--actor",
		f.Actor,
		"--action",
		f.Action,
		"--request-id",
		f.RequestID,
		"--from",
		f.From,
		"--to",
		f.To,
	)
	return &kit.Page{
		Template: "audit",
		Title:    "Audit",
		Command:  command,
		Data:     data,
	}, nil
}
