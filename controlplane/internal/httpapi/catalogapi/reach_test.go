package catalogapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/price"
)

// A dry run reports who is affected by each change: grants, and usage of the last 30 days.
func TestDryRunReportsAffectedAccounts(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	busy, old, guest := b.Account(1), b.Account(1), b.Account(1)
	b.Credit(busy.ID, "10", "one")
	b.Credit(old.ID, "10", "two")
	p, sheet := b.Proxy("one"), b.Sheet("demo-chat")
	day := 24 * time.Hour
	p.Report(b.Key(busy.ID, ""), time.Now(), sheet, price.Usage{Input: 1_000_000})
	p.Report(b.Key(busy.ID, ""), time.Now().Add(-29*day), sheet, price.Usage{Input: 1_000_000})
	p.Report(b.Key(old.ID, ""), time.Now().Add(-32*day), sheet, price.Usage{Input: 1_000_000})
	_, err := servertest.Answered(b.API.GrantModel(t.Context(), guest.ID, "demo/image", nil))
	servertest.Check(t, err)

	doc := strings.NewReplacer(`cached_input: 0.10`, `cached_input: 0.20`, `price: "0.04"`, `price: "0.05"`, "connect_timeout: 5s", "connect_timeout: 6s").Replace(servertest.DemoCatalog)
	got := b.Try(doc, true).Value
	reach := map[string]adminclient.CatalogReach{}
	for _, c := range got.Changes {
		if c.Reach == nil {
			t.Fatalf("no reach of %s %s", c.Kind, c.ID)
		}
		reach[string(c.Kind)+" "+c.ID] = *c.Reach
	}
	want := map[string]adminclient.CatalogReach{
		"provider sim":     {Models: []string{"demo-chat", "demo/image"}, Public: true, GrantedAccounts: 1, ActiveAccounts: 1},
		"price demo-chat":  {Models: []string{"demo-chat"}, Public: true, ActiveAccounts: 1},
		"price demo/image": {Models: []string{"demo/image"}, GrantedAccounts: 1},
	}
	if diff := cmp.Diff(want, reach); diff != "" {
		t.Errorf("reach (-want +got):\n%s", diff)
	}
	accounts := []adminclient.CatalogAccount{{AccountID: busy.ID, Name: busy.Name, Models: []string{"demo-chat"}, Requests: 2, Cost: "2.00"}}
	if diff := cmp.Diff(accounts, got.Accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if applied := b.Apply(doc); applied.Accounts != nil || applied.Changes[0].Reach != nil {
		t.Errorf("the response to an applied document lists accounts: %+v", applied)
	}
}
