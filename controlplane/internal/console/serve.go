package console

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/signin"
)

// serve returns the handler of a route.
func (c *Console) serve(at kit.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		session, err := c.sessionFor(r, at)
		if errors.Is(err, signin.ErrNoSession) {
			c.signedOut(w, r)
			return
		}

		if err != nil {
			c.fail(w, r, nil, err)
			return
		}

		in := &kit.Request{Request: r.WithContext(session.Context(r.Context())), Session: session, API: c.api}
		if !in.May(at.Scope) {
			c.fail(w, r, session, &adminclient.Error{StatusCode: http.StatusForbidden, Problem: adminclient.Problem{
				Title: "You may not see this page", Detail: new("It needs the scope " + at.Scope + "."),
			}})
			return
		}

		page, err := c.handle(at, in)
		if err == nil && !session.Remembered {
			c.outage.over()
		}

		switch {
		case err != nil:
			c.fail(w, r, session, err)
		case page.Location != "":
			c.setNotice(w, r, page.Notice)
			http.Redirect(w, r, page.Location, http.StatusSeeOther)
		case page.Download != nil:
			send(w, page.Download)
		case page.Stream != nil:
			stream(w, page.Stream)
		default:
			notice := page.Notice
			if notice == nil {
				notice = c.takeNotice(w, r)
			}
			c.render(w, r, max(page.Status, http.StatusOK), page.Template, &kit.Layout{
				Title:   page.Title,
				Crumbs:  page.Crumbs,
				Command: page.Command,
				Data:    page.Data,
				Session: session,
				Notice:  notice,
				Owners:  ownerLabels(in),
				Health:  c.health(in),
			})
		}
	}
}

// send writes a file. The browser does not take it for whole if it is not.
func send(w http.ResponseWriter, file *kit.Download) {
	w.Header().Set("Content-Type", file.MediaType)
	w.Header().Set("Content-Disposition", `attachment; filename="`+file.Name+`"`)
	if err := file.CopyTo(&slowWriter{w, http.NewResponseController(w)}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// stream writes server-sent events as they come, until either side ends them.
func stream(w http.ResponseWriter, events *kit.Stream) {
	defer func() { _ = events.Body.Close() }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &slowWriter{w, http.NewResponseController(w)}
	part := make([]byte, 32<<10)
	for {
		n, err := events.Body.Read(part)
		if n > 0 {
			if _, failed := out.Write(part[:n]); failed != nil || out.control.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// slowWriter allows each write of a file some time, because a file may be longer than the server's limit of a response.
type slowWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// stall bounds how long a browser may take no byte of a file.
const stall = time.Minute

func (w *slowWriter) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(stall)) // without support there is no limit either
	return w.ResponseWriter.Write(b)
}

// signedOut asks a person without a session to sign in. A form that the person has sent is not lost.
func (c *Console) signedOut(w http.ResponseWriter, r *http.Request) {
	to := returnTo(r)
	if form := kit.Keep(w, r); form != nil {
		c.render(w, r, http.StatusForbidden, "signed_out", &kit.Layout{Title: "Your session has ended", Data: form})
		return
	}
	http.Redirect(w, r, "/console/sign-in?return_to="+url.QueryEscape(to), http.StatusSeeOther)
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

// setNotice keeps a notice for the next page in a cookie, so that no address can show a text of others.
func (c *Console) setNotice(w http.ResponseWriter, r *http.Request, notice *kit.Notice) {
	if notice != nil {
		c.setCookie(w, r, c.cookieName(r)+"_notice", notice.Encode(), 60)
	}
}

func (c *Console) takeNotice(w http.ResponseWriter, r *http.Request) *kit.Notice {
	name := c.cookieName(r) + "_notice"
	cookie, err := r.Cookie(name)
	if err != nil {
		return nil
	}
	c.setCookie(w, r, name, "", -1)
	return kit.DecodeNotice(cookie.Value)
}

// failure is the data of the page of an error.
type failure struct {
	Status        int
	Title, Detail string
	Fields        []adminclient.FieldError
	RequestID     string
	// Retry is set if the request may succeed later.
	Retry bool
	// Since is when the database answered no more; nil if it does.
	Since *time.Time
}

// outage knows since when this control plane has no answer of the database. It is safe for concurrent use.
type outage struct {
	mu    sync.Mutex
	since *time.Time
}

// began notes a request that the database did not answer, and returns when the first one was.
func (o *outage) began(now time.Time) *time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = &now
	}
	return o.since
}

// banner describes the outage, while only live data is shown.
func (o *outage) banner(now time.Time) kit.Banner {
	return kit.Banner{
		Kind:  "bad",
		Text:  "Only live data is shown, and nothing can be changed.",
		Since: o.began(now),
		Away:  true,
	}
}

// over notes that the database has answered.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = nil
}

// fail shows the page of an error. session may be nil.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, session *signin.Session, err error) {
	shown := failure{Status: http.StatusServiceUnavailable, Title: "The control plane cannot answer at the moment", Retry: true}
	if e, ok := errors.AsType[*adminclient.Error](err); ok {
		shown = failure{
			Status: e.StatusCode,
			Title:  e.Problem.Title,
			Fields: e.Problem.Errors,
			Retry:  e.StatusCode >= http.StatusInternalServerError,
		}
		if e.Problem.Detail != nil {
			shown.Detail = *e.Problem.Detail
		}
		if e.Problem.Instance != nil {
			shown.RequestID = *e.Problem.Instance
		}
	} else if r.Context().Err() == nil {
		c.cfg.Log.ErrorContext(r.Context(), "page of the console failed", "path", r.URL.Path, "error", err)
	}

	if gone := r.Context().Err() != nil; !gone && (session == nil || kit.Away(err)) { // without the database there is no session
		shown.Since = c.outage.began(time.Now())
	}

	c.render(w, r, shown.Status, "failure", &kit.Layout{Title: shown.Title, Session: session, Data: shown})
}

