package browser

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

var clearCache = network.ClearBrowserCache()

// axe returns the program with the rules of accessibility, which make test/browser installs. Without it, missing says why.
func axe(t *testing.T) (rules, missing string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		missing = fmt.Sprintf("needs axe-core (scripts/npmci.sh scripts/tools/axe node_modules/axe-core/axe.min.js): %v", err)
		if os.Getenv("CI") != "" && os.Getenv("OFFLINE") == "" {
			t.Fatal(missing)
		}
	}
	return string(text), missing
}

// serious are the violations of a page that keep people from using it. No rule that runs needs the style sheets as text, which
// axe would load again for each run.
func serious(rules string) string {
	return `axe.run(document, {resultTypes: ["violations"], preload: false` + rules + `}).then((r) => r.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.any.concat(n.all).map((c) => c.message).join("; ")).join(" | ")))`
}

func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}})
}

// TestEveryPage walks over the console once, and tests what each page must hold. It is the first test, so that the pages
// show the demo alone.
func TestEveryPage(t *testing.T) {
	rig.Long(t)
	rules, missing := axe(t)
	w := walkPages(t, rules)
	kinds := slices.Sorted(maps.Keys(w.pages))
	each := func(t *testing.T, faults func(*shownPage) []string) {
		t.Helper()
		for _, kind := range kinds {
			p := w.pages[kind]
			for _, fault := range faults(&p) {
				t.Errorf("%s: %s", p.path, fault)
			}
		}
	}
	t.Run("keeps the policy", func(t *testing.T) {
		each(t, func(p *shownPage) []string {
			if p.status != http.StatusOK {
				return append(p.faults, fmt.Sprintf("got %d; want 200", p.status))
			}
			return p.faults
		})
		t.Logf("%d kinds of pages: %s", len(kinds), strings.Join(kinds, " "))
	})
	t.Run("is visited", func(t *testing.T) { visitsAllRoutes(t, w.pages) })
	t.Run("is light", func(t *testing.T) { areLight(t, w) })
	t.Run("is for everyone", func(t *testing.T) {
		each(t, func(p *shownPage) []string { return p.barriers })
		if missing != "" {
			t.Skip(missing)
		}
	})
	t.Run("is read without JavaScript", func(t *testing.T) {
		each(t, func(p *shownPage) []string { return p.scripted })
	})
}

// The widths of a screen and of a phone.
const wide, narrow = 1280, 390

// barriers looks at a loaded page at both widths and returns what keeps people from using it.
func (b *tab) barriers(path string, w *walk) (found []string) {
	b.t.Helper()
	if w.rules != "" {
		b.run(chromedp.Evaluate(w.rules, nil))
	}
	for _, width := range []int64{wide, narrow} {
		if width == narrow {
			b.narrow(path, w.rules)
		}
		b.awaitCharts()
		if is := eval[int64](b, pageWidth); is > width {
			found = append(found, fmt.Sprintf("it is %d pixels wide at %d", is, width))
		}
		for _, control := range eval[[]string](b, unfocused) {
			found = append(found, fmt.Sprintf("at %d: %s", width, control))
		}
		if w.rules == "" {
			continue
		}
		for _, check := range checksAt(path, width) {
			b.run(scheme(check.colours))
			for _, violation := range eval[[]string](b, serious(check.rules)) {
				if w.isNew(violation) {
					found = append(found, fmt.Sprintf("%s, %d: %s", check.colours, width, violation))
				}
			}
		}
	}
	b.run(chromedp.EmulateViewport(wide, 900), scheme("light"))
	return found
}

// narrow makes the screen that of a phone, with the navigation folded as on one. The script that folds it runs when a page is
// loaded, so the frame is loaded again.
func (b *tab) narrow(path, rules string) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(narrow, 900))
	if !isFrame(path) {
		b.run(chromedp.Evaluate(`document.querySelectorAll(".sidebar").forEach((e) => { e.open = false; })`, nil))
		return
	}
	b.visit(path)
	if rules != "" {
		b.run(chromedp.Evaluate(rules, nil))
	}
}

