// Package kit is what the pages of the console are made of: sections, routes, requests, pages, forms and lists.
//
// # How to add a page
//
// A page belongs to the package of its section in the navigation: nowpages, customerpages, catalogpages, moneypages or
// systempages.
//
//  1. Write a handler in a file page_*.go of that package, func(*kit.Request) (*kit.Page, error). It calls operations
//     with r.API and r.Context(), which act as the person, and returns a Page with the name of a template and its data.
//     It returns errors of the API as they are: the console shows them.
//  2. Write template/page_NAME.gohtml with {{define "content"}}. Its dot is a Layout, and .Data is the data of the page.
//     Parts that every page can use are in console/template/part_*.gohtml; /console/parts shows them. A section can have
//     parts of its own in template/part_*.gohtml; names of pages and parts are unique in the whole console.
//  3. Add a Route, and if the page is in the navigation an Item, to the section's Section().
//
// A change is a Form: FormRoutes(pattern, scope, build) serves it as a page at GET and makes the change at POST. The form
// carries the Idempotency-Key and the ETag, shows the problems of fields in place if the fields have the names of the
// API's members, and asks for a fresh sign-in if Fresh is set. A link with the attribute data-dialog opens the form in a
// dialog; without JavaScript it is the page. After the change, redirect with a Notice: Applied(...) tells which proxies
// act by it. Show links to forms only to those who may use them: {{if $.May "operator"}}.
//
// Money stays the text of the API. What is not known is not shown as 0.
package kit

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
	"modelgateway/controlplane/internal/signin"
)

// The scopes of the admin API that decide which pages and controls a person sees. A route with the scope Any is for
// everybody who has signed in.
const (
	Any        = ""
	Read       = string(adminclient.ScopeRead)
	Observe    = string(adminclient.ScopeObserve)
	Operator   = string(adminclient.ScopeOperator)
	Cabinet    = string(adminclient.ScopeCabinet)
	Credits    = string(adminclient.ScopeCredits)
	KeysReveal = string(adminclient.ScopeKeysReveal)
)

// Section is a group of pages in the navigation.
type Section struct {
	Name      string
	Items     []Item
	Routes    []Route
	Templates embed.FS
}

// Item is a page in the navigation.
type Item struct {
	Link
	// Scope is the scope without which the page is not shown.
	Scope string
	// Current is set on the page itself and those below it.
	Current bool
}

// Link is a link to a page.
type Link struct{ Text, URL string }

// Route is a page or an action of the console.
type Route struct {
	// Pattern is one of http.ServeMux.
	Pattern string
	// Scope is the scope without which the page is not shown. The API checks the scope of every operation in any case.
	Scope  string
	Handle func(*Request) (*Page, error)
	// Live is set for what shows live data, which needs no database: it is served for remembered sessions while the database
	// does not answer. The handler then gets a Request whose Session is Remembered, and must not wait for the database.
	Live bool
}

// Request is a request of a person who has signed in. Its context makes operations of the API act as the person.
type Request struct {
	*http.Request
	Session *signin.Session
	API     *adminclient.Client
}

// May reports whether the person has a scope.
func (r *Request) May(scope string) bool { return scope == Any || r.Session.May(scope) }

// Text returns a value of the query or the form, without spaces around it.
func (r *Request) Text(name string) string { return strings.TrimSpace(r.FormValue(name)) }

// Page is the response to a request: a page, a file, or the address of a page.
type Page struct {
	// Template is the name of the template, without "page_".
	Template, Title string
	// Crumbs are the pages above this one.
	Crumbs []Link
	// Command is the command of gwctl that shows or does the same, one in a line.
	Command string
	Data    any
	// Status is the HTTP status; 0 means 200.
	Status int

	// Location is the page to go to instead, which shows the notice.
	Location string
	Notice   *Notice

	Download *Download
	Stream   *Stream
}

// Stream is a response without an end: server-sent events for a live view.
type Stream struct{ Body io.ReadCloser }

// Download is a file that the browser stores.
type Download struct {
	Name, MediaType string
	// CopyTo writes the file. If it fails, the browser sees that the file is not whole.
	CopyTo func(io.Writer) error
}

// Layout is the data of every template.
type Layout struct {
	Title, Command, Environment, Build, Path string
	Crumbs                                   []Link
	Session                                  *signin.Session
	Nav                                      []Section
	Notice                                   *Notice
	Health                                   *Health
	// Owners are the accounts and keys of the filters, by id, as a filter shows them.
	Owners map[string]string
	At     time.Time
	Data   any
}

// May reports whether the person has a scope.
func (l *Layout) May(scope string) bool {
	return l.Session != nil && (scope == Any || l.Session.May(scope))
}

