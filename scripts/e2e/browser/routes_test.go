package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// shownBreaker is the circuit breaker of a route at a proxy, as a page shows it, with exact times.
type shownBreaker struct{ Proxy, State, Text string }

const breakers = `[...document.querySelectorAll("table.matrix tbody tr")]
	.filter((row) => row.querySelector("td a").textContent === %q)
	.flatMap((row) => [...row.querySelectorAll("td.breaker")])
	.map((cell) => {
		const text = cell.querySelector("small")?.cloneNode(true);
		text?.querySelectorAll("time").forEach((time) => { time.textContent = time.dateTime; });
		return { proxy: cell.dataset.label, state: cell.querySelector(".badge").textContent, text: text?.textContent ?? "" };
	})`

// awaitBreakers waits until the page of routes shows the breaker of a model's only route in a state at every proxy. It calls
// before ahead of each look at the page.
func (b *tab) awaitBreakers(r *rig.Rig, model, state string, before func()) []shownBreaker {
	b.t.Helper()
	return b.awaitBreakersAt("/console/routes", r, model, state, before)
}

// awaitBreakersAt is awaitBreakers of another page that shows routes.
func (b *tab) awaitBreakersAt(path string, r *rig.Rig, model, state string, before func()) []shownBreaker {
	b.t.Helper()
	var shown []shownBreaker
	rig.Await(b.t, path+" to show the breakers of "+model+" as "+state, func(context.Context) error {
		before()
		b.visit(path)
		shown = eval[[]shownBreaker](b, fmt.Sprintf(breakers, model))
		for i := range r.Proxies {
			if len(shown) != len(r.Proxies) || shown[i].Proxy != rig.DataPlane(i) || shown[i].State != state {
				return fmt.Errorf("got %+v", shown)
			}
		}
		return nil
	})
	return shown
}

// askEach sends a chat request with a key by every proxy.
func askEach(t *testing.T, r *rig.Rig, key, model string) []*rig.Answer {
	t.Helper()
	answers := make([]*rig.Answer, len(r.Proxies))
	for i := range r.Proxies {
		answers[i] = r.Do(t, rig.Request{Proxy: i, Path: "/v1/chat/completions", Key: key, Body: map[string]any{
			"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello there"}},
		}})
	}
	return answers
}

// times checks that a text matches a pattern whose groups are times in the order of their names, and returns them by name.
func times(t *testing.T, pattern *regexp.Regexp, text string) map[string]time.Time {
	t.Helper()
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("got %q; want %s", text, pattern)
	}
	all := map[string]time.Time{}
	for i, name := range pattern.SubexpNames()[1:] {
		at, err := time.Parse(time.RFC3339Nano, found[i+1])
		if err != nil {
			t.Fatalf("%s in %q: %v", name, text, err)
		}
		all[name] = at
	}
	return all
}

var (
	openText     = regexp.MustCompile(`^since (?P<since>\S+); next try (?P<next>\S+); last failure: unavailable, (?P<failed>\S+)$`)
	halfOpenText = regexp.MustCompile(`^since (?P<since>\S+); the next request probes it; last failure: unavailable, (?P<failed>\S+)$`)
	closedText   = regexp.MustCompile(`^last failure: unavailable, (?P<failed>\S+)$`)
)

func TestRouteThatFailsIsShownOpenAtEachProxyUntilItRecovers(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	upstream := "recovering-" + rig.Unique()
	model := r.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: upstream}}})
	account := r.Account(t, rig.AccountSpec{})
	b.signIn(r.AdminToken())
	began := time.Now()
	heal := r.Sim.Fail(t, upstream, "status=502")
	shown := b.awaitBreakers(r, model, "open", func() { askEach(t, r, account.Key, model) })
	now := time.Now()
	for _, breaker := range shown {
		at := times(t, openText, breaker.Text)
		if at["since"].Before(began) || at["since"].After(now) || at["failed"].Before(began) || at["failed"].After(now) || !at["next"].After(at["failed"]) {
			t.Errorf("%s: %v; want failures between %s and %s", breaker.Proxy, at, began, now)
		}
	}
	heal()
	shown = b.awaitBreakers(r, model, "half open", func() {})
	for _, path := range []string{"/console/models/" + model, "/console/providers/" + rig.SimProvider} {
		shown = append(shown, b.awaitBreakersAt(path, r, model, "half open", func() {})...)
	}
	for _, breaker := range shown {
		if at := times(t, halfOpenText, breaker.Text); at["since"].Before(began) || at["failed"].Before(began) || at["failed"].After(time.Now()) {
			t.Errorf("%s: %v; want failures since %s", breaker.Proxy, at, began)
		}
	}
	for i, answer := range askEach(t, r, account.Key, model) {
		if answer.Status != http.StatusOK {
			t.Errorf("the probe of %s: got %s", rig.DataPlane(i), answer)
		}
	}
	for _, breaker := range b.awaitBreakers(r, model, "ready", func() {}) {
		times(t, closedText, breaker.Text)
	}
}

