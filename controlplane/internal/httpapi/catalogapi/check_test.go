package catalogapi_test

import (
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

func TestCheckOfAProviderReportsWhatCame(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	none, err := b.API.CheckProvider(t.Context(), "sim", nil)
	if err != nil || none.Value.Answered || none.Value.Proxy != nil || len(none.Value.Calls) != 0 {
		t.Errorf("without a proxy: got %s, %v", none.Body, err)
	}
	b.Checked = &checkwire.Response{V: wire.Version, Name: "proxy-1", CatalogRevision: 7, Calls: []checkwire.Call{
		{Format: "chat", Route: "rte", UpstreamModel: "u", Credential: "crd", URL: "https://p/v4/v1/x", Result: checkwire.NotFound, Status: 404, Detail: "no", Hint: "do", MS: 3},
		{Format: "images", Route: "rte_2", UpstreamModel: "u", Credential: "crd", URL: "https://p/v1/y", Result: checkwire.NoAnswer, Detail: "refused"},
	}}
	got, err := b.API.CheckProvider(t.Context(), "sim", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Value.Answered || *got.Value.Proxy != "proxy-1" || *got.Value.CatalogRevision != 7 || len(got.Value.Calls) != 2 {
		t.Fatalf("got %s", got.Body)
	}
	log, err := b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Action: new("provider.check")})
	if err != nil || len(log.Value.Data) != 2 || log.Value.Data[0].Object != "/admin/v1/providers/sim/check" {
		t.Errorf("the audit log has %v, %v; want both checks", log, err)
	}
	first, second := got.Value.Calls[0], got.Value.Calls[1]
	if first.Result != "not_found" || *first.Status != 404 || *first.Detail != "no" || *first.Hint != "do" || first.URL != "https://p/v4/v1/x" || first.MS != 3 {
		t.Errorf("got %+v", first)
	}
	if second.Result != "no_answer" || second.Status != nil || second.Hint != nil {
		t.Errorf("got %+v", second)
	}
	if _, err := b.API.CheckProvider(t.Context(), "unknown", nil); adminclient.Code(err) != "not_found" {
		t.Errorf("an unknown provider: got %v; want %d", err, http.StatusNotFound)
	}
}
