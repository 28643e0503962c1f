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
	b := open(t)
	r := filled(t)
	b.signIn(r.AdminToken())
	b.visit("/console/accounts")
	serving := r.ControlPlanes()[0] // the first that accepts connections
	r.Halt(t, serving)
	t.Cleanup(func() { r.Resume(t, serving) })
	if status := b.load(chromedp.Click(`nav a[href="/console/requests"]`, chromedp.ByQuery)); status != http.StatusOK || b.at() != "/console/requests" {
		t.Errorf("the next click leads to %s with %d", b.at(), status)
	}
}

func TestPagesSaySinceWhenTheDatabaseIsAwayAndReturnByThemselves(t *testing.T) {
	live, b := open(t), open(t)
	r := filled(t)
	live.signIn(r.AdminToken())
	live.visit("/console/live")
	live.await("the stream", `document.querySelector("#live [data-state]").textContent.includes("All 2 proxies are heard")`)
	b.signIn(r.AdminToken())
	b.visit("/console/accounts")
	r.End(t, rig.Postgres)
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			r.Resume(t, rig.Postgres)
		}
	})
	status := b.load(chromedp.Click(`nav a[href="/console/requests"]`, chromedp.ByQuery))
	if text := b.text(); status != http.StatusServiceUnavailable || !strings.Contains(text, "It has not answered since 20") {
		t.Errorf("got %d: %q", status, text)
	}
	answer := r.Do(t, rig.Request{Method: http.MethodPost, Path: "/v1/chat/completions", Body: "{}"}) // without a key, which a proxy refuses by itself
	if answer.Status != http.StatusUnauthorized {
		t.Errorf("a request without a key: got %s", answer)
	}
	live.await("the request in the live view", fmt.Sprintf(`document.querySelector("#live tbody").innerHTML.includes(%q)`, last(answer.RequestID())))
	r.Resume(t, rig.Postgres)
	resumed = true
	b.await("the page that was asked for", `document.querySelector("main h1")?.textContent.trim() === "Requests" && document.querySelector("main table.list") !== null`)
	r.AwaitSessions(t)
}

// last returns the end of an id, which lists show.
func last(id string) string { return id[len(id)-4:] }

var unheard = regexp.MustCompile(`1 of 2 proxies are heard; dp-2 was heard \d+ s ago`)

func TestFrozenProxyIsToldWithItsAge(t *testing.T) {
	b := open(t)
	r := filled(t)
	b.signIn(r.AdminToken())
	read := func(want string, done func(text string) bool) {
		t.Helper()
		rig.Await(t, want, func(context.Context) error {
			b.visit("/console/routes")
			if text := b.text(); !done(text) {
				return fmt.Errorf("got %q", text)
			}
			return nil
		})
	}
	read("both proxies", func(text string) bool { return strings.Contains(text, "2 of 2 proxies are heard") })
	resume := r.Pause(t, rig.DataPlane(1))
	read("the age of the frozen proxy", unheard.MatchString)
	if text := b.text(); !strings.Contains(text, "not known") {
		t.Errorf("the breakers of the frozen proxy are shown as known: %q", text)
	}
	resume()
	read("both proxies again", func(text string) bool { return strings.Contains(text, "2 of 2 proxies are heard") })
	r.AwaitSessions(t)
}
