package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// A credential that a provider refuses is shown in the fleet view until it has another secret.
func TestRefusedCredentialIsShownInTheFleetView(t *testing.T) {
	a := newAPI(t)
	provider := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL})
	model := a.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "refused-" + rig.Unique() + "@status=401"}}})
	answer := a.Do(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(model)})
	if answer.Status != http.StatusBadGateway {
		t.Fatalf("got %s; want 502", answer)
	}
	refused := func(ctx context.Context) (*adminclient.RefusedCredential, error) {
		fleet, err := a.Admin.ListProxies(ctx)
		if err != nil {
			return nil, fmt.Errorf("fleet: %v, %w", fleet, err)
		}
		for i := range fleet.Value.RefusedCredentials {
			if c := &fleet.Value.RefusedCredentials[i]; c.ProviderID == provider {
				return c, nil
			}
		}
		return nil, nil // none is an answer
	}
	rig.Await(t, "the refusal in the view of the fleet", func(ctx context.Context) error {
		c, err := refused(ctx)
		if err == nil && (c == nil || c.Credential != "main" || c.Reason != adminclient.RefusedCredentialReasonKeyRejected || len(c.Proxies) == 0) {
			err = fmt.Errorf("got %+v", c)
		}
		return err
	})
	put, err := a.Admin.PutCredential(t.Context(), provider, "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-another")})
	if err != nil {
		t.Fatalf("another secret: %s, %v", put, err)
	}
	rig.Await(t, "the end of it", func(ctx context.Context) error {
		c, err := refused(ctx)
		if err == nil && c != nil {
			err = fmt.Errorf("still %+v", c)
		}
		return err
	})
}
