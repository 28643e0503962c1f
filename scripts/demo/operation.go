package demo

import (
	"context"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
)

// fillOperations adds what operators have done and what they have to look at: a correction, alerts, a webhook that fails,
// a maintenance, a suspended account, a revoked key and tokens.
func (d *Demo) fillOperations(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		d.correct, d.setAlerts, d.addWebhook, d.maintain, d.suspend, d.revoke, d.issueTokens,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// correct gives back the cost of one request.
func (d *Demo) correct(ctx context.Context) error {
	c, limit := d.customers[0], 100
	usage, err := d.api.ListUsage(ctx, &adminclient.ListUsageParams{AccountID: &c.id, Limit: &limit})
	if err != nil {
		return err
	}

	for _, u := range usage.Value.Data {
		if u.Cost == "0.00" {
			continue
		}
		_, err := d.api.CreateCredit(ctx, c.id, nil, adminclient.CreditCreate{
			Kind:      adminclient.CreditKindCorrection,
			Amount:    u.Cost,
			RequestID: &u.RequestID,
			Reference: "ticket-4711-" + c.id,
			Reason:    new("The answer ended in the middle of a sentence."),
		})
		if isStatus(err, http.StatusConflict) {
			return nil // an earlier run has corrected another request
		}
		return err
	}

	return nil
}

func (d *Demo) setAlerts(ctx context.Context) error {
	for name, low := range map[string]string{busyAccount: "2.00", exhaustedAccount: "1.00", d.customers[0].name: "25.00"} {
		if _, err := d.api.SetAlerts(ctx, d.customer(name).id, adminclient.Alerts{LowBalance: &low, SpendLimitPercent: 80}); err != nil {
			return err
		}
	}
	return nil
}

// addWebhook adds a webhook to an address of the simulator that does not exist, so that every delivery fails.
func (d *Demo) addWebhook(ctx context.Context) error {
	url := d.cfg.State.ProviderSimURL + "/demo-webhook"
	limit := 100
	found, err := d.api.ListWebhooks(ctx, &adminclient.ListWebhooksParams{Limit: &limit})
	if err != nil {
		return err
	}
	for _, w := range found.Value.Data {
		if w.URL == url {
			return nil
		}
	}
	_, err = d.api.CreateWebhook(ctx, nil, adminclient.WebhookCreate{URL: url, Description: new("Customer portal (its address has moved)")})
	return err
}

func (d *Demo) maintain(ctx context.Context) error {
	_, err := d.api.MaintainModel(ctx, previewModel, nil, adminclient.MaintenanceSet{
		Message: new(maintenanceMessage), Until: new(time.Now().Add(maintenanceLength).UTC().Truncate(time.Minute)),
	})
	return err
}

func (d *Demo) suspend(ctx context.Context) error {
	for _, c := range d.customers {
		if c.suspended {
			if _, err := d.api.UpdateAccount(
				ctx,
				c.id,
				nil,
				adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)},
			); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Demo) revoke(ctx context.Context) error {
	for _, key := range d.customers[0].issued {
		if key.name == revokedKey {
			if _, err := d.api.RevokeKey(ctx, key.id, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// issueTokens issues the tokens that a team would have.
func (d *Demo) issueTokens(ctx context.Context) error {
	found, err := d.api.ListTokens(ctx, nil)
	if err != nil {
		return err
	}

	exists := map[string]bool{}
	for _, t := range found.Value.Data {
		exists[t.Name] = true
	}

	for name, scope := range map[string]adminclient.Scope{
		"customer portal": adminclient.ScopeCabinet, "on call": adminclient.ScopeObserve, "billing export": adminclient.ScopeRead,
	} {
		if exists[name] {
			continue
		}
		if _, err := d.api.CreateToken(ctx, nil, adminclient.TokenCreate{Name: name, Scopes: []adminclient.Scope{scope}}); err != nil {
			return err
		}
	}

	return nil
}
