package console

import (
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// partsView is the data of the page with all parts. Times are relative to when it is read, so that it always looks alike.
type partsView struct {
	States   []string
	Statuses []*int
	Forms    []partForm
	Tabs     []kit.Tab
	Pages    kit.Pages
	Notices  []*kit.Notice
	Banners  []kit.Banner
	Balance  []view.Part
	Spool    []view.Part
	Course   []partStep
	Matrix   []partRow
	Days     []partDay
	Audit    []adminclient.AuditEntry
	JSON     any
	Now      time.Time
	Before   time.Time
	After    time.Time
}

// partForm is a form in one of its states.
type partForm struct {
	Title string
	Form  *kit.FormView
}

// partStep is a step of a waterfall.
type partStep struct {
	Name, Kind, Time string
	From, Width      int
}

// partRow is a row of a matrix.
type partRow struct {
	Name  string
	Cells []view.Badge
}

// partDay is a bar of a strip, and a row of the table below a chart.
type partDay struct {
	Name, Cost string
	Height     int
}

// parts is a page that shows the parts of pages in all their states. Tests compare pictures of it.
func parts(r *kit.Request) (*kit.Page, error) {
	now := time.Now().UTC()
	data := &partsView{
		States:   []string{"active", "completed", "suspended", "half_open", "failed", "open", "running", "queued", "revoked", "unheard-of"},
		Statuses: []*int{new(200), new(402), new(503), nil},
		Forms:    partForms(r.URL.Path),
		Tabs: []kit.Tab{
			{Link: kit.Link{Text: "Summary", URL: "/console/parts"}, Current: true},
			{Link: kit.Link{Text: "Keys", URL: "/console/parts"}},
			{Link: kit.Link{Text: "Usage", URL: "/console/parts"}},
		},
		Pages: kit.Pages{First: "/console/parts", Next: "/console/parts"},
		Notices: []*kit.Notice{
			kit.Done("The key was renamed."),
			{Kind: "good", Text: "The price was set.", Applied: []string{"proxy-1", "proxy-2", "proxy-3", "proxy-4"}},
			{Kind: "warn", Text: "The key was revoked.", Applied: []string{"proxy-1", "proxy-2", "proxy-3"}, Pending: []string{"proxy-4"}},
			{Kind: "bad", Text: "The catalog was not changed."},
		},
		Banners: []kit.Banner{
			{
				Kind: "bad",
				Text: "The check of the money found a difference (all).",
				Link: kit.Link{Text: "Show the first row", URL: "/console/parts"},
			},
			{Kind: "warn", Text: "1 of 2 proxies have not applied all changes yet.", Link: kit.Link{Text: "Fleet", URL: "/console/parts"}},
			{Kind: "info", Text: "A new version is being rolled out."},
		},
		Balance: view.Bar(
			view.Part{
				Kind: "free",
				Name: "free",
				Text: "812.4177",
			},
			view.Part{Kind: "held", Name: "held", Text: "96.02"},
			view.Part{Kind: "bad", Name: "unsettled", Text: "14.5"},
		),
		Spool: view.Bar(view.Part{Kind: "held", Name: "used", Text: "1204"}, view.Part{Kind: "idle", Name: "free", Text: "8796"}),
		Course: []partStep{
			{"waited", "waiting", "2 ms", 0, 20},
			{"route A, 503", "bad", "84 ms", 20, 120},
			{"route B, first byte", "waiting", "226 ms", 140, 210},
			{"streamed", "streaming", "3.9 s", 350, 600},
			{"settled", "good", "40 ms", 950, 50},
		},
		Matrix: []partRow{
			{"example-small → sim", []view.Badge{view.State("ready"), view.State("ready"), view.State("ready")}},
			{"example-small → backup", []view.Badge{view.State("open"), view.State("half_open"), {Kind: "idle", Word: "not known"}}},
			{
				"example-large → sim",
				[]view.Badge{{Kind: "warn", Word: "set aside"}, {Kind: "warn", Word: "in maintenance"}, view.State("disabled")},
			},
		},
		Audit: []adminclient.AuditEntry{
			{
				At:        now.Add(-30 * time.Second),
				Action:    "account.update",
				Actor:     "somebody@example.com",
				Object:    "acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3",
				RequestID: new("adm_0192f0c1d2e37a4b8c5d6e7f8091a2b3"),
				Before:    map[string]any{"name": "Example Ltd", "status": "active"},
				After:     map[string]any{"name": "Example Ltd", "status": "suspended"},
			},
			{At: now.Add(-time.Hour), Action: "console.sign_in", Actor: "somebody@example.com"},
		},
		JSON: map[string]any{
			"type": "account.low_balance",
			"data": map[string]any{"balance": "4.20", "threshold": 5, "open": true, "note": nil},
		},
		Now:    now,
		Before: now.Add(-12 * time.Second),
		After:  now.Add(26 * time.Minute),
	}

	for i, height := range []int{120, 340, 560, 480, 900, 1000, 310} {
		data.Days = append(
			data.Days,
			partDay{time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly), view.Count(int64(height)), height},
		)
	}

	return &kit.Page{
		Template: "parts",
		Title:    "Parts",
		Crumbs:   []kit.Link{{Text: "Above", URL: "/console/parts"}},
		Data:     data,
		Command:  "gwctl accounts list --limit 10\ngwctl keys list acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3",
	}, nil
}

