package browser

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/chromedp/chromedp"
)

// picturesVariable is a directory for pictures of the pages of walks, for people who look at them.
const picturesVariable = "PICTURES"

// picture takes a picture of the whole page, if somebody asks for it.
func (b *tab) picture(name string, width int64) {
	b.t.Helper()
	dir := os.Getenv(picturesVariable)
	if dir == "" {
		return
	}
	const best = 100 // of which Chromium makes PNG
	var shown []byte
	b.run(chromedp.FullScreenshot(&shown, best))
	if err := os.WriteFile(filepath.Join(dir, name+"-"+strconv.FormatInt(width, 10)+".png"), shown, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// cutAmounts are the amounts of money that are not shown whole: outside of what contains them, broken into lines, or behind something.
const cutAmounts = `[...document.querySelectorAll("main .money")].filter((e) => !e.closest("details:not([open])")).filter((e) => {
	const box = e.getBoundingClientRect(), within = e.closest("td, .tile, dd, .card")?.getBoundingClientRect();
	const lines = new Set([...e.getClientRects()].map((line) => Math.round(line.bottom)));
	return box.width === 0 || lines.size > 1 || within && (box.right > within.right + 1 || box.left < within.left - 1);
}).map((e) => e.textContent)`

// uneven are the columns of numbers whose figures do not end at one line, on a screen where tables are tables.
const uneven = `[...document.querySelectorAll("main table")].flatMap((table) => {
	const ends = {};
	for (const cell of table.querySelectorAll("tbody td.number")) {
		const figure = cell.querySelector(".money, .n"); // a cell may have a word
		if (!figure || getComputedStyle(cell).display !== "table-cell") continue;
		(ends[cell.cellIndex] ??= new Set()).add(Math.round(figure.getBoundingClientRect().right));
	}
	return Object.entries(ends).filter(([, at]) => at.size > 1).map(([i, at]) => table.rows[0].cells[i]?.textContent + ": " + [...at]);
})`

// looksRight checks that nothing of the page is cut off or reaches beyond the screen, and that amounts are whole.
func (b *tab) looksRight(name string, width int64) {
	b.t.Helper()
	b.await("the library of charts", charted)
	b.awaitCharts()
	b.picture(name, width)
	checks := map[string]string{"it is too wide": tooWide, "an amount is cut": cutAmounts}
	if width == wide {
		checks["it is cut off"], checks["figures are not aligned"] = clipped, uneven
	}
	for what, expression := range checks {
		for _, found := range eval[[]string](b, expression) {
			b.t.Errorf("%s at %d px: %s: %s", b.at(), width, what, found)
		}
	}
}
