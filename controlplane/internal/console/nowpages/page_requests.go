package nowpages

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// requestFilter are the values of the filter bar, as they were entered.
type requestFilter struct {
	AccountID, ProjectID, KeyID, Model, Status, Provider, Route, Credential, Format, Stream, Estimated, MinCost, Prefix, From, To string
}

// More reports whether one of the rarer filters is used, so that they are not folded away.
func (f *requestFilter) More() bool {
	return f.ProjectID+f.KeyID+f.Provider+f.Route+f.Credential+f.Format+f.Stream+f.Estimated+f.MinCost+f.Prefix != ""
}

// Any reports whether there is a filter.
func (f *requestFilter) Any() bool {
	return f.More() || f.AccountID+f.Model+f.Status+f.From+f.To != ""
}

func readFilter(r *kit.Request) requestFilter {
	return requestFilter{
		r.Text("account_id"),
		r.Text("project_id"),
		r.Text("key_id"),
		r.Text("model"),
		r.Text("status"),
		r.Text("provider"),
		r.Text("route"),
		r.Text("credential"),
		r.Text("format"),
		r.Text("stream"),
		r.Text("estimated"),
		r.Text("min_cost"),
		r.Text("request_id_prefix"),
		r.Text("from"),
		r.Text("to"),
	}
}

func (f *requestFilter) params() (*adminclient.ListUsageParams, error) {
	params := &adminclient.ListUsageParams{
		AccountID:       kit.Optional(f.AccountID),
		ProjectID:       kit.Optional(f.ProjectID),
		KeyID:           kit.Optional(f.KeyID),
		Model:           kit.Optional(f.Model),
		Provider:        kit.Optional(f.Provider),
		Route:           kit.Optional(f.Route),
		Credential:      kit.Optional(f.Credential),
		Format:          kit.Optional(f.Format),
		MinCost:         kit.Optional(f.MinCost),
		RequestIDPrefix: kit.Optional(f.Prefix),
	}
	if f.Status != "" {
		params.Status = new(adminclient.UsageStatus(f.Status))
	}

	for _, choice := range []struct {
		text string
		to   **bool
	}{{f.Stream, &params.Stream}, {f.Estimated, &params.Estimated}} {
		if choice.text != "" {
			*choice.to = new(choice.text == "true")
		}
	}

	var err error
	if params.From, err = kit.Moment("from", f.From); err != nil {
		return nil, err
	}

	params.To, err = kit.Moment("to", f.To)
	return params, err
}

// pairs are the names of the filters in a query, each with its value.
func (f *requestFilter) pairs() []string {
	return []string{
		"account_id", f.AccountID,
		"project_id", f.ProjectID,
		"key_id", f.KeyID,
		"model", f.Model,
		"status", f.Status,
		"provider", f.Provider,
		"route", f.Route,
		"credential", f.Credential,
		"format", f.Format,
		"stream", f.Stream,
		"estimated", f.Estimated,
		"min_cost", f.MinCost,
		"request_id_prefix", f.Prefix,
		"from", f.From,
		"to", f.To,
	}
}

func (f *requestFilter) command(name string) string {
	flags := f.pairs()
	for i := 0; i < len(flags); i += 2 {
		flags[i] = "--" + strings.ReplaceAll(flags[i], "_", "-")
	}
	return kit.Command(name, flags...)
}

type requestsView struct {
	Filter   requestFilter
	Statuses []adminclient.UsageStatus
	List     *adminclient.UsageList
	Names    map[string]string
	Pages    kit.Pages
	// Export and Usage are about the same requests; Usage is empty if it does not know the filter.
	Export, Usage string
}

// listRequests shows finished requests, newest first. A whole request id leads to its request.
func listRequests(r *kit.Request) (*kit.Page, error) {
	if id := r.Text("request_id"); id != "" {
		return kit.Go(kit.Path("requests", id), nil)
	}

	data := &requestsView{Filter: readFilter(r), Statuses: []adminclient.UsageStatus{
		adminclient.UsageStatusCompleted,
		adminclient.UsageStatusFailed,
		adminclient.UsageStatusClientGone,
		adminclient.UsageStatusRevoked,
		adminclient.UsageStatusAborted,
	}}
	f := &data.Filter
	params, err := f.params()
	if err != nil {
		return nil, err
	}

	params.Cursor, params.Limit = kit.Cursor(r), new(kit.PageSize)
	answer, err := r.API.ListUsage(r.Context(), params)
	if err != nil {
		return nil, err
	}

	data.List, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	var ids []string
	for _, u := range answer.Value.Data {
		ids = append(ids, u.AccountID)
	}

	if data.Names, err = kit.Names(r, ids); err != nil {
		return nil, err
	}

	data.Export = "/console/requests/export?" + kit.Query(f.pairs()...)
	plain := requestFilter{
		AccountID: f.AccountID,
		KeyID:     f.KeyID,
		Model:     f.Model,
		From:      f.From,
		To:        f.To,
	}
	if plain == *f {
		data.Usage = "/console/usage?" + kit.Query("account_id", f.AccountID, "key_id", f.KeyID, "model", f.Model)
	}

	return &kit.Page{
		Template: "requests",
		Title:    "Requests",
		Data:     data,
		Command:  f.command("usage list"),
	}, nil
}

