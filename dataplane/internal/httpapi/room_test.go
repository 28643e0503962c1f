package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

// imageOf returns an answer with an image of n bytes.
func imageOf(n int) string {
	return `{"created":1,"data":[{"b64_json":"` + strings.Repeat("A", n) + `"}]}`
}

// The provider has been paid for it.
func TestAnswerBeyondTheBudgetIsDeliveredAndCharged(t *testing.T) {
	t.Parallel()
	large := imageOf(18 * mib)
	chunked := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for len(large) > 0 { // without a length
			n := min(len(large), 1*mib)
			_, _ = w.Write([]byte(large[:n]))
			w.(http.Flusher).Flush()
			large = large[n:]
		}
	}
	want := large
	for name, answer := range map[string]http.HandlerFunc{"with a length": jsonAnswer(http.StatusOK, want), "without a length": chunked} {
		g := newGatewayWith(t, options{budget: 20 * mib}, answer)
		if got := g.post("/v1/images/generations", imageBody); got.status != http.StatusOK || got.body != want {
			t.Errorf("%s: got %d with %d bytes", name, got.status, len(got.body))
		}
		if e := g.spool.next(t); e.Cost != 100 || e.Rule != event.RuleReported || e.Status != event.Completed {
			t.Errorf("%s: got event %+v", name, e)
		}
		if used := g.budget.Used(); used != 0 {
			t.Errorf("%s: %d bytes are held", name, used)
		}
	}
}

// Neither memory nor disk has room. Not to charge the account would let it choose answers that cost the operator only.
func TestAnswerThatIsLostIsCharged(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{budget: 20 * mib, disk: 20 * mib}, jsonAnswer(http.StatusOK, imageOf(18*mib)), jsonAnswer(http.StatusOK, imageOf(1)))
	if got := g.post("/v1/images/generations", imageBody).apiError(t); got.Status != 503 || got.RetryAfter == "" || got.Code != "service_unavailable" {
		t.Errorf("got %+v", got)
	}
	if e := g.spool.next(t); e.Cost != 100 || e.Rule != event.RuleEstimated || !e.Estimated || e.Doubt != "interrupted" || e.Status != event.Failed || e.HTTPStatus != 503 {
		t.Errorf("got event %+v", e)
	}
	if n := len(g.sims[1].received()); n != 0 {
		t.Errorf("another provider was called")
	}
}

// One account fills its share with request bodies whose answers then have no room: the bodies make way for the answers.
func TestAccountThatFillsItsShareGetsItsAnswersAndDelaysNobody(t *testing.T) {
	t.Parallel()
	const each = 4
	arrived, answerNow := make(chan struct{}, each), make(chan struct{})
	answer := strings.Replace(chatJSON, `"content":"`, `"content":"`+strings.Repeat("words ", 100_000), 1)
	g := newGatewayWith(t, options{budget: 80 * mib}, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1*mib {
			arrived <- struct{}{}
			<-answerNow
		}
		jsonAnswer(http.StatusOK, answer)(w, r)
	})
	g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
	victim := g.issue("key_2", "acc_2")
	picture := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 19*mib/each) + `"}}`
	large := `{"model":"text","messages":[{"role":"user","content":[` + picture + `]}]}`
	medium := strings.Replace(chatBody, "hi", strings.Repeat("words ", 5000), 1)
	statuses := make(chan int, each)
	for range each {
		go func() { statuses <- g.post("/v1/chat/completions", large).status }()
	}
	for range each {
		<-arrived
	}
	close(answerNow)
	for range each {
		if got := g.post("/v1/chat/completions", medium, "Authorization", "Bearer "+victim); got.status != http.StatusOK {
			t.Errorf("another account: got %d %s", got.status, got.body)
		}
		if got := <-statuses; got != http.StatusOK {
			t.Errorf("the account itself: got %d", got)
		}
	}
}
