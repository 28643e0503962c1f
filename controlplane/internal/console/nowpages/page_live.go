package nowpages

import (
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// liveFilter is what a live view shows; empty members match everything.
type liveFilter struct{ AccountID, ProjectID, KeyID, Model, Route, StatusClass, Code string }

func filterOf(r *kit.Request) liveFilter {
	return liveFilter{
		r.Text("account_id"),
		r.Text("project_id"),
		r.Text("key_id"),
		r.Text("model"),
		r.Text("route"),
		r.Text("status_class"),
		r.Text("code"),
	}
}

// Query is the query of the addresses of the page and of its stream.
func (f *liveFilter) Query() string {
	return kit.Query(
		"account_id",
		f.AccountID,
		"project_id",
		f.ProjectID,
		"key_id",
		f.KeyID,
		"model",
		f.Model,
		"route",
		f.Route,
		"status_class",
		f.StatusClass,
		"code",
		f.Code,
	)
}

// showLive shows requests as they end. Its script reads the stream.
func showLive(r *kit.Request) (*kit.Page, error) {
	f := filterOf(r)
	return &kit.Page{
		Template: "live",
		Title:    "Live",
		Data:     &f,
		Command: kit.Command("requests tail", "--account-id", f.AccountID, "--project-id", f.ProjectID, "--key-id", f.KeyID,
			"--model", f.Model, "--route", f.Route, "--status-class", f.StatusClass, "--code", f.Code),
	}, nil
}

// streamLive answers with the lines of requests as server-sent events.
func streamLive(r *kit.Request) (*kit.Page, error) {
	f := filterOf(r)
	params := &adminclient.TailRequestsParams{
		AccountID: kit.Optional(f.AccountID),
		ProjectID: kit.Optional(f.ProjectID),
		KeyID:     kit.Optional(f.KeyID),
		Model:     kit.Optional(f.Model),
		Route:     kit.Optional(f.Route),
		Code:      kit.Optional(f.Code),
		Accept:    new("text/event-stream"),
	}
	if f.StatusClass != "" {
		class, err := strconv.Atoi(f.StatusClass)
		if err != nil {
			return nil, kit.Invalid("status_class", "must be 2, 4 or 5")
		}
		params.StatusClass = &class
	}

	tail, err := r.API.TailRequests(r.Context(), params)
	if err != nil {
		return nil, err
	}

	return &kit.Page{Stream: &kit.Stream{Body: tail.Body}}, nil
}
