package browser

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// A shownPage is one that a link of the console leads to.
type shownPage struct {
	path   string
	status int64
	// file is set if there is no page to look at.
	file bool
	// bytes is the size on the wire with all that the page loads, but for what an earlier page has loaded.
	bytes float64
	// faults is what is wrong with the page by its policy, and what the browser complained about.
	faults []string
	// barriers keep people from using the page.
	barriers []string
	// scripted is what the page lacks without JavaScript.
	scripted []string
}

var (
	ids = regexp.MustCompile(`\b([a-z]{2,5}_)[0-9a-f]{32}\b`)
	// names are path segments that name objects of the demo.
	objects = regexp.MustCompile(`^(demo-[a-z]+|sim|flaky|refused|main|\d+)$`)
)

// kindOf returns the kind of a page: its path and the names in its query, without what names objects.
func kindOf(path string) string {
	u, err := url.Parse(path)
	if err != nil {
		return path
	}
	segments := strings.Split(ids.ReplaceAllString(u.Path, "${1}…"), "/")
	for i, segment := range segments {
		if i > 2 && objects.MatchString(segment) {
			segments[i] = "…"
		}
	}
	kind := strings.Join(segments, "/")
	if query := u.Query(); query.Has("tab") {
		kind += "?tab=" + query.Get("tab")
	} else if len(query) > 0 {
		kind += "?" + strings.Join(slices.Sorted(maps.Keys(query)), "&")
	}
	return kind
}

// maxKinds bounds a walk. It is far above the number of kinds of pages.
const maxKinds = 400

// A walk visits one page of every kind that links of the console lead to.
type walk struct {
	// rules is the program with the rules of accessibility; empty if there is none.
	rules string
	// firsts are pages that are the first in a browser, which knows nothing of the console.
	firsts []firstPage

	mu      sync.Mutex
	changed *sync.Cond
	// queue are the paths of pages to visit, and visiting is how many pages are visited now.
	queue    []string
	visiting int
	// pages are the visited pages by kind. A page that is visited now has no path yet.
	pages map[string]shownPage
	// known are the violations that another page has too.
	known map[string]bool
}

// firstPage is the size of a page on the wire with all that it loads, and how many requests that takes.
type firstPage struct {
	path     string
	bytes    float64
	requests int
}

// walkers is how many tabs walk at once.
const walkers = 2

// seldom returns pages to which others lead only in a state that the page which the walk visits may not be in.
func seldom(t *testing.T) []string {
	t.Helper()
	r := filled(t)
	health, err := r.Admin.GetRoutesHealth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	prices, err := r.Admin.ListPrices(t.Context(), "demo-large", nil)
	if err != nil {
		t.Fatal(err)
	}
	scheduled := slices.IndexFunc(prices.Value.Data, func(p adminclient.PriceVersion) bool { return p.Status == adminclient.PriceVersionStatusScheduled })
	keys, err := r.Admin.ListKeys(t.Context(), r.State().AccountID, nil)
	if err != nil {
		t.Fatal(err)
	}
	demo := slices.IndexFunc(keys.Value.Data, func(k adminclient.Key) bool { return k.Name == "demo" && k.Revealable })
	if len(health.Value.Data) == 0 || scheduled < 0 || demo < 0 {
		t.Fatalf("got routes %v, prices %v, keys %v; want a route, a scheduled price and the demo's key", health.Value.Data, prices.Value.Data, keys.Value.Data)
	}
	completed := adminclient.UsageStatusCompleted
	usage, err := r.Admin.ListUsage(t.Context(), &adminclient.ListUsageParams{Status: &completed})
	if err != nil || len(usage.Value.Data) == 0 {
		t.Fatalf("got usage %v, %v; want a request with a receipt", usage, err)
	}
	check, err := r.Admin.StartLedgerCheck(t.Context(), &adminclient.StartLedgerCheckParams{},
		adminclient.LedgerCheckStart{Kind: adminclient.LedgerCheckStartKindReceipts})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := r.Admin.ListAccounts(t.Context(), &adminclient.ListAccountsParams{ExternalID: new("demo-1")})
	if err != nil || len(owner.Value.Data) != 1 {
		t.Fatalf("got %v, %v; want the first account of the demo", owner, err)
	}
	projects, err := r.Admin.ListProjects(t.Context(), owner.Value.Data[0].ID, nil)
	if err != nil || len(projects.Value.Data) == 0 {
		t.Fatalf("got %v, %v; want a project", projects, err)
	}
	limits, err := r.Admin.ListLimits(t.Context(), owner.Value.Data[0].ID, &adminclient.ListLimitsParams{ProjectID: &projects.Value.Data[0].ID})
	if err != nil || len(limits.Value.Data) == 0 {
		t.Fatalf("got %v, %v; want the limit of the project", limits, err)
	}
	bill, err := r.Admin.ImportBill(t.Context(), &adminclient.ImportBillParams{Provider: rig.SimProvider}, adminclient.WithBody(
		"application/octet-stream", []byte("day,model,amount\n"+time.Now().UTC().Format(time.DateOnly)+",demo-large,1.00\n")))
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"/console/bills/" + bill.Value.ID,
		"/console/projects/" + projects.Value.Data[0].ID,
		"/console/limits/" + limits.Value.Data[0].ID + "/lower",
		"/console/limits/" + limits.Value.Data[0].ID + "/reset",
		"/console/requests/" + usage.Value.Data[0].RequestID,
		"/console/accounts/" + usage.Value.Data[0].AccountID + "/ledger",
		"/console/money/checks/" + check.Value.ID,
		"/console/routes/" + health.Value.Data[0].RouteID + "/reset",
		"/console/models/demo-large/prices/" + *prices.Value.Data[scheduled].ID + "/cancel",
		"/console/keys/" + keys.Value.Data[demo].ID + "/try?model=demo-large",
		"/console/accounts/" + r.State().AccountID + "/models/withdraw?model=demo-preview",
		"/console/archive/2026-01/exported",
	}
}

