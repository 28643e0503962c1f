package billingapi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// Files of the archive have the same form as exports by the API.
func TestArchivedUsageEqualsTheAPI(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	full := usage.Record{
		RequestID: usage.RequestID{1}, Model: "m", Format: "chat", Provider: "p", Route: "r", ProviderRequestID: "x", Status: event.Status("completed"),
		HTTPStatus: 200, Stream: true, StartedAt: at, FinishedAt: at.Add(time.Second), FirstByteMS: 7, Usage: price.Usage{Input: 1, Output: 2},
		Rule: "provider", Estimated: true, PriceVersion: 3, Cost: 4, Reservation: 5, PriceMultiplier: price.One, VideoJob: "video_1", SettledAt: at,
		ProviderCost: new(money.Nano(3)), ProviderPriceVersion: 2,
	}
	operator := admin.WithPrincipal(t.Context(), &admin.Principal{Scopes: []admin.Scope{admin.Operator}})
	for name, record := range map[string]usage.Record{"full": full, "empty": {}} {
		line, err := archive.EncodeUsage(&record)
		if err != nil {
			t.Fatal(err)
		}
		view, err := usageView(operator, &record)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(view)
		if err != nil {
			t.Fatal(err)
		}
		var archived, exported map[string]any
		if err := json.Unmarshal(line, &archived); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &exported); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(exported, archived); diff != "" {
			t.Errorf("%s: (-API +archive):\n%s", name, diff)
		}
	}
}
