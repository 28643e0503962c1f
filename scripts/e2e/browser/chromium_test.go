package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// chromium is the browser of all tests. If it ends, the tests that use it fail, and the next one starts another.
var chromium struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // the browser of all tests
	stop context.CancelFunc
	// said is the end of what it has written.
	said tail
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (o *tail) Write(p []byte) (int, error) {
	const most = 8 << 10
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	o.text = o.text[max(len(o.text)-most, 0):]
	return len(p), nil
}

func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// names are the commands of Chromium on different systems.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// startChromium starts the browser of all tests, or skips the test where there is none.
func startChromium(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range names {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		missing := t.Skipf
		if os.Getenv("CI") != "" {
			missing = t.Fatalf
		}
		missing("needs Chromium: none of %s is in PATH (make test/browser installs Debian's)", strings.Join(names, ", "))
	}
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	if chromium.ctx != nil && chromium.ctx.Err() == nil {
		return chromium.ctx
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(startLimit), chromedp.CombinedOutput(&chromium.said),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocated)
	if err := chromedp.Run(ctx); err != nil {
		stop()
		t.Fatalf("Chromium does not start: %v\n%s", err, &chromium.said)
	}
	chromium.ctx, chromium.stop = ctx, stop //nolint:fatcontext // it is made once
	return ctx
}

// A tab is a tab of a browser of its own, with its own cookies. It notes the requests and what the browser complains about.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp finds the tab in it
	base string

	mu       sync.Mutex
	faults   []string
	requests []*request
	byID     map[network.RequestID]*request
}

// request is a request of a tab.
type request struct {
	url, kind string
	status    int64
}

// open opens a tab in a browser context of its own.
func open(t *testing.T) *tab {
	t.Helper()
	filled(t)
	running := startChromium(t)
	t.Cleanup(func() {
		if running.Err() != nil {
			t.Logf("Chromium has ended. It wrote at last:\n%s", &chromium.said)
		}
	})
	inBrowser := cdp.WithExecutor(running, chromedp.FromContext(running).Browser)
	own, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(inBrowser)
	if err != nil {
		t.Fatalf("open a browser: %v", err)
	}
	// Chromium has no window in a new browser context.
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(own).WithNewWindow(true).Do(inBrowser)
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	ctx, closeTab := chromedp.NewContext(running, chromedp.WithTargetID(id))
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx, base: front.url, byID: map[network.RequestID]*request{}}
	chromedp.ListenTarget(ctx, b.note)
	if err := chromedp.Run(ctx, log.Enable(), network.Enable(), page.Enable(), chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	return b
}

func (b *tab) note(happened any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fault := func(format string, args ...any) { b.faults = append(b.faults, fmt.Sprintf(format, args...)) }
	switch e := happened.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			for _, arg := range e.Args {
				fault("console.%s %s %s", e.Type, arg.Value, arg.Description)
			}
		}
	case *runtime.EventExceptionThrown:
		fault("%s", e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			fault("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if before := b.byID[e.RequestID]; before != nil && e.RedirectResponse != nil {
			before.status = e.RedirectResponse.Status
		}
		r := &request{url: e.Request.URL, kind: string(e.Type)}
		b.requests, b.byID[e.RequestID] = append(b.requests, r), r
	case *network.EventResponseReceived:
		if r := b.byID[e.RequestID]; r != nil {
			r.status = e.Response.Status
		}
	}
}

// taken returns the faults and requests since the last call.
func (b *tab) taken() (faults []string, requests []request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults = b.faults
	for _, r := range b.requests {
		requests = append(requests, *r)
	}
	b.faults, b.requests = nil, nil
	return faults, requests
}

// charted reports whether the page has the library that draws its charts, which is loaded after the page.
const charted = `!document.querySelector("figure[data-chart]") || performance.getEntriesByType("resource").some((e) => e.name.endsWith("/uPlot.esm.js"))`

// run does actions, and fails the test if one of them fails.
func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("at %s: %v", b.at(), err)
	}
}

// at returns the path and query of the page.
func (b *tab) at() string {
	var at string
	if chromedp.Run(b.ctx, chromedp.Location(&at)) != nil {
		return "?"
	}
	return strings.TrimPrefix(at, b.base)
}

// visit opens a page and returns its status.
func (b *tab) visit(path string) int64 {
	b.t.Helper()
	return b.load(chromedp.Navigate(b.base + path))
}

// load does actions that open a page and returns the page's status.
func (b *tab) load(actions ...chromedp.Action) int64 {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, actions...)
	if err != nil {
		b.t.Fatalf("at %s: %v", b.at(), err)
	}
	if response == nil {
		return 0 // from the history
	}
	return response.Status
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var value T
	b.run(chromedp.Evaluate(expression, &value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return value
}

// text returns the text of the page as people see it.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.body.innerText")
}

// signIn signs in with a token and returns the status of the page after it.
func (b *tab) signIn(token string) int64 {
	b.t.Helper()
	b.visit("/console/sign-in")
	return b.load(chromedp.SetValue("#token", token, chromedp.ByID), chromedp.Submit("#token", chromedp.ByID))
}

// origin returns the scheme and host of a URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Scheme + "://" + u.Host
}
