// Package quote computes what a request is expected to use and to cost, before a provider is called.
package quote

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// Quote is the expected usage of a request and its cost.
type Quote struct {
	// Input is the estimated number of input tokens, for answers without usage.
	Input int64
	// Text is how many bytes of text the model has to read at least. The body is gone when a report is compared with it.
	Text int64
	// Usage is the usage that the reservation covers. Its input covers documents and audio as if they were plain text.
	Usage price.Usage
	// Tiers are the service tiers in which the request may be answered. Usage is in the dearest of them.
	Tiers format.ServiceTiers
	// Cost is the price of Usage. Reserve is the same, but zero for a video, which reserves nothing.
	Cost, Reserve money.Nano
}

// defaultImageInputTokens is the estimate for an image in a prompt if the settings have none.
const defaultImageInputTokens = 1000

// Of returns the quote of a request for a model at the prices of a sheet. tokensPerImage is the estimate for an image in
// a prompt; zero: the default. tiers are the service tiers in which the request may be answered. The error is that of
// price.Cost for a usage beyond all bounds.
func Of(
	f catalogkv.Format,
	r *format.Request,
	m *catalog.Model,
	sheet *price.Sheet,
	tokensPerImage int64,
	tiers format.ServiceTiers,
) (Quote, error) {
	q := Quote{Input: r.EstimateInput(cmp.Or(tokensPerImage, defaultImageInputTokens)), Text: r.TextLength(), Tiers: tiers}
	input := q.Input
	if files, addressed := r.MaxFileTokens(); files > 0 {
		q.Input += addressed
		if input += files; m.ContextWindow > 0 {
			q.Input, input = min(q.Input, m.ContextWindow), min(input, m.ContextWindow)
		}
	}

	q.Usage = expectedUsage(f, r, m, sheet, input)
	var err error
	if q.Usage.ServiceTier, q.Cost, err = price.Dearest(&q.Usage, sheet, tiers.Others); err != nil {
		return q, fmt.Errorf("quote: %w", err)
	}
	if f.Type() != catalogkv.Video {
		q.Reserve = q.Cost
	}

	return q, nil
}

// Tier returns the service tier at whose prices a usage is charged, if the answer names one, or none: the one that it names
// or, if it names none, the one that was asked for. If the answer cannot be in the tier that it names, because that has no
// price or the request has not asked for it, it is the dearest one in which it can be, and ok is false. So it is if the client
// has left while the answer said only that the provider chooses: it would otherwise choose what it pays. The tier is empty for a sheet
// with the default one only.
func (q *Quote) Tier(evidence *usagereport.Evidence, left bool, u *price.Usage, sheet *price.Sheet) (tier string, ok bool) {
	if len(sheet.ServiceTiers) == 0 {
		return "", true
	}
	switch named := q.named(evidence); {
	case named == format.AutoTier && left && q.Tiers.Asked == "":
		ok = true
	case named == "" || named == format.AutoTier:
		return cmp.Or(q.Tiers.Asked, price.DefaultTier), true
	case named == price.DefaultTier || slices.Contains(q.Tiers.Others, named):
		return named, true
	}
	tier, _, err := price.Dearest(u, sheet, q.Tiers.Others)
	if err != nil { // then the usage has no price in any tier
		tier = q.Tiers.Asked
	}
	return cmp.Or(tier, price.DefaultTier), ok
}

// named returns the service tier that an answer names. The fast mode has a member of its own beside it, and an answer that says
// nothing of the mode says nothing of whether it was made in the one that was asked for.
func (q *Quote) named(e *usagereport.Evidence) string {
	switch {
	case e.Speed == format.FastTier, e.Speed == "" && q.Tiers.Asked == format.FastTier:
		return format.FastTier
	case e.Speed != "":
		return cmp.Or(e.ServiceTier, price.DefaultTier)
	}
	return e.ServiceTier
}

func expectedUsage(f catalogkv.Format, r *format.Request, m *catalog.Model, sheet *price.Sheet, input int64) price.Usage {
	u := price.Usage{Size: r.Size, Quality: r.Quality}
	switch f.Type() {
	case catalogkv.Video:
		u.Seconds = cmp.Or(r.Seconds, m.DefaultSeconds, videos.DefaultSeconds)
	case catalogkv.Image:
		u.Images = r.Images * max(r.Frames, 1)
		if len(sheet.Rates) > 0 {
			u.Input = input
		}
	default:
		u.Input, u.Output = input, mulSaturating(outputBound(r, m), max(r.N, 1))
	}
	return u
}

// mulSaturating returns a*b for a > 0 and b > 0, or the largest int64 on overflow: such a usage has no price, or one
// that no balance covers.
func mulSaturating(a, b int64) int64 {
	if b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// outputBound is the expected output of one choice, in tokens; it is above zero.
func outputBound(r *format.Request, m *catalog.Model) int64 {
	bound := int64(0)
	for _, limit := range []int64{m.BoundedOutput(r.MaxOutput), m.ReserveOutputTokens} {
		if limit > 0 && (bound == 0 || limit < bound) {
			bound = limit
		}
	}
	if bound == 0 {
		return catalogkv.DefaultOutputReserve
	}
	return bound
}