// exportRequests sends the finished requests of a filter as CSV.
func exportRequests(r *kit.Request) (*kit.Page, error) {
	f := readFilter(r)
	params, err := f.params()
	if err != nil {
		return nil, err
	}

	format := adminclient.ExportFormatCSV
	export, err := r.API.ExportUsage(r.Context(), &adminclient.ExportUsageParams{
		AccountID:       params.AccountID,
		ProjectID:       params.ProjectID,
		KeyID:           params.KeyID,
		Model:           params.Model,
		From:            params.From,
		To:              params.To,
		Status:          params.Status,
		Provider:        params.Provider,
		Route:           params.Route,
		Credential:      params.Credential,
		RequestFormat:   params.Format,
		Stream:          params.Stream,
		Estimated:       params.Estimated,
		MinCost:         params.MinCost,
		RequestIDPrefix: params.RequestIDPrefix,
		Format:          &format,
	})
	if err != nil {
		return nil, err
	}

	return &kit.Page{Download: &kit.Download{Name: "requests.csv", MediaType: "text/csv; charset=utf-8", CopyTo: copyExport(export)}}, nil
}

// copyExport sends an export. An error means that it is not whole.
func copyExport(export *adminclient.Export) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, err := export.CopyTo(w); err != nil {
			return fmt.Errorf("send an export: %w", err)
		}
		return nil
	}
}

type requestView struct {
	*adminclient.UsageDetail
	Account, Key string
	// Took is how long the request ran, in milliseconds.
	Took int64
	// Why says why the answer is not complete, and why it is charged; empty if it is.
	Why string
	// Steps are what happened, with their places in the time that the request ran.
	Steps []step
	// Returned is what was held and not charged; empty if more was charged than held.
	Returned string
	// Margin is what the operator has earned with the request; empty if the cost of a call is unknown. Spent is the cost of the calls that
	// did not serve it; empty for none.
	Margin, Spent string
	// Due is what a correction of the whole request would book.
	Due string
}

// step is a line of the waterfall: From and Width are thousandths of the time that the request ran.
type step struct {
	Name, Time, Kind string
	From, Width      int
}

// showRequest shows a request with its receipt.
func showRequest(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetUsage(r.Context(), r.PathValue("id"))
	if e, ok := errors.AsType[*adminclient.Error](err); ok && e.StatusCode == http.StatusNotFound {
		return showRefused(r, err)
	}
	if err != nil {
		return nil, err
	}

	u := answer.Value
	names, err := kit.Names(r, []string{u.AccountID, u.KeyID})
	if err != nil {
		return nil, err
	}

	data := &requestView{
		UsageDetail: u,
		Account:     names[u.AccountID],
		Key:         names[u.KeyID],
		Took:        u.FinishedAt.Sub(u.StartedAt).Milliseconds(),
		Steps:       steps(u),
		Due:         u.Cost,
	}
	if view.Compare(u.Reservation, u.Cost) >= 0 {
		data.Returned = view.Sub(u.Reservation, u.Cost)
	}

	for _, c := range u.Corrections {
		data.Due = view.Sub(data.Due, c.Amount)
	}

	class := ""
	for _, a := range u.Attempts {
		if a.Class != nil {
			class = *a.Class
		}
	}
	data.addMargin()
	begun := u.FirstByteMS != nil && (u.HTTPStatus == nil || *u.HTTPStatus < http.StatusBadRequest) // an error is an answer of its own
	data.Why = view.WhyEnded(string(u.Status), class, begun, u.Receipt.Rule)

	return &kit.Page{
		Template: "request",
		Title:    "Request " + view.ShortID(u.RequestID),
		Data:     data,
		Command:  "gwctl usage explain " + u.RequestID,
		Crumbs:   []kit.Link{{Text: "Requests", URL: "/console/requests"}},
	}, nil
}