func TestResetFromThePageLetsRequestsCallTheRouteAtOnce(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	upstream := "reset-" + rig.Unique()
	model := r.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: upstream}}})
	account := r.Account(t, rig.AccountSpec{})
	b.signIn(r.AdminToken())
	heal := r.Sim.Fail(t, upstream, "status=502")
	b.awaitBreakers(r, model, "open", func() { askEach(t, r, account.Key, model) })
	health, err := r.Admin.GetRoutesHealth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, route := range health.Value.Data {
		if route.Model == model {
			id = route.RouteID
		}
	}
	const button = `dialog button[name="step"][value="do"]`
	b.run(chromedp.Click(`a[href="/console/routes/`+id+`/reset"]`, chromedp.ByQuery), chromedp.WaitVisible(button, chromedp.ByQuery))
	b.load(chromedp.Click(button, chromedp.ByQuery))
	b.has("The route was reset.", "Applied by all 2 proxies")
	// The provider still fails: a breaker that is half-open would let only one request pass.
	const each = 5
	before := len(r.Sim.Journal(t, upstream))
	for range each {
		askEach(t, r, account.Key, model)
	}
	if got := len(r.Sim.Journal(t, upstream)) - before; got < each*len(r.Proxies) {
		t.Errorf("%d of %d requests reached the provider after the reset", got, each*len(r.Proxies))
	}
	heal()
	for _, breaker := range b.awaitBreakers(r, model, "ready", func() { askEach(t, r, account.Key, model) }) {
		times(t, closedText, breaker.Text)
	}
}

func TestModelClosedFromItsPageRefusesWithTheMessageAndOpensByItself(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	model := r.Model(t, rig.Model{})
	account := r.Account(t, rig.AccountSpec{})
	b.signIn(r.AdminToken())
	const message, button = "We move it to faster machines.", `dialog button[name="step"][value="do"]`
	b.visit("/console/models/" + model)
	b.run(chromedp.Click(`main a[href^="/console/maintenance/close"]`, chromedp.ByQuery), chromedp.WaitVisible(button, chromedp.ByQuery))
	// People choose a minute; the test does not wait so long. The model stays closed for as long as it takes to see that.
	const length = 20 * time.Second
	until := time.Now().UTC().Truncate(time.Second).Add(length)
	b.run(chromedp.SetAttributeValue(`dialog [name="until"]`, "step", "1", chromedp.ByQuery),
		chromedp.SetValue(`dialog [name="message"]`, message, chromedp.ByQuery),
		chromedp.SetValue(`dialog [name="until"]`, until.Format("2006-01-02T15:04:05"), chromedp.ByQuery))
	b.load(chromedp.Click(button, chromedp.ByQuery))
	b.has("It is closed.", "Applied by all 2 proxies", "Closed: requests are refused with 503, “"+message+"”")
	for i, answer := range askEach(t, r, account.Key, model) {
		pause, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		if answer.Status != http.StatusServiceUnavailable || answer.Problem(t).Message != message || err != nil || pause < 1 || pause > int(length.Seconds()) {
			t.Errorf("%s while the model is closed: got %s, Retry-After %q", rig.DataPlane(i), answer, answer.Header.Get("Retry-After"))
		}
	}
	b.awaitBreakers(r, model, "in maintenance", func() {})
	for i := range r.Proxies {
		r.AwaitStatus(t, rig.Request{Proxy: i, Path: "/v1/chat/completions", Key: account.Key, Body: map[string]any{
			"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello there"}},
		}}, http.StatusOK)
		if time.Now().Before(until) {
			t.Errorf("%s serves the model before the end of its maintenance", rig.DataPlane(i))
		}
	}
	b.awaitBreakers(r, model, "ready", func() {})
	b.visit("/console/models/" + model)
	if text := b.text(); strings.Contains(text, "Closed: requests are refused") || strings.Contains(text, message) {
		t.Errorf("the model's page shows it as closed after the end:\n%s", text)
	}
}

// apart names the bars of calls that are not below their figure, and the cells of the matrix that are wider than their card.
const apart = `[...document.querySelectorAll("table.matrix td")].flatMap((cell) => {
	const box = cell.getBoundingClientRect(), bar = cell.querySelector(".bar")?.getBoundingClientRect();
	const row = cell.parentElement.getBoundingClientRect();
	const wrong = bar && (Math.abs(bar.left - box.left) > 1 || bar.right > box.right) || box.right > row.right || cell.scrollWidth > cell.clientWidth + 1;
	return wrong ? [cell.dataset.label + ": " + cell.textContent] : [];
})`

func TestMatrixOfRoutesFitsASmallScreen(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{})
	b.signIn(r.AdminToken())
	b.run(chromedp.EmulateViewport(390, 900))
	for _, path := range []string{"/console/routes", "/console/models/" + model, "/console/providers/" + rig.SimProvider} {
		rig.Await(t, path+" to have a bar of calls", func(context.Context) error {
			askEach(t, r, account.Key, model)
			b.visit(path)
			if !eval[bool](b, `document.querySelector("table.matrix .bar") !== null`) {
				return errors.New("there is none")
			}
			return nil
		})
		for _, cell := range eval[[]string](b, apart) {
			t.Errorf("%s: %s", path, cell)
		}
		if width := eval[int](b, "document.documentElement.scrollWidth"); width > 390 {
			t.Errorf("%s is %d px wide", path, width)
		}
	}
}
