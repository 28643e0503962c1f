package demo

import (
	"context"
	"fmt"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/shared/money"
)

// A customer is an account of the demo. The zero values are those of an ordinary one.
type customer struct {
	name string
	// keys are the names of its keys; limits has the spend limits of some of them.
	keys   []string
	limits map[string]string
	// share is its share of past and live requests, and models what it uses.
	share  int
	models []string
	// discount is its factor on list prices.
	discount string
	// left is what its money is beyond the past usage. Without it, there is enough for a long time.
	left string
	// slots is its limit of concurrent requests.
	slots     int
	suspended bool

	id        string
	issued    []issuedKey
	discounts map[string]string
}

type issuedKey struct{ id, name, secret string }

const (
	suspendedAccount, exhaustedAccount, busyAccount, limitedAccount = "Tidewater Travel", "Quarry Labs", "Pixel & Pine", "Field Notes"

	limitedKey, revokedKey = "trial", "former laptop"
)

// customers returns the eight accounts with their twenty keys.
func customers() []*customer {
	return []*customer{
		{
			name:   "Northwind Robotics",
			keys:   []string{"production", "staging", "evaluation", revokedKey},
			share:  34,
			models: []string{largeModel, "demo-chat", fastModel, "demo-responses"},
		},
		{
			name:      "Lumen Health",
			keys:      []string{"production", "research", "night jobs"},
			share:     22,
			models:    []string{"demo-messages", largeModel, "demo-all"},
			discount:  "0.85",
			discounts: map[string]string{largeModel: "0.7"},
		},
		{
			name:   "Oakline Studio",
			keys:   []string{"storyboards", "website", "archive"},
			share:  12,
			models: []string{"demo-image", "demo-chat", "demo-all"},
		},
		{
			name:   "Harbour Analytics",
			keys:   []string{"pipeline", "notebooks", "alerts"},
			share:  18,
			models: []string{"demo-chat", fastModel, "demo-responses"},
		},
		{name: busyAccount, keys: []string{"app", "bot"}, share: 5, models: []string{"demo-chat", "demo-image"}, left: "1.20", slots: 1},
		{
			name:   exhaustedAccount,
			keys:   []string{"lab", "students"},
			share:  4,
			models: []string{fastModel, "demo-messages"},
			left:   "0.000001",
		},
		{name: suspendedAccount, keys: []string{"booking"}, share: 3, models: []string{"demo-chat"}, suspended: true},
		{
			name:   limitedAccount,
			keys:   []string{"editor", limitedKey},
			share:  2,
			models: []string{"demo-all", fastModel},
			limits: map[string]string{limitedKey: "0.000001", "editor": "50.00"},
		},
	}
}

func (d *Demo) customer(name string) *customer {
	for _, c := range d.customers {
		if c.name == name {
			return c
		}
	}
	panic("demo: there is no customer " + name) // never: the names are constants of this package
}

func (d *Demo) fillCustomers(ctx context.Context) error {
	d.customers = customers()
	for i, c := range d.customers {
		external := fmt.Sprintf("demo-%d", i+1)
		found, err := d.api.ListAccounts(ctx, &adminclient.ListAccountsParams{ExternalID: &external})
		if err != nil {
			return err
		}
		if len(found.Value.Data) > 0 {
			c.id = found.Value.Data[0].ID
		} else if err := d.createAccount(ctx, c, external); err != nil {
			return err
		}
		if err := d.issueKeys(ctx, c); err != nil {
			return fmt.Errorf("keys of %s: %w", c.name, err)
		}
	}

	if err := d.fillProject(ctx, d.customers[0]); err != nil {
		return fmt.Errorf("project: %w", err)
	}

	for _, c := range []*customer{d.customers[0], d.customers[1]} {
		if _, err := d.api.GrantModel(ctx, c.id, previewModel, nil); err != nil {
			return err
		}
	}

	return nil
}

// fillProject gives a customer a project with a limit of a month, and puts its first key into it.
func (d *Demo) fillProject(ctx context.Context, c *customer) error {
	external := "demo-project"
	found, err := d.api.ListProjects(ctx, c.id, &adminclient.ListProjectsParams{ExternalID: &external})
	if err != nil || len(found.Value.Data) > 0 {
		return err
	}

	made, err := d.api.CreateProject(ctx, c.id, nil, adminclient.ProjectCreate{Name: "storefront", ExternalID: &external})
	if err != nil {
		return err
	}
	_, err = d.api.CreateLimit(ctx, c.id, nil, adminclient.LimitCreate{
		ProjectID: &made.Value.ID,
		Name:      new("a month"),
		Amount:    "5000.00",
		Window:    adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodMonth, TimeZone: new("UTC")},
	})
	if err != nil {
		return err
	}

	_, err = d.api.UpdateKey(ctx, c.issued[0].id, nil, adminclient.KeyPatch{ProjectID: optional.Of(made.Value.ID)})
	return err
}

func (d *Demo) createAccount(ctx context.Context, c *customer, external string) error {
	create := adminclient.AccountCreate{Name: c.name, ExternalID: &external, MaxConcurrentRequests: new(50)}
	if c.slots > 0 {
		create.MaxConcurrentRequests = &c.slots
	}
	if c.discount != "" {
		create.PriceMultiplier, create.ModelMultipliers = &c.discount, (*adminclient.ModelMultipliers)(&c.discounts)
	}
	created, err := d.api.CreateAccount(ctx, nil, create)
	if err != nil {
		return err
	}
	c.id = created.Value.ID
	return nil
}

// issueKeys issues those keys of a customer that do not exist, and reads the secrets of the others.
func (d *Demo) issueKeys(ctx context.Context, c *customer) error {
	limit := 100
	found, err := d.api.ListKeys(ctx, c.id, &adminclient.ListKeysParams{Limit: &limit})
	if err != nil {
		return err
	}

	secrets := map[string]issuedKey{}
	for _, k := range found.Value.Data {
		secret, err := d.api.RevealKey(ctx, k.ID)
		if err != nil {
			return err
		}
		secrets[k.Name] = issuedKey{k.ID, k.Name, secret.Value.Secret}
	}

	for _, name := range c.keys {
		key, ok := secrets[name]
		if !ok {
			create := adminclient.KeyCreate{Name: name}
			if amount, limited := c.limits[name]; limited {
				create.SpendLimit = &amount
			}
			issued, err := d.api.CreateKey(ctx, c.id, nil, create)
			if err != nil {
				return err
			}
			key = issuedKey{issued.Value.ID, name, issued.Value.Secret}
		}
		c.issued = append(c.issued, key)
	}

	return nil
}

// pay books what the customer has paid: the past usage and what is left of it.
func (d *Demo) pay(ctx context.Context, c *customer, cost money.Nano) error {
	amounts := []money.Nano{500 * money.Unit, cost}
	if c.left != "" {
		left, err := money.Parse(c.left)
		if err != nil {
			return err
		}
		amounts = []money.Nano{cost/2 + left, cost - cost/2}
	}

	for i, amount := range amounts {
		if amount <= 0 {
			continue
		}
		_, err := d.api.CreateCredit(ctx, c.id, nil, adminclient.CreditCreate{
			Amount: amount.String(), Kind: adminclient.CreditKindPayment, Reference: fmt.Sprintf("invoice-%s-%d", c.id, i+1),
		})
		if err != nil {
			return fmt.Errorf("payment of %s: %w", c.name, err)
		}
	}

	return nil
}
