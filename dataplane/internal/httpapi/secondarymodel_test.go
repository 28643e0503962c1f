package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// A provider that uses a secondary model without a price does so on its own account. The rest is charged as reported,
// not as reserved.
func TestUsageOfAnUnpricedSecondaryModelIsNotCharged(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, `{"data":[{"b64_json":"eA=="}],"svg_usage":{"model":"w","input_tokens":50,"output_tokens":70}}`))
	if got := g.post("/v1/images/generations", `{"model":"image","prompt":"x","n":3}`); got.status != http.StatusOK {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	got := g.spool.all()
	if len(got) != 1 {
		t.Fatalf("got %d events", len(got))
	}
	if diff := cmp.Diff(price.Usage{Images: 1}, got[0].Usage); diff != "" || got[0].Cost != 100 || got[0].Rule != event.RuleReported {
		t.Errorf("charged %d by rule %s; want 100 as reported (-want +got):\n%s", got[0].Cost, got[0].Rule, diff)
	}
}
