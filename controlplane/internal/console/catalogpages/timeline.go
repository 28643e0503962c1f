package catalogpages

import (
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/priceform"
	"modelgateway/controlplane/internal/console/view"
)

// The time line of prices shows at most so many past and scheduled prices next to that in force.
const maxPastPrices, maxScheduledPrices = 2, 3

// priceStep is a price on the time line.
type priceStep struct {
	*versionRow
	// Main are the most important lines, Others the number of further ones.
	Main    []priceform.Line
	Others  int
	InForce bool
}

// timeLine are prices in the order of time.
type timeLine struct {
	Steps []priceStep
	// Older and Later are the numbers of prices of the list before and after those shown.
	Older, Later int
}

// newTimeLine returns the prices around the one in force; nil if there is nothing to compare. The rows are newest first.
func newTimeLine(rows []versionRow) *timeLine {
	now := slices.IndexFunc(rows, func(row versionRow) bool { return row.Status == adminclient.PriceVersionStatusInForce })
	if now < 0 || len(rows) < 2 {
		return nil
	}
	first, last := max(now-maxScheduledPrices, 0), min(now+maxPastPrices, len(rows)-1)
	line := &timeLine{Older: len(rows) - 1 - last, Later: first}
	for i := last; i >= first; i-- {
		step := priceStep{versionRow: &rows[i], InForce: i == now}
		step.Main, step.Others = mainLines(rows[i].Lines)
		line.Steps = append(line.Steps, step)
	}
	return line
}

// priceBadge returns the badge of a price.
func priceBadge(status adminclient.PriceVersionStatus) view.Badge {
	kind := "idle"
	switch status {
	case adminclient.PriceVersionStatusInForce:
		kind = "good"
	case adminclient.PriceVersionStatusScheduled:
		kind = "info"
	case adminclient.PriceVersionStatusPast:
	}
	return view.Badge{Kind: kind, Word: view.State(string(status)).Word}
}

// mainLines returns the most important lines of a price and the number of the others.
func mainLines(lines []priceform.Line) (most []priceform.Line, others int) {
	for _, line := range lines {
		if line.Name == "input" || line.Name == "output" || line.Per != priceform.PerTokens && len(most) < 2 {
			most = append(most, line)
		}
	}
	return most, len(lines) - len(most)
}
