package browser

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"modelgateway/controlplane/adminclient"
)

var clearCache = network.ClearBrowserCache()

// axe returns the program with the rules of accessibility, which make test/browser installs.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		missing := t.Skipf
		if os.Getenv("CI") != "" && os.Getenv("OFFLINE") == "" {
			missing = t.Fatalf
		}
		missing("needs axe-core (scripts/npmci.sh scripts/tools/axe node_modules/axe-core/axe.min.js): %v", err)
	}
	return string(text)
}

// serious are the violations of a page that keep people from using it. Colours need the one rule about them: all others look at
// what the page consists of.
func serious(rules string) string {
	return `axe.run(document, {resultTypes: ["violations"]` + rules + `}).then((r) => r.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.any.concat(n.all).map((c) => c.message).join("; ")).join(" | ")))`
}

func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}})
}

func TestPagesAreForEveryone(t *testing.T) {
	rules := axe(t)
	all := pages(t)
	for _, width := range []int64{1280, 390} {
		t.Run(strconv.FormatInt(width, 10), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.signIn(filled(t).AdminToken())
			b.run(chromedp.EmulateViewport(width, 900))
			known := map[string]bool{} // another page has the same
			for _, kind := range slices.Sorted(maps.Keys(all)) {
				if all[kind].status == http.StatusOK && !all[kind].file {
					b.isForEveryone(all[kind].path, width, rules, known)
				}
			}
		})
	}
}

// isForEveryone tests one page.
func (b *tab) isForEveryone(path string, width int64, rules string, known map[string]bool) {
	b.run(scheme("light"))
	b.visit(path)
	if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > width {
		b.t.Errorf("%s is %d pixels wide at %d", path, wide, width)
	}
	for _, control := range eval[[]string](b, unfocused) {
		b.t.Errorf("%s, %d: %s", path, width, control)
	}
	b.run(chromedp.Evaluate(rules, nil))
	for _, check := range []struct{ colours, rules string }{{"light", ""}, {"dark", `, runOnly: ["color-contrast"]`}} {
		b.run(scheme(check.colours))
		for _, violation := range eval[[]string](b, serious(check.rules)) {
			if !known[violation] {
				known[violation] = true
				b.t.Errorf("%s, %s, %d: %s", path, check.colours, width, violation)
			}
		}
	}
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

// Every page has its content without JavaScript: a heading, and no part that waits for a script. Live views say that they need one.
func TestEveryPageIsReadWithoutJavaScript(t *testing.T) {
	all := pages(t)
	b := open(t)
	b.run(emulation.SetScriptExecutionDisabled(true))
	b.signIn(filled(t).AdminToken())
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if all[kind].status != http.StatusOK || all[kind].file {
			continue
		}
		if status := b.visit(all[kind].path); status != http.StatusOK {
			t.Errorf("%s: got %d", all[kind].path, status)
		}
		// The inspector evaluates this also where pages may run no scripts.
		if missing := eval[string](b, `!document.querySelector("main h1")?.textContent.trim() ? "a heading" :
			document.querySelector("main .loading") && location.pathname !== "/console/parts" ? "what a script loads" :
			[...document.querySelectorAll("main a[data-dialog]")].some((a) => !a.getAttribute("href").startsWith("/console/")) ? "the page of a form" : ""`); missing != "" {
			t.Errorf("%s lacks %s", all[kind].path, missing)
		}
	}
}

func TestFilterAndConfirmedFormWorkWithoutJavaScript(t *testing.T) {
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
