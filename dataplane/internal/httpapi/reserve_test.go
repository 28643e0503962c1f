package httpapi_test

import (
	"net/http"
	"strconv"
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
