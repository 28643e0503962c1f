package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/signin"
)

// route is a page or an action of the console.
type route struct {
	// pattern is one of http.ServeMux.
	pattern string
	// scope is the scope without which the page is not shown. The API checks the scope of every operation in any case.
	scope string
	// fresh means that the person must have signed in lately.
	fresh  bool
	handle func(*request) (*page, error)
}

// request is a request of a person who has signed in.
type request struct {
	*http.Request
	session *signin.Session
	api     *adminclient.Client
	// ctx makes operations of the API act as the person.
	ctx context.Context
}

// page is the response to a request: a page, or the address of one.
type page struct {
	// Template is the name of the template, without "page_".
	Template string
	Title    string
	// Crumbs are the pages above this one.
	Crumbs []link
	// Command is the command of gwctl that shows the same.
	Command string
	Data    any
	// Status is the HTTP status; 0 means 200.
	Status int
	// Location is the page to go to after an action.
	Location string
	// Stream is a file to download, with its name.
	Stream   io.ReadCloser
	Filename string
}

type link struct{ Text, URL string }

// layout is the data of every template.
type layout struct {
	Title, Command, Environment, Build, Path string
	Crumbs                                   []link
	Session                                  *signin.Session
	Nav                                      []group
	Notice                                   string
	At                                       time.Time
	Data                                     any
}

// group is a section of the navigation.
type group struct {
	Name  string
	Items []item
}

type item struct {
	link
	Scope   string
	Current bool
}

// notices are the texts about actions that were done, by the name in the address. An address cannot show any other text.
var notices = map[string]string{
	"created": "Created.", "saved": "Saved.", "removed": "Removed.", "requested": "Requested.", "booked": "Booked.",
	"ended": "The session has ended.",
}

// serve returns the handler of a route.
func (c *Console) serve(at route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		session, err := c.session(r)
		if errors.Is(err, signin.ErrNoSession) {
			http.Redirect(w, r, "/console/sign-in?return_to="+url.QueryEscape(returnTo(r)), http.StatusSeeOther)
			return
		}
		if err != nil {
			c.fail(w, r, nil, err)
			return
		}
		if at.scope != "" && !session.May(at.scope) {
			c.fail(w, r, session, &adminclient.Error{StatusCode: http.StatusForbidden, Problem: adminclient.Problem{
				Title: "You may not see this page", Detail: new("It needs the scope " + at.scope + "."),
			}})
			return
		}
		if at.fresh && !session.Fresh() {
			http.Redirect(w, r, "/console/sign-in?again=1&return_to="+url.QueryEscape(returnTo(r)), http.StatusSeeOther)
			return
		}
		answer, err := at.handle(&request{Request: r, session: session, api: c.api, ctx: session.Context(r.Context())})
		switch {
		case err != nil:
			c.fail(w, r, session, err)
		case answer.Location != "":
			http.Redirect(w, r, answer.Location, http.StatusSeeOther)
		case answer.Stream != nil:
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Disposition", `attachment; filename="`+answer.Filename+`"`)
			_, err := io.Copy(w, answer.Stream)
			_ = answer.Stream.Close()
			if err != nil {
				panic(http.ErrAbortHandler) // so that the browser does not take the file for whole
			}
		default:
			c.render(w, r, max(answer.Status, http.StatusOK), answer.Template, &layout{
				Title: answer.Title, Crumbs: answer.Crumbs, Command: answer.Command, Data: answer.Data, Session: session,
			})
		}
	}
}

// returnTo is the page to come back to after signing in: that of the request, or the one with the form.
func returnTo(r *http.Request) string {
	if r.Method == http.MethodGet {
		return r.URL.RequestURI()
	}
	if from, err := url.Parse(r.Referer()); err == nil && strings.HasPrefix(from.Path, "/console/") {
		return from.RequestURI()
	}
	return "/console/"
}

// failure is the data of the page of an error.
type failure struct {
	Status        int
	Title, Detail string
	Fields        []adminclient.FieldError
	RequestID     string
	// Retry is set if the request may succeed later.
	Retry bool
}

// fail shows the page of an error. session may be nil.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, session *signin.Session, err error) {
	shown := failure{Status: http.StatusServiceUnavailable, Title: "The control plane cannot answer at the moment", Retry: true}
	if e, ok := errors.AsType[*adminclient.Error](err); ok {
		shown = failure{Status: e.StatusCode, Title: e.Problem.Title, Fields: e.Problem.Errors, Retry: e.StatusCode >= http.StatusInternalServerError}
		if e.Problem.Detail != nil {
			shown.Detail = *e.Problem.Detail
		}
		if e.Problem.Instance != nil {
			shown.RequestID = *e.Problem.Instance
		}
	} else if r.Context().Err() == nil {
		c.cfg.Log.ErrorContext(r.Context(), "page of the console failed", "path", r.URL.Path, "error", err)
	}
	c.render(w, r, shown.Status, "failure", &layout{Title: shown.Title, Session: session, Data: shown})
}

func notFound(*request) (*page, error) {
	return nil, &adminclient.Error{StatusCode: http.StatusNotFound, Problem: adminclient.Problem{Title: "There is no such page"}}
}

// render writes a page. It is executed in memory first, so that an error does not leave half a page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, data *layout) {
	data.Environment, data.Build, data.Path, data.At = c.cfg.Environment, c.cfg.Build, r.URL.Path, time.Now()
	data.Notice = notices[r.URL.Query().Get("notice")]
	if data.Session != nil {
		data.Nav = navigation(data.Session, r.URL.Path)
	}
	var text bytes.Buffer
	if err := c.templates[name].ExecuteTemplate(&text, "layout", data); err != nil {
		c.cfg.Log.ErrorContext(r.Context(), "template of the console failed", "template", name, "error", err)
		http.Error(w, "The page cannot be shown. The log of the control plane has the reason.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = text.WriteTo(w)
}

// invalid is the error of a form that the API was not asked about.
func invalid(title string) error {
	return &adminclient.Error{StatusCode: http.StatusBadRequest, Problem: adminclient.Problem{Title: title}}
}
