package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/signin"
)

// secure reports whether the browser uses TLS, by itself or up to a proxy.
func (c *Console) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(c.cfg.BaseURL, "https://")
}

// cookieName is the name of the session's cookie. Without TLS, which only the loopback should have, the name has the
// port, since cookies know no ports.
func (c *Console) cookieName(r *http.Request) string {
	if c.secure(r) {
		return "__Host-mgw_console"
	}
	_, port, _ := net.SplitHostPort(r.Host)
	return "mgw_console_" + port
}

func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // G124: without TLS, which only the loopback has, browsers refuse Secure
		Name:     name,
		Value:    value,
		Path:     "/",
		MaxAge:   seconds,
		HttpOnly: true,
		Secure:   c.secure(r),
		SameSite: http.SameSiteLaxMode,
	})
}

// session returns the session of a request, or signin.ErrNoSession.
func (c *Console) session(r *http.Request) (*signin.Session, error) {
	cookie, err := r.Cookie(c.cookieName(r))
	if err != nil {
		return nil, signin.ErrNoSession
	}
	return c.cfg.Sessions.Resume(r.Context(), cookie.Value)
}

// checkFor bounds how long a page of live data waits for the check of the session.
const checkFor = 3 * time.Second

// sessionFor returns the session of a request for a route: for live data a remembered one, if sessions cannot be checked.
func (c *Console) sessionFor(r *http.Request, at kit.Route) (*signin.Session, error) {
	if !at.Live {
		return c.session(r)
	}

	ctx, cancel := context.WithTimeout(r.Context(), checkFor)
	defer cancel()
	session, err := c.session(r.WithContext(ctx))
	if err == nil || errors.Is(err, signin.ErrNoSession) || r.Context().Err() != nil {
		return session, err
	}

	cookie, missing := r.Cookie(c.cookieName(r))
	if missing != nil {
		return nil, signin.ErrNoSession
	}
	if session, unknown := c.cfg.Sessions.Remembered(cookie.Value); unknown == nil {
		return session, nil
	}

	return nil, err
}

func (c *Console) client(r *http.Request) signin.Client {
	return signin.Client{Agent: r.UserAgent(), Address: c.cfg.Address(r)}
}

// signInView is the data of the page that asks to sign in.
type signInView struct {
	ReturnTo            string
	ByToken, ByProvider bool
	// Again is set if the session is too old for what is wanted.
	Again   bool
	Problem string
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) {
	c.showSignIn(w, r, http.StatusOK, "")
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request, status int, problem string) {
	c.render(w, r, status, "sign_in", &kit.Layout{Title: "Sign in", Data: signInView{
		ReturnTo:   localPath(r.FormValue("return_to")),
		ByToken:    c.cfg.Sessions.ByToken(),
		ByProvider: c.cfg.Sessions.ByProvider(),
		Again:      r.FormValue("again") != "",
		Problem:    problem,
	}})
}

// localPath returns the path of a page of the console to return to, never that of another site.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(path.Clean(u.Path)+"/", "/console/") ||
		strings.ContainsAny(text, "\\\r\n") {
		return "/console/"
	}
	return u.RequestURI()
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	_, secret, err := c.cfg.Sessions.WithToken(r.Context(), strings.TrimSpace(r.PostFormValue("token")), c.client(r))
	if err != nil {
		status, problem := c.signInProblem(r, err)
		c.showSignIn(w, r, status, problem)
		return
	}
	c.enter(w, r, secret, localPath(r.PostFormValue("return_to")))
}

// enter replaces the session of the browser.
func (c *Console) enter(w http.ResponseWriter, r *http.Request, secret, to string) {
	if old, err := c.session(r); err == nil {
		if err := c.cfg.Sessions.End(r.Context(), old, old.ID); err != nil {
			c.cfg.Log.WarnContext(r.Context(), "ending the replaced console session failed", "session", old.ID.String(), "error", err)
		}
	}
	c.setCookie(w, r, c.cookieName(r), secret, int(c.cfg.SessionLength.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // G710: localPath has checked the path
}

func (c *Console) beginSignIn(w http.ResponseWriter, r *http.Request) {
	to, sealed, err := c.cfg.Sessions.Begin(r.Context(), localPath(r.FormValue("return_to")))
	if err != nil {
		status, problem := c.signInProblem(r, err)
		c.showSignIn(w, r, status, problem)
		return
	}
	c.setCookie(w, r, c.cookieName(r)+"_pending", sealed, int(signin.PendingFor.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // G710: the address is that of the configured provider
}

// finishSignIn takes the browser back from the provider. The sign-in must have begun in this browser.
func (c *Console) finishSignIn(w http.ResponseWriter, r *http.Request) {
	name, sealed := c.cookieName(r)+"_pending", ""
	if cookie, err := r.Cookie(name); err == nil {
		sealed = cookie.Value
	}

	c.setCookie(w, r, name, "", -1)
	_, secret, to, err := c.cfg.Sessions.Finish(r.Context(), sealed, r.FormValue("state"), r.FormValue("code"), c.client(r))
	if err != nil {
		status, problem := c.signInProblem(r, err)
		c.showSignIn(w, r, status, problem)
		return
	}

	c.enter(w, r, secret, localPath(to))
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	session, err := c.session(r)
	if err == nil {
		err = c.cfg.Sessions.End(r.Context(), session, session.ID)
	} else if cookie, missing := r.Cookie(c.cookieName(r)); missing == nil {
		c.cfg.Sessions.Forget(cookie.Value) // though it cannot be ended now
	}
	if err != nil && !errors.Is(err, signin.ErrNoSession) {
		c.fail(w, r, session, err)
		return
	}
	c.setCookie(w, r, c.cookieName(r), "", -1)
	http.Redirect(w, r, "/console/sign-in", http.StatusSeeOther)
}

// signInProblem returns what is shown of a failed sign-in.
func (c *Console) signInProblem(r *http.Request, err error) (status int, problem string) {
	text := signin.Explain(err)
	switch {
	case errors.Is(err, signin.ErrNoScope):
		return http.StatusForbidden, text + " The claim " + c.cfg.Sessions.Claim() + " was looked for."
	case errors.Is(err, signin.ErrLocked):
		return http.StatusTooManyRequests, text
	case text != "":
		return http.StatusForbidden, text
	}
	c.cfg.Log.ErrorContext(r.Context(), "sign-in at the console failed", "error", err)
	return http.StatusServiceUnavailable, "Signing in is not possible at the moment. Try again in some seconds."
}

// signedIn is the page of the tab in which a person has signed in again, while another tab has a form.
func signedIn(*kit.Request) (*kit.Page, error) {
	return &kit.Page{Template: "signed_in", Title: "You have signed in"}, nil
}
