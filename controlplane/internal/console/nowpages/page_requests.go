package nowpages

import (
	"strconv"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type requestsView struct {
	Filter struct{ AccountID, KeyID, Model, From, To string }
	List   *adminclient.UsageList
	Pages  kit.Pages
}

// listRequests shows finished requests, newest first. A whole request id leads to its request.
func listRequests(r *kit.Request) (*kit.Page, error) {
	if id := r.Text("request_id"); id != "" {
		return &kit.Page{Location: kit.Path("requests", id)}, nil
	}
	var data requestsView
	f := &data.Filter
	f.AccountID, f.KeyID, f.Model, f.From, f.To = r.FormValue("account_id"), r.FormValue("key_id"), r.FormValue("model"), r.FormValue("from"), r.FormValue("to")
	params := &adminclient.ListUsageParams{
		AccountID: kit.Optional(f.AccountID), KeyID: kit.Optional(f.KeyID), Model: kit.Optional(f.Model), Cursor: kit.Optional(r.FormValue("cursor")), Limit: new(50),
	}
	var err error
	if params.From, err = kit.Moment("from", f.From); err != nil {
		return nil, err
	}
	if params.To, err = kit.Moment("to", f.To); err != nil {
		return nil, err
	}
	answer, err := r.API.ListUsage(r.Context(), params)
	if err != nil {
		return nil, err
	}
	data.List, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	return &kit.Page{
		Template: "requests", Title: "Requests", Data: &data,
		Command: kit.Command("usage list", "--account-id", f.AccountID, "--key-id", f.KeyID, "--model", f.Model, "--from", f.From, "--to", f.To),
	}, nil
}

type requestView struct {
	*adminclient.UsageDetail
	// Took is how long the request ran, and FirstByte the share of it in thousandths until the first byte.
	Took      int64
	Waterfall []view.Part
}

// showRequest shows a request with its receipt.
func showRequest(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetUsage(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	u := answer.Value
	data := &requestView{UsageDetail: u, Took: u.FinishedAt.Sub(u.StartedAt).Milliseconds()}
	first := data.Took
	if u.FirstByteMS != nil {
		first = min(*u.FirstByteMS, data.Took)
	}
	data.Waterfall = view.Bar(
		view.Part{Kind: "waiting", Name: "until the first byte", Text: strconv.FormatInt(first, 10)},
		view.Part{Kind: "streaming", Name: "until the end", Text: strconv.FormatInt(data.Took-first, 10)},
	)
	return &kit.Page{
		Template: "request", Title: "Request " + view.ShortID(u.RequestID), Data: data, Command: "gwctl usage get " + u.RequestID,
		Crumbs: []kit.Link{{Text: "Requests", URL: "/console/requests"}},
	}, nil
}
