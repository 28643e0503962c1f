package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
)

func TestRequestWhoseReservationOverflowsIsRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1 << 52, 1<<52 + 1, 1 << 62, 1<<63 - 1} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ReserveOutputTokens = 1 << 12 }}, jsonAnswer(http.StatusOK, chatJSON))
		got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"n":`+strconv.FormatInt(n, 10)+`}`)
		if got.status != http.StatusBadRequest && got.status != http.StatusPaymentRequired && got.status != http.StatusForbidden {
			t.Errorf("n of %d: got %d %s", n, got.status, got.body)
		}
		if calls := len(g.sims[0].received()); calls != 0 {
			t.Errorf("n of %d: the provider got %d requests", n, calls)
		}
	}
}

func TestOutputLimitAboveTheModelsIsLoweredBeforeTheReservation(t *testing.T) {
	t.Parallel()
	reserved := map[string]int64{}
	for _, limit := range []string{"100", "100000", "9e99"} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.MaxOutputTokens = 100 }}, jsonAnswer(http.StatusOK, chatJSON))
		if got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"max_tokens":`+limit+`}`); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		if body := g.sims[0].received()[0].body; !strings.Contains(body, `"max_tokens":100}`) && !strings.Contains(body, `"max_tokens":100,`) {
			t.Errorf("a limit of %s is sent as %s", limit, body)
		}
		e := g.spool.all()[0]
		if e.MaxOutput != 100 {
			t.Errorf("a limit of %s: the event has the limit %d; want 100", limit, e.MaxOutput)
		}
		reserved[limit] = int64(e.Reservation)
	}
	if reserved["100"] == 0 || reserved["100000"] != reserved["100"] || reserved["9e99"] != reserved["100"] {
		t.Errorf("reserved %v; want the same for all", reserved)
	}
}

// The tokens of a document grow with its length: many requests with documents must not run on a balance that covers none.
func TestReservationCoversDocumentsByTheirLength(t *testing.T) {
	t.Parallel()
	reserved := func(window int64, media string) int64 {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ContextWindow = window }}, jsonAnswer(http.StatusOK, chatJSON))
		g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"`+media+`"}}]}]}`)
		return int64(g.spool.all()[0].Reservation)
	}
	pdf, png := "data:application/pdf;base64,", "data:image/png;base64,"
	image := reserved(0, png+strings.Repeat("QUJD", 20_000))
	document := reserved(0, pdf+strings.Repeat("QUJD", 20_000))
	twice := reserved(0, pdf+strings.Repeat("QUJD", 40_000))
	bounded := reserved(5000, pdf+strings.Repeat("QUJD", 40_000))
	if image >= document || document >= twice {
		t.Errorf("reserved %d for an image, %d for a document, %d for one of twice its length", image, document, twice)
	}
	if bounded >= document || bounded <= image {
		t.Errorf("reserved %d for a document beyond the context window; want less than %d", bounded, document)
	}
}