// partForms are the states of a form: refused with problems at fields, to be confirmed, and by somebody who signed in too
// long ago.
func partForms(action string) []partForm {
	fields := []kit.Field{
		{Name: "name", Label: "Name", Required: true, Value: "Example Ltd", Hint: "Customers see it."},
		{Name: "amount", Label: "Amount", Mono: true, Unit: "USD", Value: "12,34", Error: "must be a decimal"},
		{Name: "kind", Label: "Kind", Kind: "select", Options: []kit.Option{{Value: "payment", Text: "Payment"}, {Value: "correction"}}},
		{Name: "note", Label: "Note", Kind: "area", Now: "another text"},
		{
			Name:    "scopes",
			Label:   "Scopes",
			Kind:    "checks",
			Values:  []string{"read"},
			Options: []kit.Option{{Value: "read"}, {Value: "observe"}},
		},
		{Name: "until", Label: "Valid until (UTC)", Kind: "datetime-local"},
		{Name: "secret", Label: "Secret", Kind: "password"},
		{Name: "sure", Label: "A choice", Kind: "check", Value: "yes"},
	}

	confirmed := []kit.Field{{
		Name:  "price",
		Label: "Input",
		Value: "0.12",
		Unit:  "USD per 1 000 000",
	}, {Name: "from", Label: "From", Value: "2026-02-01"}}

	return []partForm{
		{"Refused", &kit.FormView{
			Form: kit.Form{
				Fields:  fields,
				Submit:  "Save",
				Back:    action,
				Effects: []string{"Requests that begin afterwards cost 20 % more.", "214 accounts used it."},
			},
			Action:  action,
			Problem: "The request is not valid",
			Detail:  "Two values were refused.",
			Others:  []adminclient.FieldError{{Field: "metadata", Detail: "is too long"}},
		}},
		{"To be confirmed", &kit.FormView{
			Form: kit.Form{
				Fields:  confirmed,
				Submit:  "Set the price",
				Danger:  true,
				Back:    action,
				Effects: []string{"It reaches 214 accounts."},
				Confirm: "example-small",
				Review:  func(*kit.Request, *kit.Input) ([]string, error) { return nil, nil },
			},
			Action:   action,
			Reviewed: true,
			Typed:    "Type example-small to confirm.",
		}},
		{"In groups", &kit.FormView{
			Form: kit.Form{
				Fields: partGroups(),
				Submit: "Set the price",
				Back:   action,
			},
			Action: action,
		}},
		{"After an old sign-in", &kit.FormView{
			Form: kit.Form{
				Fields: []kit.Field{{Name: "reason", Label: "Reason", Value: "A customer asked for it."}},
				Submit: "Reveal the key",
				Back:   action,
			},
			Action: action,
			Stale:  true,
		}},
	}
}

// partGroups are groups of fields: rows of prices with a folded rest, prices per image three in a line, wide entries, and one that
// is folded as a whole.
func partGroups() []kit.Field {
	const (
		amounts   = "USD per 1 million tokens"
		images    = "USD per image"
		addresses = "Addresses of formats"
		folded    = "Time limits"
	)
	return []kit.Field{
		{Name: "price.input", Label: "input", Mono: true, Group: amounts, Value: "1.25"},
		{Name: "price.cached_input", Label: "cached input", Mono: true, Group: amounts, Value: "0.125"},
		{Name: "price.output", Label: "output", Mono: true, Group: amounts, Value: "10,00", Error: "must be a decimal"},
		{Name: "price.reasoning", Label: "reasoning", Mono: true, Group: amounts, Seldom: true},
		{Name: "price.audio_in", Label: "audio in", Mono: true, Group: amounts, Seldom: true},
		{Name: "price.images[0].size", Label: "size", Mono: true, Group: images, Column: true, Value: "1024x1024"},
		{Name: "price.images[0].quality", Label: "quality", Mono: true, Group: images, Column: true, Placeholder: "any"},
		{Name: "price.images[0].price", Label: "price", Mono: true, Group: images, Column: true, Value: "0.04"},
		{
			Name:  "addresses.chat.path",
			Label: "chat: path",
			Mono:  true,
			Group: addresses,
			Wide:  true,
			Value: "/openai/deployments/{model}/chat/completions",
			Hint:  "Empty means the usual path.",
		},
		{
			Name:  "addresses.chat.query",
			Label: "chat: query",
			Kind:  "area",
			Rows:  2,
			Mono:  true,
			Group: addresses,
			Wide:  true,
			Value: "api-version: preview",
		},
		{Name: "certificate", Label: "Client certificate", Kind: kit.SecretArea, Rows: 2, Group: addresses, Wide: true},
		{Name: "connect_timeout", Label: "To connect", Mono: true, Group: folded, Wide: true, Seldom: true},
		{Name: "idle_timeout", Label: "Between two parts of an answer", Mono: true, Group: folded, Wide: true, Seldom: true},
	}
}
