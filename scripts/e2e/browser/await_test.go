package browser

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// chromedpContext shortens the type of an action.
type chromedpContext = context.Context

// startLimit bounds the start of Chromium, actionLimit what a test does in a tab until the page has loaded. Both are far
// longer than it takes, for machines under load.
const startLimit, actionLimit = time.Minute, time.Minute

// await waits until an expression is true in the page. Navigations in between do not matter.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	rig.Await(b.t, what, func(context.Context) error {
		var done bool
		if err := chromedp.Run(b.ctx, chromedp.Evaluate(expression, &done)); err != nil {
			return fmt.Errorf("at %s: %w", b.at(), err)
		}
		if !done {
			return fmt.Errorf("not at %s", b.at())
		}
		return nil
	})
}

// awaitCharts waits until the charts have followed a change of the page's width.
func (b *tab) awaitCharts() {
	b.t.Helper()
	b.await("charts as wide as the page", `[...document.querySelectorAll("canvas")].every((c) => c.getBoundingClientRect().right <= innerWidth)`)
}
