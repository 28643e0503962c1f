package console_test

import (
	"cmp"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/pgtest"
)

var (
	linkOf = regexp.MustCompile(`href="(/console/[^"]*)"`)
	idIn   = regexp.MustCompile(`[a-z]{2,5}_[0-9a-f]{32}`)
	// values are those of parameters by which pages differ in what they read; the others are filters and cursors.
	values = []string{"by", "sort", "tab", "range", "kind", "group"}
)

// kindOf returns the path and the names of the parameters of a page, without what names objects.
func kindOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return link
	}
	path := idIn.ReplaceAllString(u.Path, "…")
	if segments := strings.Split(path, "/"); len(segments) > 3 && slices.Contains([]string{"models", "providers"}, segments[2]) {
		segments[3] = "…"
		path = strings.Join(segments, "/")
	}
	var query []string
	for name := range u.Query() {
		if slices.Contains(values, name) {
			name += "=" + u.Query().Get(name)
		}
		query = append(query, name)
	}
	slices.Sort(query)
	return path + "?" + strings.Join(query, "&")
}

// firstByte opens a page and returns the time until its first byte, and the links on it.
func firstByte(b *consoletest.Browser, path string) (took time.Duration, links []string) {
	b.World.T.Helper()
	var began, first time.Time
	ctx := httptrace.WithClientTrace(b.World.T.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { first = time.Now() }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.World.URL+path, http.NoBody)
	servertest.Check(b.World.T, err)
	began = time.Now()
	answer, err := b.Client.Do(r)
	servertest.Check(b.World.T, err)
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	servertest.Check(b.World.T, err)
	// such as to the catalog, for a model that is not in it
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusSeeOther {
		b.World.T.Errorf("%s: got %d", path, answer.StatusCode)
	}
	for _, link := range linkOf.FindAllStringSubmatch(string(page), -1) {
		links = append(links, html.UnescapeString(link[1]))
	}
	return first.Sub(began), links
}

// files are links to what is no page.
var files = regexp.MustCompile(`^/console/(static/|sign-|live/stream)|/export\b|\.csv\b|/console/catalog/file`)

// BenchmarkPages opens a page of every kind that links of the console lead to, over the number of usage records in the variable
// MGW_BENCH_ROWS, and fails if the 95th percentile of the time to the first byte of one is above 150 ms. The page of the diagnosis
// may take longer: it checks the ledger.
func BenchmarkPages(b *testing.B) {
	rows, err := strconv.ParseInt(os.Getenv(pgtest.BenchRows), 10, 64)
	if err != nil {
		b.Skipf("%s is not set: it says how many usage records to write", pgtest.BenchRows)
	}
	const target, opened, most = 150 * time.Millisecond, 20, 400
	w := consoletest.Start(b)
	w.SmallCatalog()
	pgtest.FillUsage(b, w.DB.Pool(), rows)
	w.OneProxy()
	person := w.SignedIn(servertest.BootstrapToken)
	queue := []string{
		"/console/", "/console/accounts?sort=balance", "/console/accounts?sort=cost_7d", "/console/accounts?sort=hours_left", "/console/accounts?query=a",
		"/console/requests?status=failed", "/console/requests?provider=backup", "/console/requests?model=rare", "/console/requests?min_cost=0.5",
		"/console/usage?by=model", "/console/usage?by=account", "/console/usage?by=key", "/console/usage?by=provider", "/console/usage?by=day", "/console/audit",
	}
	first := map[string]string{} // the first page of each kind
	took := map[string][]time.Duration{}
	for len(queue) > 0 && len(first) < most {
		path := queue[0]
		queue = queue[1:]
		kind := kindOf(path)
		if _, seen := first[kind]; seen || files.MatchString(path) {
			continue
		}
		first[kind] = path
		for range opened {
			one, links := firstByte(person, path)
			took[kind] = append(took[kind], one)
			queue = append(queue, links...)
		}
	}
	for b.Loop() { // the figures are those of the requests above
	}
	p95 := map[string]time.Duration{}
	for kind, times := range took {
		slices.Sort(times)
		p95[kind] = times[len(times)*95/100]
	}
	kinds := slices.SortedFunc(maps.Keys(p95), func(a, c string) int { return cmp.Or(cmp.Compare(p95[c], p95[a]), cmp.Compare(a, c)) })
	for i, kind := range kinds {
		if p95[kind] > target && !strings.HasPrefix(kind, "/console/diagnosis") {
			b.Errorf("%s: %s, want at most %s", first[kind], p95[kind], target)
		}
		if i < 25 {
			b.Logf("%8.1f ms p95 %8.1f ms median  %s", ms(p95[kind]), ms(took[kind][len(took[kind])/2]), first[kind])
		}
	}
	b.ReportMetric(float64(len(kinds)), "kinds")
	b.ReportMetric(ms(p95[kinds[0]]), "ms-p95-slowest")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