// walkPages walks from the pages on that no other page leads to, in several tabs at once, and looks at each page in every way
// while it is loaded.
func walkPages(t *testing.T, rules string) *walk {
	t.Helper()
	w := &walk{rules: rules, queue: append([]string{"/console/", "/console/parts"}, seldom(t)...), pages: map[string]shownPage{}, known: map[string]bool{}}
	w.changed = sync.NewCond(&w.mu)
	t.Run("walk", func(t *testing.T) {
		b := open(t)
		w.look(b, "/console/sign-in")
		b.signIn(filled(t).AdminToken())
		for _, path := range []string{"/console/", "/console/usage"} { // without charts while nothing was reported, and with them
			b.run(clearCache)
			b.taken()
			b.visit(path)
			b.await("the library of charts", charted)
			_, made := b.taken()
			w.firsts = append(w.firsts, firstPage{path, eval[float64](b, weight), len(made)})
		}
		for range walkers {
			t.Run("tab", func(t *testing.T) {
				t.Parallel()
				b := open(t)
				b.signIn(filled(t).AdminToken())
				for path, ok := w.next(); ok; path, ok = w.next() {
					w.look(b, path)
				}
			})
		}
	})
	if t.Failed() || len(w.pages) == 0 {
		t.Fatal("the walk over the pages has not ended (it needs to run: -run TestEveryPage)")
	}
	return w
}

// next returns the next page to visit. It waits while another tab may find one, and returns false after the last.
func (w *walk) next() (path string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) > 0 {
			path, w.queue = w.queue[0], w.queue[1:]
			kind := kindOf(path)
			if _, seen := w.pages[kind]; !seen {
				w.pages[kind] = shownPage{}
				w.visiting++
				return path, true
			}
		}
		if w.visiting == 0 || len(w.pages) > maxKinds {
			return "", false
		}
		w.changed.Wait()
	}
}

// look visits a page and looks at it in every way. If the test ends on it, the other tabs continue.
func (w *walk) look(b *tab, path string) {
	b.t.Helper()
	var p shownPage
	var links []string
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pages[kindOf(path)] = p
		w.queue = append(w.queue, links...)
		w.visiting = max(0, w.visiting-1)
		w.changed.Broadcast()
	}()
	p, links = b.inspect(path)
	if p.status != http.StatusOK || p.file {
		return
	}
	p.barriers = b.barriers(path, w)
	p.scripted = b.withoutJavaScript(path)
}

// violations finds what the policy forbids, and what would send the reader elsewhere.
const violations = `(() => {
	const found = [];
	const note = (what, elements) => { for (const e of elements) found.push(what + ": " + e.outerHTML.slice(0, 200)); };
	note("inline script", document.querySelectorAll("script:not([src])"));
	note("inline style", document.querySelectorAll("style"));
	for (const e of document.querySelectorAll("*"))
		for (const a of e.attributes)
			if (a.name.startsWith("on")) found.push("inline handler: " + e.outerHTML.slice(0, 200));
	note("text that no template filled", [...document.querySelectorAll("main *")].filter((e) =>
		[...e.childNodes].some((n) => n.nodeType === 3 && /<no value>|%!|ZgotmplZ|\[object Object\]|\bNaN\b|\bundefined\b/.test(n.data))));
	return found;
})()`

// covered are the links and buttons of tables that something else lies above, such as the link of the row.
const covered = `[...document.querySelectorAll("main td :is(a:not(.row), button)")].filter((e) => e.checkVisibility()).filter((e) => {
	e.scrollIntoView({ block: "center" });
	const box = e.getClientRects()[0], at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
	return at && at !== e && !e.contains(at);
}).map((e) => "it cannot be pressed: " + e.outerHTML.slice(0, 200))`

