package console

import (
	"net/url"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
)

type requestsView struct {
	Filter struct{ AccountID, KeyID, Model, From, To string }
	List   *adminclient.UsageList
	Next   string
}

// listRequests shows finished requests, newest first. A whole request id leads to its request.
func listRequests(r *request) (*page, error) {
	if id := strings.TrimSpace(r.FormValue("request_id")); id != "" {
		return &page{Location: "/console/requests/" + url.PathEscape(id)}, nil
	}
	var data requestsView
	f := &data.Filter
	f.AccountID, f.KeyID, f.Model, f.From, f.To = r.FormValue("account_id"), r.FormValue("key_id"), r.FormValue("model"), r.FormValue("from"), r.FormValue("to")
	params := &adminclient.ListUsageParams{
		AccountID: optional(f.AccountID), KeyID: optional(f.KeyID), Model: optional(f.Model), Cursor: optional(r.FormValue("cursor")), Limit: new(50),
	}
	var err error
	if params.From, err = moment(f.From); err != nil {
		return nil, err
	}
	if params.To, err = moment(f.To); err != nil {
		return nil, err
	}
	answer, err := r.api.ListUsage(r.ctx, params)
	if err != nil {
		return nil, err
	}
	data.List, data.Next = answer.Value, nextPage(r, answer.Value.NextCursor)
	return &page{
		Template: "requests", Title: "Requests", Data: &data,
		Command: command("gwctl usage list", "--account-id", f.AccountID, "--key-id", f.KeyID, "--model", f.Model, "--from", f.From, "--to", f.To),
	}, nil
}

type requestView struct {
	*adminclient.UsageDetail
	// Took is how long the request ran, and FirstByte the share of it in thousandths until the first byte.
	Took      int64
	Waterfall []view.Part
}

// showRequest shows a request with its receipt.
func showRequest(r *request) (*page, error) {
	answer, err := r.api.GetUsage(r.ctx, r.PathValue("id"))
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
		view.Part{Kind: "waiting", Name: "until the first byte", Text: text(first)},
		view.Part{Kind: "streaming", Name: "until the end", Text: text(data.Took - first)},
	)
	return &page{
		Template: "request", Title: "Request " + view.ShortID(u.RequestID), Data: data, Command: "gwctl usage get " + u.RequestID,
		Crumbs: []link{{"Requests", "/console/requests"}},
	}, nil
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// moment parses a time of a form: RFC 3339, or a date and time of UTC as browsers send it.
func moment(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time is a valid filter
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return &at, nil
		}
	}
	return nil, invalid("This is not a time such as 2026-01-31T14:00")
}

// nextPage returns the address of the next page of a list; "" if there is none.
func nextPage(r *request, cursor *string) string {
	if cursor == nil {
		return ""
	}
	query := r.URL.Query()
	query.Set("cursor", *cursor)
	query.Del("notice")
	return r.URL.Path + "?" + query.Encode()
}

// command returns a command with those flags that have a value.
func command(name string, flags ...string) string {
	words := []string{name}
	for i := 0; i+1 < len(flags); i += 2 {
		if flags[i+1] != "" {
			words = append(words, flags[i], quote(flags[i+1]))
		}
	}
	return strings.Join(words, " ")
}

// quote quotes a text for the shell if it needs that.
func quote(text string) string {
	for _, c := range text {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+=", c) {
			return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
		}
	}
	return text
}