func notFound(*kit.Request) (*kit.Page, error) { return nil, kit.NotFound() }

// render writes a page. It is executed in memory first, so that an error does not leave half a page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, data *kit.Layout) {
	data.Environment, data.Build, data.Path, data.At = c.cfg.Environment, c.cfg.Build, r.URL.Path, time.Now()
	if data.Session != nil {
		path := r.URL.Path
		if len(data.Crumbs) > 0 {
			path = data.Crumbs[0].URL // a form to add an object has an address that is not below its list
		}
		data.Nav = navigation(c.sections, data.Session, path)
	}

	page, text := c.templates[name], bytes.Buffer{}
	if page == nil {
		page, status, data.Data = c.templates["failure"], http.StatusInternalServerError, failure{Title: "There is no template " + name}
	}

	if err := page.ExecuteTemplate(&text, "layout", data); err != nil {
		c.cfg.Log.ErrorContext(r.Context(), "template of the console failed", "template", name, "error", err)
		http.Error(w, "The page cannot be shown. The log of the control plane has the reason.", http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")

	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = text.WriteTo(w)
		return
	}

	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	_, _ = text.WriteTo(z)
	_ = z.Close() // a browser that has gone needs nothing
}

// navigation returns the sections and pages that the person may see.
func navigation(all []kit.Section, s *signin.Session, path string) []kit.Section {
	var shown []kit.Section
	for _, section := range all {
		visible := kit.Section{Name: section.Name}
		for _, i := range section.Items {
			if i.Scope != kit.Any && !s.May(i.Scope) {
				continue
			}
			i.Current = path == i.URL || i.URL != "/console/" && strings.HasPrefix(path, i.URL+"/")
			visible.Items = append(visible.Items, i)
		}
		if len(visible.Items) > 0 {
			shown = append(shown, visible)
		}
	}
	return shown
}
