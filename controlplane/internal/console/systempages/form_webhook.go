package systempages

import (
	"fmt"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

const ofSignatures = "The receiver checks the signature of each event with it."

// eventTypes are all types of events.
var eventTypes = []adminclient.EventType{
	adminclient.EventTypeAccountCredited, adminclient.EventTypeAccountDebited,
	adminclient.EventTypeAccountLowBalance, adminclient.EventTypeAccountBalanceExhausted,
	adminclient.EventTypeKeyCreated, adminclient.EventTypeKeyPaused, adminclient.EventTypeKeyResumed,
	adminclient.EventTypeKeyExpiresSoon, adminclient.EventTypeKeyExpired,
	adminclient.EventTypeKeyRotated, adminclient.EventTypeKeyRevoked,
	adminclient.EventTypeKeySpendLimitNear, adminclient.EventTypeKeySpendLimitReached,
	adminclient.EventTypeLimitShareSpent,
	adminclient.EventTypeOperatorCredentialAccepted, adminclient.EventTypeOperatorCredentialRefused,
	adminclient.EventTypeOperatorClientGoneUnusual,
	adminclient.EventTypeOperatorLedgerCheckFailed, adminclient.EventTypeOperatorUsageQuarantined,
}

func webhookFields(w *adminclient.Webhook) []kit.Field {
	types := kit.Field{Name: "event_types", Label: "Events; none chosen means all", Kind: "checks"}
	for _, t := range eventTypes {
		types.Options = append(types.Options, kit.Option{Value: string(t)})
	}

	for _, t := range w.EventTypes {
		types.Values = append(types.Values, string(t))
	}

	enabled := kit.Field{Name: "enabled", Label: "Send events", Kind: "check"}
	if w.Enabled {
		enabled.Value = "yes"
	}

	return []kit.Field{
		{
			Name:     "url",
			Label:    "Address",
			Kind:     "url",
			Required: true,
			Mono:     true,
			Value:    w.URL,
			Hint:     "It begins with https:// and has no user and password.",
		},
		{Name: "description", Label: "Description", Value: w.Description},
		types, enabled,
	}
}

func chosenTypes(in *kit.Input) []adminclient.EventType {
	all := []adminclient.EventType{}
	for _, t := range in.All("event_types") {
		all = append(all, adminclient.EventType(t))
	}
	return all
}

// newWebhook is the form that adds an endpoint. Its response shows the secret of the signatures.
func newWebhook(*kit.Request) (*kit.Form, error) {
	return &kit.Form{
		Title:   "Add a webhook",
		Crumbs:  webhookCrumbs,
		Submit:  "Add webhook",
		Back:    "/console/webhooks",
		Fields:  webhookFields(&adminclient.Webhook{Enabled: true}),
		Command: "gwctl webhooks create",
		Effects: []string{"Events are sent from now on, each signed. The next page shows the secret of the signatures, once."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			made, err := r.API.CreateWebhook(
				r.Context(),
				&adminclient.CreateWebhookParams{IdempotencyKey: in.Key()},
				adminclient.WebhookCreate{
					URL:         in.Text("url"),
					Description: in.Optional("description"),
					EventTypes:  chosenTypes(in),
					Enabled:     new(in.Checked("enabled")),
				},
			)
			if err != nil {
				return nil, err
			}
			w := &made.Value.Webhook
			if replayed(made.Header) {
				return kit.Go(
					kit.Path("webhooks", w.ID),
					&kit.Notice{Kind: "warn", Text: "The webhook was added by this form already. Its secret was shown then."},
				)
			}
			page := &secretView{"Webhook " + w.URL, made.Value.Secret, ofSignatures, kit.Path("webhooks", w.ID)}
			return page.page(webhookCrumbs, "The webhook was added."), nil
		},
	}, nil
}

// webhookOf reads the endpoint that the path names.
func webhookOf(r *kit.Request) (w *adminclient.Webhook, match, back string, err error) {
	now, err := r.API.GetWebhook(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, "", "", err
	}
	return now.Value, now.Header.Get("ETag"), kit.Path("webhooks", now.Value.ID), nil
}

// editWebhook is the form that changes an endpoint.
func editWebhook(r *kit.Request) (*kit.Form, error) {
	w, match, back, err := webhookOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Change the webhook",
		Crumbs:  crumbsOf(w),
		Submit:  "Save",
		Back:    back,
		Match:   match,
		Fields:  webhookFields(w),
		Command: "gwctl webhooks update " + w.ID,
		Effects: []string{
			"Deliveries that wait are sent to the new address. While no events are sent, those of that time are not kept for the endpoint.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			types := chosenTypes(in)
			patch := adminclient.WebhookPatch{
				URL:         in.Optional("url"),
				Description: new(in.Text("description")),
				EventTypes:  &types,
				Enabled:     new(in.Checked("enabled")),
			}
			if _, err := r.API.UpdateWebhook(r.Context(), w.ID, &adminclient.UpdateWebhookParams{IfMatch: in.Match()}, patch); err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The webhook was saved."))
		},
	}, nil
}