// addMargin compares the charge with the costs of all calls.
func (v *requestView) addMargin() {
	if v.ProviderCost == nil {
		return
	}
	v.Margin = view.Sub(v.Cost, *v.ProviderCost)
	for _, a := range v.Attempts {
		switch {
		case a.Usage == nil:
		case a.ProviderCost == nil:
			v.Margin, v.Spent = "", ""
			return
		default:
			v.Margin, v.Spent = view.Sub(v.Margin, *a.ProviderCost), view.Add(cmp.Or(v.Spent, "0"), *a.ProviderCost)
		}
	}
}

type refusedView struct {
	*adminclient.Refusal
	// Account and Key are their names, with the states that they have now; empty if they are not known.
	Account, Key, AccountState, KeyState string
	// Limit is the limit that was short; nil if it was none.
	Limit *kit.Link
}

// showRefused shows the refusal of a request that no provider was called for. Only the last refusal of an hour, account,
// key and code is known; notFound is the error for all others.
func showRefused(r *kit.Request, notFound error) (*kit.Page, error) {
	id := r.PathValue("id")
	found, err := r.API.ListRefusals(r.Context(), &adminclient.ListRefusalsParams{RequestID: &id})
	if err != nil {
		return nil, err
	}
	if len(found.Value.Data) == 0 {
		return showUnknown(id, notFound)
	}

	v := refusedView{Refusal: &found.Value.Data[0]}
	if err := v.readOwners(r); err != nil {
		return nil, err
	}

	if s := v.Short; s != nil && s.LimitID != nil {
		names, err := kit.Names(r, []string{*s.LimitID})
		if err != nil {
			return nil, err
		}
		v.Limit = limitLink(s, names)
	}

	return &kit.Page{
		Template: "refused",
		Title:    "Request " + view.ShortID(id),
		Data:     &v,
		Command:  "gwctl usage explain " + id,
		Crumbs:   []kit.Link{{Text: "Refusals", URL: "/console/refusals"}},
	}, nil
}

// readOwners reads the names and states of the account and the key, as far as they exist.
func (v *refusedView) readOwners(r *kit.Request) error {
	if v.AccountID != nil {
		answer, err := r.API.GetAccount(r.Context(), *v.AccountID)
		if err == nil {
			v.Account, v.AccountState = answer.Value.Name, string(answer.Value.Status)
		} else if adminclient.Code(err) != "not_found" {
			return err
		}
	}

	if v.KeyID != nil {
		answer, err := r.API.GetKey(r.Context(), *v.KeyID)
		if err == nil {
			v.Key, v.KeyState = answer.Value.Name, string(answer.Value.Status)
		} else if adminclient.Code(err) != "not_found" {
			return err
		}
	}

	return nil
}

// unknownView is about a request of which there is neither a record nor a refusal.
type unknownView struct {
	RequestID string
	// At is when it arrived, From and To are the hour of that.
	At       time.Time
	From, To string
}

// showUnknown says where to look for a request that is not known, at the time that its id tells. notFound is the error for what is no id.
func showUnknown(id string, notFound error) (*kit.Page, error) {
	at, ok := view.IDTime(id)
	if !ok {
		return nil, notFound
	}

	const minute = "2006-01-02T15:04"
	hour := at.Truncate(time.Hour)
	return &kit.Page{
		Template: "unknown",
		Title:    "Request " + view.ShortID(id),
		Status:   http.StatusNotFound,
		Command:  "gwctl usage explain " + id,
		Crumbs:   []kit.Link{{Text: "Requests", URL: "/console/requests"}},
		Data: &unknownView{
			RequestID: id,
			At:        at,
			From:      hour.Format(minute),
			To:        hour.Add(time.Hour).Format(minute),
		},
	}, nil
}

// steps returns the course of a request. Settling comes after its end, so it has no place in the time of the request.
func steps(u *adminclient.UsageDetail) []step {
	took := u.FinishedAt.Sub(u.StartedAt).Milliseconds()
	var all []step
	if u.FirstByteMS != nil {
		first := min(*u.FirstByteMS, took)
		waiting := int(first * 1000 / max(took, 1))
		all = append(all,
			step{"until the first byte", view.Milliseconds(first), "waiting", 0, waiting},
			step{"until the end", view.Milliseconds(took - first), "streaming", waiting, 1000 - waiting})
	} else {
		all = append(all, step{"until the end", view.Milliseconds(took), "waiting", 0, 1000})
	}
	return append(
		all,
		step{
			Name: "until it was settled",
			Time: "+ " + view.Milliseconds(max(u.SettledAt.Sub(u.FinishedAt).Milliseconds(), 0)),
			Kind: "none",
		},
	)
}
