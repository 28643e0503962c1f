// Package calls notes the calls of providers that did not serve a request, for its usage event.
package calls

import (
	"slices"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// List are the routes of a request that were skipped or that failed; nil in nearly all requests.
type List []event.Attempt

// Begin notes that a route is called. One that comes later because of a cooldown was not skipped in the end.
func (l *List) Begin(route string) {
	*l = slices.DeleteFunc(*l, func(a event.Attempt) bool { return a.Route == route && a.Skipped != "" })
}

// Note notes a route that was skipped or that failed. There is room for one more attempt, the one that serves the request.
func (l *List) Note(a event.Attempt) {
	if len(*l) == event.MaxAttempts-1 && a.Spent() { // what has cost something is more important than what was skipped
		if i := slices.IndexFunc(*l, func(a event.Attempt) bool { return a.Skipped != "" }); i >= 0 {
			*l = slices.Delete(*l, i, i+1)
		}
	}
	if len(*l) < event.MaxAttempts-1 {
		*l = append(*l, a)
	}
}

// With returns the list with one more attempt. It is of its own: what is noted later does not belong to it.
func (l *List) With(a event.Attempt) []event.Attempt { return append(slices.Clip(*l), a) }

// Spent is what a call has used that did not serve its request.
type Spent struct {
	Usage      price.Usage
	Estimated  bool
	ProviderID string
}

// SpentOf returns what an answer shows that its provider may charge for; zero if nothing. judge returns the usage of the answer.
func SpentOf(a format.Answer, judge func(complete bool) (price.Usage, usagereport.Reason)) Spent {
	if IsBare(a) {
		return Spent{}
	}
	usage, doubt := judge(false)
	return Spent{usage, doubt.Estimated(), a.ProviderID()}
}

// IsBare reports whether an answer shows nothing that a provider charges for.
func IsBare(a format.Answer) bool {
	usage, reported := a.Usage()
	if reported || usage.TotalInput() != 0 || usage.Output != 0 {
		return false
	}
	var delivered price.Usage
	a.AddDelivered(&delivered)
	return delivered == (price.Usage{})
}
