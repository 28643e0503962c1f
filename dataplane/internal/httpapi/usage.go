package httpapi

import (
	"cmp"

	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// usage returns the usage to charge for the answer so far, and the reason to doubt the reported one. complete reports
// whether the answer is.
func (r *relay) usage(complete bool) (price.Usage, usagereport.Reason) {
	usage, reported := r.reader.Usage()
	evidence := r.reader.Evidence()
	usage, doubt := usagereport.Judge(usage, reported, complete, &evidence, &usagereport.Request{
		Input:           r.quote.Input,
		Text:            r.quote.Text,
		MaxInput:        r.maxInput,
		MaxOutput:       r.maxOutput,
		ByToken:         len(r.sheet.Rates) > 0,
		AudioByToken:    r.sheet.HasRate(price.AudioOut),
		ImagesByToken:   r.sheet.HasRate(price.ImageOut),
		PicturesByToken: r.sheet.PricesImagesByToken(usage.Size, usage.Quality),
	})
	if !reported {
		r.reader.AddDelivered(&usage)
	}
	if doubt.Estimated() {
		usage.Size, usage.Quality = cmp.Or(usage.Size, r.request.Size), cmp.Or(usage.Quality, r.request.Quality)
	}

	r.setTier(&usage, false)
	return usage, doubt
}

// setTier sets the service tier whose prices apply to a usage. left reports whether the client has left the answer.
func (r *relay) setTier(usage *price.Usage, left bool) {
	evidence := r.reader.Evidence()
	var known bool
	usage.ServiceTier, known = r.quote.Tier(&evidence, left, usage, r.sheet)
	r.hasOddTier = !known
}

// ruleOf returns the billing rule of a usage.
func ruleOf(doubt usagereport.Reason) string {
	if doubt.Estimated() {
		return event.RuleEstimated
	}
	return event.RuleReported
}
