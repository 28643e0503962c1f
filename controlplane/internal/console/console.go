// Package console serves the operator console: HTML pages under /console/ for those who run the
// gateway.
//
// It has no rules of its own. A page calls operations of the admin API through the generated
// client, over a transport within the process that acts as the person of the session; scopes,
// validation, audit and idempotency are the API's. Whatever a page shows or does can be had by the
// API and by gwctl. Pages are in the packages of their sections; package kit says how one is added.
package console

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/catalogpages"
	"modelgateway/controlplane/internal/console/customerpages"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/moneypages"
	"modelgateway/controlplane/internal/console/nowpages"
	"modelgateway/controlplane/internal/console/systempages"
	"modelgateway/controlplane/internal/signin"
)

//go:embed template static
var files embed.FS

// Config holds the dependencies and settings of the console.
type Config struct {
	Sessions *signin.Service
	// API is the handler of the admin API.
	API http.Handler
	Log *slog.Logger
	// Address returns the address of the browser; the zero address if it is not known.
	Address func(*http.Request) netip.Addr
	// BaseURL is the address at which people reach the console, such as "https://admin.example.com"; empty if it is that
	// of the request.
	BaseURL string
	// APIURL is the address at which customers reach the gateway, such as "https://api.example.com"; empty if it is not known.
	APIURL string
	// Environment is the name that every page shows, such as "production"; empty for none.
	Environment string
	// Build is the version of the control plane.
	Build string
	// SessionLength is how long a session lasts.
	SessionLength time.Duration
}

// Console is the handler of all paths under /console/.
type Console struct {
	cfg       Config
	api       *adminclient.Client
	sections  []kit.Section
	templates map[string]*template.Template
	static    *static
	watch     *watch
	outage    outage
	handler   http.Handler
}

// New returns a Console.
func New(cfg Config) (*Console, error) {
	c := &Console{cfg: cfg, sections: sections(cfg.APIURL)}

	var err error
	if c.static, err = embedded(); err != nil {
		return nil, err
	}
	if c.templates, err = pages(); err != nil {
		return nil, err
	}

	client := &http.Client{Transport: transport{cfg.API, cfg.Log}}
	if c.api, err = adminclient.New("http://admin", "", adminclient.WithHTTPClient(client)); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}

	c.watch = &watch{api: c.api, now: time.Now, outage: &c.outage}
	mux := http.NewServeMux()
	mux.Handle("GET "+c.static.prefix, c.static)

	for _, r := range c.routes() {
		mux.HandleFunc(r.pattern, r.handle)
	}

	protection := http.NewCrossOriginProtection()
	if cfg.BaseURL != "" {
		if err := protection.AddTrustedOrigin(cfg.BaseURL); err != nil {
			return nil, fmt.Errorf("console: console.base_url: %w", err)
		}
	}

	c.handler = withHeaders(protection.Handler(mux))
	return c, nil
}

// route is a handler for a pattern of http.ServeMux.
type route struct {
	pattern string
	handle  http.HandlerFunc
}

// routes returns all routes but that of the files that pages load.
func (c *Console) routes() []route {
	all := []route{
		{"GET /console/sign-in", c.signInPage},
		{"POST /console/sign-in", c.signIn},
		{"GET /console/sign-in/provider", c.beginSignIn},
		{"GET /console/sign-in/callback", c.finishSignIn},
		{"POST /console/sign-out", c.signOut},
		{"POST /console/search", c.serve(kit.Route{Handle: c.search})},
		{"GET /console/signed-in", c.serve(kit.Route{Handle: signedIn})},
		{"GET /console/parts", c.serve(kit.Route{Handle: parts})},
		{"/console/", c.serve(kit.Route{Handle: notFound})},
		{"/console", http.RedirectHandler("/console/", http.StatusMovedPermanently).ServeHTTP},
	}

	for _, section := range c.sections {
		for _, r := range section.Routes {
			all = append(all, route{r.Pattern, c.serve(r)})
		}
	}

	return all
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// maxForm bounds the body of a request, which is the largest form: a catalog document.
const maxForm = 16 << 20

// maxSignIn bounds the body of a request to sign in, which anybody can send, and maxReturn the address to return to, which is
// stored until the provider has returned the browser.
const maxSignIn, maxReturn = 64 << 10, 2 << 10

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		limit := int64(maxForm)
		if strings.HasPrefix(r.URL.Path, "/console/sign-") {
			limit = maxSignIn
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next.ServeHTTP(w, r)
	})
}

// sections are the sections of the console in the order of the navigation.
func sections(apiURL string) []kit.Section {
	return []kit.Section{
		nowpages.Section(), customerpages.Section(apiURL), catalogpages.Section(), moneypages.Section(), systempages.Section(),
	}
}

// pages are the parsed templates. They are the same in every console of a process, so they are parsed once: a program has one
// console, a test binary a hundred.
var pages = sync.OnceValues(func() (map[string]*template.Template, error) {
	assets, err := embedded()
	if err != nil {
		return nil, err
	}
	return parse(assets.prefix, sections(""))
})

// parse returns the pages of the console and of its sections by name. Each consists of its own file, the layout and the
// parts.
func parse(prefix string, sections []kit.Section) (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(functions(prefix)).ParseFS(files, "template/layout.gohtml", "template/part_*.gohtml")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}

	folders := []embed.FS{files}
	for _, section := range sections {
		folders = append(folders, section.Templates)
		if parts, _ := fs.Glob(section.Templates, "template/part_*.gohtml"); len(parts) > 0 {
			if shared, err = shared.ParseFS(section.Templates, parts...); err != nil {
				return nil, fmt.Errorf("console: %w", err)
			}
		}
	}

	pages := map[string]*template.Template{}
	for _, folder := range folders {
		names, _ := fs.Glob(folder, "template/page_*.gohtml") // the pattern is valid
		for _, file := range names {
			name := file[len("template/page_") : len(file)-len(".gohtml")]
			if pages[name] != nil {
				return nil, fmt.Errorf("console: two pages have the name %s", name)
			}
			own, err := shared.Clone()
			if err == nil {
				own, err = own.ParseFS(folder, file)
			}
			if err != nil {
				return nil, fmt.Errorf("console: %w", err)
			}
			pages[name] = own
		}
	}

	return pages, nil
}