// ReadOnly reports whether the person can change nothing.
func (l *Layout) ReadOnly() bool {
	return l.Session != nil && !slices.ContainsFunc([]string{Operator, Cabinet, Credits, KeysReveal}, l.May)
}

// Shown returns the banners of the page.
func (l *Layout) Shown() []Banner {
	var shown []Banner
	if l.Health != nil {
		shown = l.Health.banners()
	}
	if l.ReadOnly() && !l.Session.Remembered {
		var scopes []string
		for _, s := range l.Session.Principal.Scopes {
			scopes = append(scopes, string(s))
		}
		shown = append(
			shown,
			Banner{Kind: "info", Text: "This session is read only: the scope " + strings.Join(scopes, ", ") + " changes nothing."},
		)
	}
	return shown
}

// Health is the state of the system that every page shows to those who may observe it.
type Health struct {
	At time.Time
	// Needs is what somebody has to act on, what is worst first. The dot of the header and its number, the banners and the
	// list on the overview are this list.
	Needs []Need
	// Checks is the number of checks of the diagnosis that were run; 0 if it could not be read.
	Checks int
	// Outage tells that the page was made without the database; the list is then the last that was read.
	Outage *Banner
}

// Need is something that somebody has to act on, with the page on which to do it.
type Need struct {
	// Kind is "bad" or "warn".
	Kind, Text, Detail string
	Since              *time.Time
	Link               Link
	// Provider is set if the provider refuses credentials.
	Provider string
	// Away is set if the entry says that the database does not answer.
	Away bool
}

// Badge is the dot of the header: the kind of the worst entry, and the number of all.
func (h *Health) Badge() view.Badge {
	switch {
	case h.Outage != nil:
		return view.Badge{Kind: "bad", Word: "database away"}
	case len(h.Needs) == 0:
		return view.Badge{Kind: "good", Word: "all well"}
	}
	return view.Badge{Kind: h.Needs[0].Kind, Word: fmt.Sprintf("%d to look at", len(h.Needs))}
}

// maxBanners bounds the failures that have a banner above every page.
const maxBanners = 3

// banners are the failures. Warnings have none: a banner that stays for days is not read any more.
func (h *Health) banners() []Banner {
	if h.Outage != nil {
		return []Banner{*h.Outage}
	}

	var shown []Banner
	failures := 0
	for _, n := range h.Needs {
		if n.Kind != "bad" {
			continue
		}
		if failures++; failures <= maxBanners {
			shown = append(shown, Banner{Kind: n.Kind, Text: n.Text, Link: n.Link})
		}
	}

	if further := failures - maxBanners; further > 0 {
		shown = append(shown, Banner{
			Kind: "bad",
			Text: fmt.Sprintf("Further failures: %d.", further),
			Link: Link{Text: "Overview", URL: "/console/"},
		})
	}

	return shown
}

// Banner is a message above every page.
type Banner struct {
	// Kind is "bad", "warn" or "info".
	Kind, Text string
	Link       Link
	// Since is when the database answered no more; nil if it does.
	Since *time.Time
	// Away is set if the page has been made without the database: it is then loaded again once the database answers.
	Away bool
}

// Away reports whether an operation failed because the database did not answer.
func Away(err error) bool { return adminclient.Code(err) == "database_unavailable" }

// Go returns the redirect to a page.
func Go(location string, notice *Notice) (*Page, error) {
	return &Page{Location: location, Notice: notice}, nil
}

// Invalid is the error of input that the API was not asked about. A form shows it at the field; field may be empty.
func Invalid(field, detail string) error {
	p := adminclient.Problem{Title: "The request is not valid", Status: http.StatusBadRequest}
	if field == "" {
		p.Title = detail
	} else {
		p.Errors = []adminclient.FieldError{{Field: field, Detail: detail}}
	}
	return &adminclient.Error{StatusCode: http.StatusBadRequest, Code: "invalid_input", Problem: p}
}

// NotFound is the error of a page that does not exist.
func NotFound() error {
	return &adminclient.Error{
		StatusCode: http.StatusNotFound,
		Code:       "not_found",
		Problem:    adminclient.Problem{Title: "There is no such page"},
	}
}

// Exact returns the value of a response whose members of any type have numbers as they were written, not as floats.
func Exact[T any](answer *adminclient.Response[T]) (*T, error) {
	value := new(T)
	d := json.NewDecoder(bytes.NewReader(answer.Body))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		return nil, fmt.Errorf("decode a response of the admin API: %w", err)
	}
	return value, nil
}

// Path returns the address of a page from its parts, which are escaped: Path("accounts", id) is /console/accounts/{id}.
func Path(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return "/console/" + strings.Join(escaped, "/")
}

// Tab is a link to a page of the same object, for the part "tabs".
type Tab struct {
	Link
	Current bool
}