// links are those of the page to other pages of the console, but for signing in.
const links = `[...document.querySelectorAll('a[href]:not([download])')]
	.filter((a) => a.origin === location.origin && a.pathname.startsWith("/console/") && !/^\/console\/(static\/|sign-)/.test(a.pathname))
	.map((a) => a.pathname + a.search)`

// inspect visits a page, and returns it with its links. A link to a file is no page.
func (b *tab) inspect(path string) (shownPage, []string) {
	b.t.Helper()
	b.taken()
	response, err := chromedp.RunResponse(b.ctx, chromedp.Navigate(b.base+path))
	if err != nil && strings.Contains(err.Error(), "net::ERR_ABORTED") { // a file, which the browser keeps
		return shownPage{path: path, status: http.StatusOK, file: true}, nil
	}
	if err != nil {
		b.t.Fatalf("at %s: %v", path, err)
	}
	b.await("the library of charts", charted)
	p := shownPage{path: path, status: response.Status}
	p.faults = append(eval[[]string](b, violations), eval[[]string](b, covered)...)
	found := eval[[]string](b, links)
	faults, requests := b.taken()
	p.faults = append(p.faults, faults...)
	p.bytes = eval[float64](b, weight)
	for _, r := range requests {
		if origin(r.url) != b.base && !strings.HasPrefix(r.url, "data:") {
			p.faults = append(p.faults, "a request to another origin: "+r.url)
		}
		if r.status >= http.StatusBadRequest && r.kind != "Document" {
			p.faults = append(p.faults, fmt.Sprintf("%s answers %d", r.url, r.status))
		}
	}
	if p.bytes > maxNext && p.bytes <= maxFirst { // the first page, and the first one with charts, which loads their library
		b.visit(path)
		b.await("the library of charts", charted)
		p.bytes = eval[float64](b, weight)
	}
	return p, found
}

// weight is the size of the page and of all that it has loaded on the wire, with headers. What comes from the cache has none.
const weight = `performance.getEntries().filter((e) => ["navigation", "resource"].includes(e.entryType)).reduce((sum, e) => sum + e.transferSize, 0)`

// notWalked are the routes of the console that are no page that the walk visits.
var notWalked = []string{
	"/console", "/console/", // the way to the overview, and the page for what does not exist, which the browser reports as an error
	"GET /console/live/stream",                                                                 // continues for minutes
	"GET /console/sign-in/provider", "GET /console/sign-in/callback", "GET /console/signed-in", // redirects
}

// visitsAllRoutes checks that the walk has visited a page of every route that the console has, so that a new page is found.
func visitsAllRoutes(t *testing.T, all map[string]shownPage) {
	t.Helper()
	list, err := os.ReadFile(filepath.Join("..", "..", "..", "controlplane", "internal", "console", "testdata", "routes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	mux, unvisited := http.NewServeMux(), map[string]bool{}
	for route := range strings.Lines(string(list)) {
		route = strings.TrimSpace(route)
		mux.Handle(route, http.NotFoundHandler())
		unvisited[route] = !strings.HasPrefix(route, "POST ") && !slices.Contains(notWalked, route)
	}
	for _, p := range all {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, route := mux.Handler(r)
		unvisited[route] = false
	}
	for _, route := range slices.Sorted(maps.Keys(unvisited)) {
		if unvisited[route] {
			t.Errorf("no link leads to a page of the route %s", route)
		}
	}
}

func TestCookieOpensNothingInTheAdminAPI(t *testing.T) {
	b := open(t)
	b.signIn(filled(t).AdminToken())
	for _, path := range []string{"/admin/v1/whoami", "/admin/v1/accounts", "/admin/v1/traffic", "/admin/v1/catalog"} {
		if status := eval[int](b, `fetch("`+path+`").then((r) => r.status)`); status != http.StatusUnauthorized {
			t.Errorf("%s with the cookie: got %d; want 401", path, status)
		}
	}
}

// The limits of the first page and of each further one, in bytes on the wire, and of the requests of the first.
const maxFirst, maxNext, maxRequests = 150 << 10, 40 << 10, 12

func areLight(t *testing.T, w *walk) {
	t.Helper()
	for _, p := range w.firsts {
		if p.bytes > maxFirst || p.requests > maxRequests || p.bytes == 0 {
			t.Errorf("as the first page %s has %.0f bytes in %d requests; want at most %d in %d", p.path, p.bytes, p.requests, maxFirst, maxRequests)
		}
		t.Logf("as the first page %s has %.0f bytes in %d requests", p.path, p.bytes, p.requests)
	}
	heaviest, most := "", 0.0
	for kind, p := range w.pages {
		if p.bytes > maxNext {
			t.Errorf("%s has %.0f bytes; want at most %d", p.path, p.bytes, maxNext)
		}
		if p.bytes == 0 && p.status == http.StatusOK && !p.file {
			t.Errorf("%s was not weighed", p.path)
		}
		if p.bytes > most {
			heaviest, most = kind, p.bytes
		}
	}
	t.Logf("the heaviest next page is %s with %.0f bytes", heaviest, most)
}
