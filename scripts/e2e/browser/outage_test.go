package browser

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

func TestNextClickWorksOnTheOtherControlPlane(t *testing.T) {
	rig.Long(t)
	live, b := open(t), open(t)
	r := filled(t)
	live.signIn(r.AdminToken())
	live.visit("/console/live")
	live.await("the stream", allHeard)
	b.signIn(r.AdminToken())
	b.visit("/console/accounts")
	serving := r.ControlPlanes()[0] // the first that accepts connections
	r.Halt(t, serving)
	t.Cleanup(func() { r.Resume(t, serving) })
	if status := b.load(chromedp.Click(`nav a[href="/console/requests"]`, chromedp.ByQuery)); status != http.StatusOK || b.at() != "/console/requests" {
		t.Errorf("the next click leads to %s with %d", b.at(), status)
	}
	if text := b.text(); !strings.Contains(text, "bootstrap") || strings.Contains(text, "Sign in") {
		t.Errorf("the person is not signed in any more: %q", text)
	}
	live.await("the live view with the other control plane", `document.querySelector("[data-state]").textContent.startsWith("Live.")`)
	row := refused(t, r)
	live.await("a request in the live view", row)
}

// allHeard is true in a live view that is of both proxies.
const allHeard = `document.querySelector("[data-state]").textContent.includes("All 2 proxies are heard")`

// refused sends a request without a key, which a proxy refuses by itself. It returns the expression that is true when a live
// view shows it.
func refused(t *testing.T, r *rig.Rig) string {
	t.Helper()
	answer := r.Do(t, rig.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Body: "{}"})
	if answer.Status != http.StatusUnauthorized {
		t.Errorf("a request without a key: got %s", answer)
	}
	return fmt.Sprintf(`document.querySelector("#live tbody").innerHTML.includes(%q)`, last(answer.RequestID()))
}

func TestPagesSaySinceWhenTheDatabaseIsAwayKeepLiveDataAndReturnByThemselves(t *testing.T) {
	rig.Long(t)
	earlier, live, overview, b := open(t), open(t), open(t), open(t)
	r := filled(t)
	for _, tab := range []*tab{earlier, live, overview, b} {
		tab.signIn(r.AdminToken())
	}
	earlier.visit("/console/live")
	earlier.await("the stream", allHeard)
	overview.visit("/console/")
	b.visit("/console/accounts")
	r.End(t, rig.Postgres)
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			r.Resume(t, rig.Postgres)
		}
	})
	status := b.load(chromedp.Click(`nav a[href="/console/requests"]`, chromedp.ByQuery))
	if text := b.text(); status != http.StatusServiceUnavailable || !strings.Contains(text, "The database has not answered since 20") {
		t.Errorf("got %d: %q", status, text)
	}
	// The overview was open before: it renews what is live, and keeps the rest with its age.
	overview.await("the banner of the overview", `document.getElementById("banners").innerText.includes("The database has not answered since 20")`)
	text := overview.text()
	for _, want := range []*regexp.Regexp{regexp.MustCompile(`(?i)proxies\s+2 of 2`), regexp.MustCompile(`(?i)in flight\s+\d+`), regexp.MustCompile(`read at \d\d:\d\d:\d\d UTC, not known since`)} {
		if !want.MatchString(text) {
			t.Errorf("the overview in the outage has no %s: %q", want, text)
		}
	}
	// A live view continues, and one can be opened.
	if status := live.visit("/console/live"); status != http.StatusOK {
		t.Errorf("the live view in the outage: got %d", status)
	}
	live.await("the new stream", allHeard)
	if text := live.text(); !strings.Contains(text, "The database has not answered since 20") {
		t.Errorf("the live view does not tell: %q", text)
	}
	row := refused(t, r)
	earlier.await("the request in the earlier live view", row)
	live.await("the request in the new live view", row)
	r.Resume(t, rig.Postgres)
	resumed = true
	b.await("the page that was asked for", `document.querySelector("main h1")?.textContent.trim() === "Requests" && document.querySelector("main table.list") !== null`)
	overview.await("the whole overview", `!document.getElementById("banners").innerText.includes("has not answered") && document.querySelector(".charts") !== null`)
	live.await("the live view without the banner, with its rows", `!document.getElementById("banners").innerText.includes("has not answered") && `+row)
	r.AwaitSessions(t)
}

// last returns the end of an id, which lists show.
func last(id string) string { return id[len(id)-4:] }

var unheard = regexp.MustCompile(`1 of 2 proxies are heard; dp-2 was heard \d+ s ago`)

func TestFrozenProxyIsToldWithItsAge(t *testing.T) {
	rig.Long(t)
	b, live := open(t), open(t)
	r := filled(t)
	b.signIn(r.AdminToken())
	live.signIn(r.AdminToken())
	live.visit("/console/live")
	live.await("the stream", allHeard)
	read := func(path, want string, done func(text string) bool) string {
		t.Helper()
		text := ""
		rig.Await(t, want, func(context.Context) error {
			b.visit(path)
			if text = b.text(); !done(text) {
				return fmt.Errorf("got %q", text)
			}
			return nil
		})
		return text
	}
	both := func(text string) bool { return strings.Contains(text, "2 of 2 proxies are heard") }
	read("/console/routes", "both proxies", both)
	resume := r.Pause(t, rig.DataPlane(1))
	if text := read("/console/routes", "the age of the frozen proxy", unheard.MatchString); !strings.Contains(text, "not known") {
		t.Errorf("the breakers of the frozen proxy are shown as known: %q", text)
	}
	text := read("/console/", "the age of the frozen proxy on the overview", unheard.MatchString)
	if !regexp.MustCompile(`(?i)proxies\s+1 of 2`).MatchString(text) || !strings.Contains(text, "what the others do is unknown") {
		t.Errorf("the figures of the overview do not tell of how many proxies they are: %q", text)
	}
	live.await("the age of the frozen proxy in the live view", `/1 of 2 proxies are heard; dp-2 was heard \d+ s ago/.test(document.querySelector("[data-state]").textContent)`)
	resume()
	read("/console/routes", "both proxies again", both)
	live.await("both proxies in the live view", allHeard)
	r.AwaitSessions(t)
}

func TestFiguresAreUnknownWhileEveryProxyIsFrozen(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	b.signIn(r.AdminToken())
	var resumes []func()
	for i := range r.Proxies {
		resumes = append(resumes, r.Pause(t, rig.DataPlane(i)))
	}
	rig.Await(t, "unknown figures", func(context.Context) error {
		b.visit("/console/")
		for _, figure := range []string{"Requests", "Success", "First token, p95", "In flight", "Refused"} {
			if text := b.text(); !regexp.MustCompile(`(?i)` + figure + `\s+unknown`).MatchString(text) {
				return fmt.Errorf("%s is not unknown: %q", figure, text)
			}
		}
		return nil
	})
	for _, resume := range resumes {
		resume()
	}
	r.AwaitSessions(t)
}
