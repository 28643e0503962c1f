package e2e

import (
	"bytes"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/cabinet"
	"modelgateway/scripts/e2e/rig"
)

// The example cabinet works with the scopes of a cabinet that books money and shows keys.
func TestExampleCabinet(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	token, err := r.Admin.CreateToken(t.Context(), nil,
		adminclient.TokenCreate{Name: t.Name(), Scopes: []adminclient.Scope{adminclient.ScopeCabinet, adminclient.ScopeCredits, adminclient.ScopeKeysReveal}})
	if err != nil {
		t.Fatalf("token: %v, %v", token, err)
	}
	api, err := adminclient.New(r.AdminURL(), token.Value.Secret)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := cabinet.Cabinet{API: api, Gateway: r.Proxies[0], Model: "demo-chat", TimeZone: "Europe/Berlin", Warnings: make(chan *adminclient.Event, 16), Out: &out}
	stop, err := c.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	id := rig.Unique()
	who := cabinet.Customer{ID: "customer-" + id, Name: t.Name(), Payment: "payment-" + id, Amount: "25.00", Limit: "5.00"}
	if err := c.Run(t.Context(), who); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"signs up", "is booked: 25.00", "the second notice of the same payment changes nothing", "are left of 25.00: at this rate it lasts ",
		"can be shown again", "the key is revoked", "statement: payment " + who.Payment, "the limit of the account is 25.00 a month", "the limit of the project is 5.00 a week", "the limit of the key is 5.00 a day",
		"the page says: the limit lim_", " of the project is reached until ", "an event warns that 100 % of the limit are spent",
		"the limit of the project is raised to 5.00 for an hour", "the limit of the project is reset", "usage: 2 requests", "usage: 1 requests",
		"has a new secret", "statement: 3 requests to demo-chat on ", "statement: 24.9",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, &out)
		}
	}
}
