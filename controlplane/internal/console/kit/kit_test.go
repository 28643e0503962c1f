package kit

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/view"
)

func TestNoticeTellsWhichProxiesActByAChange(t *testing.T) {
	t.Parallel()
	for want, header := range map[string]http.Header{
		"Applied by all 3 proxies: a, b, c.":                                        {"Applied": {"true"}, "Applied-By": {"a, b, c"}},
		"Applied by the one proxy, a.":                                              {"Applied": {"true"}, "Applied-By": {"a"}},
		"Applied by 2 of 4 proxies: a, b; proxy-3, proxy-7 will follow.":            {"Applied": {"false"}, "Applied-By": {"a, b"}, "Applied-Pending": {"proxy-3, proxy-7"}},
		"Applied by none of 2 proxies yet; a, b will follow.":                       {"Applied": {"false"}, "Applied-Pending": {"a, b"}},
		"Applied by all 14 proxies: a, b, c, d, e, f, g, h, i, j, k, l and 2 more.": {"Applied": {"true"}, "Applied-By": {"a, b, c, d, e, f, g, h, i, j, k, l, m, n"}},
		"": {"Applied": {"true"}},
	} {
		if got := Applied("Saved.", header).Progress(); got != want {
			t.Errorf("%v: got %q; want %q", header, got, want)
		}
	}
}

// A model that is closed is refused, so a route that is ready is not "closed", as its breaker is.
func TestRouteThatIsReadyIsNotShownAsClosed(t *testing.T) {
	t.Parallel()
	route := &adminclient.RouteHealth{Enabled: true, Breakers: []adminclient.Breaker{{Proxy: "proxy-1", State: adminclient.BreakerStateClosed}}}
	for _, cell := range newRouteRow(route, []string{"proxy-1", "proxy-2"}, nil, conditions{}).Cells {
		if want := (view.Badge{Kind: "good", Word: "ready"}); cell.Badge != want {
			t.Errorf("%s: got %v; want %v", cell.Proxy, cell.Badge, want)
		}
	}
}

func TestNoticeFitsIntoACookie(t *testing.T) {
	t.Parallel()
	n := &Notice{Kind: "good", Text: "Saved. “ü”", Applied: []string{"proxy-1"}, Pending: []string{"proxy-2"}}
	if diff := cmp.Diff(n, DecodeNotice(n.Encode())); diff != "" {
		t.Error(diff)
	}
	long := &Notice{Kind: "warn", Text: strings.Repeat("x", 10_000), Pending: []string{strings.Repeat("p", 10_000)}}
	if value := long.Encode(); len(value) > 4000 || DecodeNotice(value) == nil {
		t.Errorf("a long notice takes %d bytes", len(value))
	}
	for _, value := range []string{"", "?", "bnVsbA", "e30"} {
		if got := DecodeNotice(value); got != nil {
			t.Errorf("%q gives %v", value, got)
		}
	}
}

func TestAddressesAndCommandsAreEscaped(t *testing.T) {
	t.Parallel()
	u := &url.URL{Path: "/console/requests", RawQuery: "model=a&cursor=c&x=1"}
	for got, want := range map[string]string{
		Path("models", "a/b c"):        "/console/models/a%2Fb%20c",
		With(u, "model", "b", "x", ""): "/console/requests?model=b",
		With(u, "model", "", "x", ""):  "/console/requests",
		Command("usage list", "--model", "a b", "--key-id", "", "--from", "2026-01-31T14:00:00Z"): "gwctl usage list --model 'a b' --from 2026-01-31T14:00:00Z",
		Quote(`it's`): `'it'\''s'`,
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func TestMomentReadsTimesOfForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-01-31": "2026-01-31T00:00:00Z", "2026-01-31T14:00": "2026-01-31T14:00:00Z", "2026-01-31T14:00:01.5Z": "2026-01-31T14:00:01.5Z",
	} {
		at, err := Moment("from", text)
		if err != nil || at.Format("2006-01-02T15:04:05.999Z07:00") != want {
			t.Errorf("%q: got %v, %v", text, at, err)
		}
	}
	if _, err := Moment("from", "yesterday"); err == nil {
		t.Error("yesterday is taken for a time")
	}
}