// isFrame reports whether a page stands for what all pages have: the frame and the parts.
func isFrame(path string) bool { return path == "/console/" || path == "/console/parts" }

// isNew reports whether no page had a violation before.
func (w *walk) isNew(violation string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.known[violation]
	w.known[violation] = true
	return !known
}

const pageWidth = `document.documentElement.scrollWidth`

// A check is a run of axe: all rules, or those of its option.
type check struct{ colours, rules string }

// checksAt returns the runs of axe that a page needs at a width. What an element is does not depend on the colours, and its
// colours do not depend on the width, so each rule runs where its result can differ: the rule of contrast, which takes most of
// the time, in both colours on wide screens, and all others in one. The frame and the parts, which have elements of their own
// on small screens, are tested with all rules everywhere.
func checksAt(path string, width int64) []check {
	const contrast, structure = `, runOnly: ["color-contrast"]`, `, rules: {"color-contrast": {enabled: false}}`
	if width < wide && !isFrame(path) {
		return []check{{"light", structure}}
	}
	return []check{{"light", ""}, {"dark", contrast}}
}

// focus describes the element that has the focus, and whether people can see that it has. Within a field for a time, the
// browser itself marks the part that has it.
const focus = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return "";
	const s = getComputedStyle(e), box = e.getBoundingClientRect();
	const shown = (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none" || e.type === "datetime-local";
	e.dataset.reached = "yes";
	return (shown && box.width > 0 && box.height > 0 ? "visible " : "hidden ") + e.outerHTML.slice(0, 120);
})()`

// unreached are the controls that people see and that have not had the focus.
const unreached = `[...document.querySelectorAll('a[href], button, input:not([type="hidden"]), select, textarea, summary')]
	.filter((e) => !e.disabled && e.checkVisibility({visibilityProperty: true}) && !e.dataset.reached && e.tabIndex >= 0)
	.map((e) => e.outerHTML.slice(0, 120))`

// unfocused are the controls of a page that the keyboard does not reach, or whose focus cannot be seen. Tab goes through all
// others in the order of the page, since none has an order of its own.
const unfocused = `[...document.querySelectorAll('a[href], button, input:not([type="hidden"]), select, textarea, summary')].flatMap((e) => {
	if (e.disabled || !e.checkVisibility({visibilityProperty: true})) return [];
	const name = e.outerHTML.slice(0, 160);
	if (e.tabIndex !== 0) return ["the keyboard does not reach " + name];
	e.focus({focusVisible: true});
	if (document.activeElement !== e) return ["it takes no focus: " + name];
	const s = getComputedStyle(e);
	const shown = (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none" || ["datetime-local", "date"].includes(e.type);
	return shown ? [] : ["the focus cannot be seen on " + name];
})`

// maxTabs bounds the controls of a page.
const maxTabs = 400

func TestEveryControlHasTheFocusByKeyboard(t *testing.T) {
	rig.Long(t)
	b := open(t)
	b.signIn(filled(t).AdminToken())
	for _, path := range []string{"/console/", "/console/accounts", "/console/accounts/new", "/console/requests"} {
		b.visit(path)
		for range maxTabs {
			b.run(chromedp.KeyEvent(kb.Tab))
			at := eval[string](b, focus)
			if strings.HasPrefix(at, "hidden") {
				t.Errorf("%s: the focus cannot be seen on %s", path, at)
			}
			if at == "" || len(eval[[]string](b, unreached)) == 0 {
				break
			}
		}
		for _, control := range eval[[]string](b, unreached) {
			t.Errorf("%s: the keyboard does not reach %s", path, control)
		}
	}
	b.visit("/console/accounts")
	b.run(chromedp.Focus(`nav a[href="/console/requests"]`, chromedp.ByQuery))
	b.load(chromedp.KeyEvent(kb.Enter))
	if b.at() != "/console/requests" {
		t.Errorf("Enter on a link leads to %s", b.at())
	}
}

func TestPagesWorkWithoutJavaScript(t *testing.T) {
	rig.Long(t)
	b := open(t)
	b.run(emulation.SetScriptExecutionDisabled(true))
	if status := b.signIn(filled(t).AdminToken()); status != http.StatusOK || b.at() != "/console/" {
		t.Fatalf("signing in: got %d at %s", status, b.at())
	}
	b.load(chromedp.Click(`nav a[href="/console/accounts"]`, chromedp.ByQuery))
	b.load(chromedp.Click(`main a[href^="/console/accounts/acc_"]`, chromedp.ByQuery))
	if !strings.HasPrefix(b.at(), "/console/accounts/acc_") {
		t.Errorf("a row of the list leads to %s", b.at())
	}
	b.visit("/console/accounts")
	b.load(chromedp.Click(`main a[href^="/console/accounts/new"]`, chromedp.ByQuery))
	name := fmt.Sprintf("Without JavaScript %d", os.Getpid())
	b.load(chromedp.SetValue(`main input[name="name"]`, name, chromedp.ByQuery), chromedp.Submit(`main input[name="name"]`, chromedp.ByQuery))
	if text := b.text(); !strings.HasPrefix(b.at(), "/console/accounts/acc_") || !strings.Contains(text, name) {
		t.Errorf("the form leads to %s: %q", b.at(), text)
	}
}

// withoutJavaScript loads a page on a phone that runs no scripts and returns what it lacks: a heading, and what waits for a
// script. Live views say that they need one.
func (b *tab) withoutJavaScript(path string) (lacks []string) {
	b.t.Helper()
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.EmulateViewport(narrow, 900))
	defer b.run(emulation.SetScriptExecutionDisabled(false), chromedp.EmulateViewport(wide, 900))
	if status := b.visit(path); status != http.StatusOK {
		lacks = append(lacks, fmt.Sprintf("got %d without JavaScript", status))
	}
	// The inspector evaluates this also where pages may run no scripts.
	if missing := eval[string](b, `!document.querySelector("main h1")?.textContent.trim() ? "a heading" :
		document.querySelector("main .loading") && location.pathname !== "/console/parts" ? "what a script loads" :
		[...document.querySelectorAll("main a[data-dialog]")].some((a) => !a.getAttribute("href").startsWith("/console/")) ? "the page of a form" : ""`); missing != "" {
		lacks = append(lacks, "without JavaScript it lacks "+missing)
	}
	if is := eval[int64](b, pageWidth); is > narrow {
		lacks = append(lacks, fmt.Sprintf("without JavaScript it is %d pixels wide at %d", is, narrow))
	}
	return lacks
}

func TestFilterAndConfirmedFormWorkWithoutJavaScript(t *testing.T) {
	rig.Long(t)
	b := open(t)
	b.run(emulation.SetScriptExecutionDisabled(true))
	b.signIn(filled(t).AdminToken())
	b.visit("/console/audit")
	b.load(chromedp.SetValue(`main input[name="action"]`, "token.create", chromedp.ByQuery), chromedp.Submit(`main input[name="action"]`, chromedp.ByQuery))
	if text := b.text(); !strings.Contains(b.at(), "action=token.create") || !strings.Contains(text, "token.create") || strings.Contains(text, "account.create") {
		t.Errorf("the filter leads to %s: %q", b.at(), text)
	}
	made, err := filled(t).Admin.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: "to be revoked", Scopes: []adminclient.Scope{adminclient.ScopeRead}})
	if err != nil {
		t.Fatal(err)
	}
	b.visit("/console/access")
	b.load(chromedp.Click(`main a[href="/console/access/`+made.Value.ID+`/revoke"]`, chromedp.ByQuery))
	b.load(chromedp.SetValue(`main input[name="confirmation"]`, "to be revoked", chromedp.ByQuery), chromedp.Click(`main button[value="do"]`, chromedp.ByQuery))
	if text := b.text(); b.at() != "/console/access" || !strings.Contains(text, "The token to be revoked is revoked.") {
		t.Errorf("the form leads to %s: %q", b.at(), text)
	}
}
