package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// spentOf returns the attempts of the only event, without their times.
func spentOf(t *testing.T, g *gateway) (event.Usage, []event.Attempt) {
	t.Helper()
	e := g.spool.next(t)
	for i := range e.Attempts {
		e.Attempts[i].MS = 0
	}
	return e, e.Attempts
}

// What a call reports that does not serve the request is in the event, and no part of what is charged.
func TestCallThatDoesNotServeTheRequestHasItsUsage(t *testing.T) {
	t.Parallel()
	wasted := calledRoute(0, "no_stream")
	wasted.Usage, wasted.ProviderRequestID = price.Usage{Input: 10, Output: 5}, "chatcmpl-1"
	g := newGateway(t, jsonAnswer(200, chatJSON), streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
	if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	e, got := spentOf(t, g)
	ignored := cmpopts.IgnoreFields(event.Attempt{}, "Class", "ProviderRequestID")
	if diff := cmp.Diff([]event.Attempt{wasted, calledRoute(1, "")}, got, ignored); diff != "" || got[0].ProviderRequestID == "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if e.Cost != chatCost || e.Usage != (price.Usage{Input: 10, Output: 5}) {
		t.Errorf("got %+v; want the usage of the second call alone", e)
	}

	second := calledRoute(1, "no_stream")
	second.Usage = wasted.Usage
	none := newGateway(t, jsonAnswer(200, chatJSON), jsonAnswer(200, chatJSON))
	none.post("/v1/chat/completions", chatStreamBody)
	e, got = spentOf(t, none)
	if diff := cmp.Diff([]event.Attempt{wasted, second}, got, ignored); diff != "" {
		t.Errorf("attempts that all fail (-want +got):\n%s", diff)
	}
	if e.Cost != 0 || e.Usage != (price.Usage{}) || e.Rule != event.RuleNone {
		t.Errorf("got %+v; want nothing charged", e)
	}
}

// What a stream has delivered to the proxy, and not to the client, is estimated.
func TestStreamThatFailsBeforeTheClientSeesItHasItsUsage(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		g := newGateway(t, streamAnswer(d.head+d.text+d.fault), streamAnswer(d.head, d.text, d.end))
		if got := g.post(d.path, d.body); got.status != http.StatusOK {
			t.Fatalf("%s: got %d %s", name, got.status, got.body)
		}
		e, got := spentOf(t, g)
		if len(got) != 2 || got[0].Route != "rte_0_text" || got[0].Usage.Output < 1 || got[0].Usage.TotalInput() < 1 || !got[0].Estimated || got[1].Spent() {
			t.Errorf("%s: got the attempts %+v", name, got)
		}
		if d.reported != 0 && len(got) > 0 && got[0].Usage.Input != d.reported {
			t.Errorf("%s: got the input %d; the provider reported %d", name, got[0].Usage.Input, d.reported)
		}
		if e.Cost != chatCost {
			t.Errorf("%s: got the cost %s; want that of the second call", name, e.Cost)
		}

		cut := newGateway(t, cutAfter(d.head, d.text))
		cut.post(d.path, d.body)
		if e, got := spentOf(t, cut); len(got) != 1 || got[0].Spent() || e.Usage.Output < 1 {
			t.Errorf("%s: a stream that the client has seen: %+v; want its usage in the event alone", name, e)
		}
	}
}

// A call that shows nothing has no usage: most failures cost nothing.
func TestCallThatShowsNothingHasNoUsage(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]http.HandlerFunc{
		"an error": jsonAnswer(500, `{}`), "an error in a stream": streamAnswer(chatEventError), "an end alone": streamAnswer(chatDone),
	} {
		g := newGateway(t, first, streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
		if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK {
			t.Fatalf("%s: got %d %s", name, got.status, got.body)
		}
		if _, got := spentOf(t, g); len(got) != 2 || got[0].Spent() || got[0].Estimated {
			t.Errorf("%s: got the attempts %+v", name, got)
		}
	}
}