// deleteWebhook is the form that removes an endpoint.
func deleteWebhook(r *kit.Request) (*kit.Form, error) {
	w, _, back, err := webhookOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Delete the webhook",
		Crumbs:  crumbsOf(w),
		Submit:  "Delete webhook",
		Danger:  true,
		Confirm: w.URL,
		Back:    back,
		Command: "gwctl webhooks delete " + w.ID,
		Effects: []string{"No event is sent to " + w.URL + " any more, not even those that wait. Its deliveries are deleted."},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			if _, err := r.API.DeleteWebhook(r.Context(), w.ID); err != nil {
				return nil, err
			}
			return kit.Go("/console/webhooks", kit.Done("The webhook was deleted."))
		},
	}, nil
}

// overlap is how long both secrets sign events, unless the form says otherwise, in seconds.
const overlap = "86400"

// rotateWebhookSecret is the form that exchanges the secret of the signatures.
func rotateWebhookSecret(r *kit.Request) (*kit.Form, error) {
	w, _, back, err := webhookOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Exchange the secret",
		Crumbs:  crumbsOf(w),
		Submit:  "Exchange secret",
		Back:    back,
		Fresh:   true,
		Command: "gwctl webhooks rotate-secret " + w.ID,
		Fields: []kit.Field{{
			Name:     "overlap_seconds",
			Label:    "Overlap",
			Kind:     "number",
			Unit:     "seconds",
			Value:    overlap,
			Required: true,
			Hint:     "The time in which events are also signed with the present secret.",
		}},
		Effects: []string{"The next page shows the new secret, once. Give it to the receiver before the overlap ends."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			seconds, err := in.Int("overlap_seconds")
			if err != nil {
				return nil, err
			}
			if seconds == nil {
				return nil, kit.Invalid("overlap_seconds", "must be an integer")
			}

			params := &adminclient.RotateWebhookSecretParams{IdempotencyKey: in.Key()}
			made, err := r.API.RotateWebhookSecret(r.Context(), w.ID, params, adminclient.WebhookRotation{OverlapSeconds: int(*seconds)})
			if err != nil {
				return nil, err
			}
			if replayed(made.Header) {
				return kit.Go(back, &kit.Notice{Kind: "warn", Text: "The secret was exchanged by this form already. It was shown then."})
			}

			page := &secretView{"New secret", made.Value.Secret, ofSignatures, back}
			return page.page(crumbsOf(w), "The secret was exchanged."), nil
		},
	}, nil
}

// testWebhook is the form that sends a test event.
func testWebhook(r *kit.Request) (*kit.Form, error) {
	w, _, back, err := webhookOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Send a test event",
		Crumbs:  crumbsOf(w),
		Submit:  "Send test event",
		Back:    back,
		Command: "gwctl webhooks test " + w.ID,
		Effects: []string{"An event of the type webhook.test is sent to " + w.URL + ". Its delivery is listed with the others."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			sent, err := r.API.TestWebhook(r.Context(), w.ID, &adminclient.TestWebhookParams{IdempotencyKey: in.Key()})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The test event "+sent.Value.EventID+" is sent in a moment."))
		},
	}, nil
}

// redeliverFailed is the form that sends all failed deliveries again.
func redeliverFailed(r *kit.Request) (*kit.Form, error) {
	w, _, back, err := webhookOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Send failed deliveries again",
		Crumbs:  crumbsOf(w),
		Submit:  "Send again",
		Back:    back,
		Command: "gwctl webhooks redeliver-failed " + w.ID,
		Fields: []kit.Field{{
			Name:     "since",
			Label:    "Created since (UTC)",
			Kind:     "datetime-local",
			Required: true,
			Value:    time.Now().UTC().Add(-24 * time.Hour).Format("2006-01-02T15:04"),
		}},
		Effects: []string{"Each failed delivery of that time is tried again. Receivers handle an event with an id they know once."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			since, err := kit.Moment("since", in.Text("since"))
			if err != nil {
				return nil, err
			}
			if since == nil {
				return nil, kit.Invalid("since", "must be a time such as 2026-01-31T14:00")
			}
			done, err := r.API.RedeliverFailed(
				r.Context(),
				w.ID,
				&adminclient.RedeliverFailedParams{IdempotencyKey: in.Key()},
				adminclient.Redelivery{Since: *since},
			)
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done(fmt.Sprintf("%d deliveries are sent again.", done.Value.Deliveries)))
		},
	}, nil
}

// redeliver is the form that sends one delivery again.
func redeliver(r *kit.Request) (*kit.Form, error) {
	answer, err := r.API.GetDelivery(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	d := answer.Value.Delivery
	back := kit.Path("deliveries", d.ID)
	return &kit.Form{
		Title:   "Send the delivery again",
		Crumbs:  webhookCrumbs,
		Submit:  "Send again",
		Back:    back,
		Command: "gwctl webhooks redeliver " + d.ID,
		Effects: []string{"The event " + d.EventID + " is sent once more. The receiver handles an event with an id it knows once."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			if _, err := r.API.Redeliver(r.Context(), d.ID, &adminclient.RedeliverParams{IdempotencyKey: in.Key()}); err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The delivery is sent again in a moment."))
		},
	}, nil
}
