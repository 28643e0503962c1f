package browser

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// A shown page is one that a link of the console leads to.
type shownPage struct {
	path   string
	status int64
	// file is set if there is no page to look at.
	file bool
	// faults is what is wrong with the page by its policy, and what the browser complained about.
	faults []string
}

var walked struct {
	once  sync.Once
	pages map[string]shownPage
	// incomplete is set if the walk ended early.
	incomplete string
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

// pages visits one page of every kind that links of the console lead to, from the overview and the parts on, and returns
// them by kind. The first call walks.
func pages(t *testing.T) map[string]shownPage {
	t.Helper()
	b := open(t)
	walked.once.Do(func() {
		walked.incomplete = "the walk has failed"
		b.signIn(filled(t).AdminToken())
		walked.pages = map[string]shownPage{}
		for queue := []string{"/console/", "/console/parts"}; len(queue) > 0; queue = queue[1:] {
			kind := kindOf(queue[0])
			if _, seen := walked.pages[kind]; seen {
				continue
			}
			if len(walked.pages) == maxKinds {
				t.Fatalf("there are more than %d kinds of pages, the last one is %s", maxKinds, kind)
			}
			var links []string
			walked.pages[kind], links = b.inspect(queue[0])
			queue = append(queue, links...)
		}
		walked.incomplete = ""
	})
	if walked.incomplete != "" {
		t.Fatal(walked.incomplete)
	}
	return walked.pages
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

// links are those of the page to other pages of the console.
const links = `[...document.querySelectorAll('a[href]:not([download])')]
	.filter((a) => a.origin === location.origin && a.pathname.startsWith("/console/") && !a.pathname.startsWith("/console/static/"))
	.map((a) => a.pathname + a.search)`

// inspect visits a page, and returns it with its links. A link to a file is no page.
func (b *tab) inspect(path string) (shownPage, []string) {
	b.t.Helper()
	b.taken()
	if strings.HasPrefix(path, "/console/sign-") { // the link to sign in again, which ends in the same page
		return shownPage{path: path, status: http.StatusOK, file: true}, nil
	}
	response, err := chromedp.RunResponse(b.ctx, chromedp.Navigate(b.base+path))
	if err != nil && strings.Contains(err.Error(), "net::ERR_ABORTED") { // a file, which the browser keeps
		return shownPage{path: path, status: http.StatusOK, file: true}, nil
	}
	if err != nil {
		b.t.Fatalf("at %s: %v", path, err)
	}
	p := shownPage{path: path, status: response.Status}
	p.faults = eval[[]string](b, violations)
	found := eval[[]string](b, links)
	faults, requests := b.taken()
	p.faults = append(p.faults, faults...)
	for _, r := range requests {
		if origin(r.url) != b.base && !strings.HasPrefix(r.url, "data:") {
			p.faults = append(p.faults, "a request to another origin: "+r.url)
		}
		if r.status >= http.StatusBadRequest && r.kind != "Document" {
			p.faults = append(p.faults, fmt.Sprintf("%s answers %d", r.url, r.status))
		}
	}
	return p, found
}

func TestEveryPageKeepsThePolicy(t *testing.T) {
	all := pages(t)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		p := all[kind]
		if p.status != http.StatusOK {
			t.Errorf("%s: got %d; want 200", p.path, p.status)
		}
		for _, fault := range p.faults {
			t.Errorf("%s: %s", p.path, fault)
		}
	}
	t.Logf("%d kinds of pages: %s", len(all), strings.Join(slices.Sorted(maps.Keys(all)), " "))
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

func TestPagesAreLight(t *testing.T) {
	all := pages(t)
	b := open(t)
	b.signIn(filled(t).AdminToken())
	b.taken()
	weigh := func(path string) (bytes float64, requests int) {
		b.visit(path)
		_, made := b.taken()
		for _, r := range made {
			bytes += r.bytes
		}
		return bytes, len(made)
	}
	b.run(clearCache)
	bytes, requests := weigh("/console/")
	if bytes > maxFirst || requests > maxRequests || bytes == 0 {
		t.Errorf("the first page has %.0f bytes in %d requests; want at most %d in %d", bytes, requests, maxFirst, maxRequests)
	}
	t.Logf("the first page has %.0f bytes in %d requests", bytes, requests)
	heaviest, most := "", 0.0
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if all[kind].status != http.StatusOK || all[kind].file {
			continue
		}
		bytes, _ := weigh(all[kind].path)
		if bytes > maxNext && bytes <= maxFirst {
			bytes, _ = weigh(all[kind].path) // the first page with charts has loaded their library
		}
		if bytes > maxNext {
			t.Errorf("%s has %.0f bytes; want at most %d", all[kind].path, bytes, maxNext)
		}
		if bytes > most {
			heaviest, most = kind, bytes
		}
	}
	t.Logf("the heaviest next page is %s with %.0f bytes", heaviest, most)
}
