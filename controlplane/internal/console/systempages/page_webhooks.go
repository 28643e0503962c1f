package systempages

import (
	"slices"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// webhookRoutes are the routes of the pages about webhooks and their deliveries.
func webhookRoutes() []kit.Route {
	return slices.Concat(
		[]kit.Route{
			{Pattern: "GET /console/webhooks", Scope: kit.Read, Handle: listWebhooks},
			{Pattern: "GET /console/webhooks/{id}", Scope: kit.Read, Handle: showWebhook},
			{Pattern: "GET /console/deliveries/{id}", Scope: kit.Read, Handle: showDelivery},
		},
		kit.FormRoutes("/console/webhooks/new", kit.Cabinet, newWebhook),
		kit.FormRoutes("/console/webhooks/{id}/edit", kit.Cabinet, editWebhook),
		kit.FormRoutes("/console/webhooks/{id}/delete", kit.Cabinet, deleteWebhook),
		kit.FormRoutes("/console/webhooks/{id}/secret", kit.Cabinet, rotateWebhookSecret),
		kit.FormRoutes("/console/webhooks/{id}/test", kit.Cabinet, testWebhook),
		kit.FormRoutes("/console/webhooks/{id}/redeliver", kit.Cabinet, redeliverFailed),
		kit.FormRoutes("/console/deliveries/{id}/redeliver", kit.Cabinet, redeliver),
	)
}

var webhookCrumbs = []kit.Link{{Text: "Webhooks", URL: "/console/webhooks"}}

func crumbsOf(w *adminclient.Webhook) []kit.Link {
	return append(slices.Clip(webhookCrumbs), kit.Link{Text: w.URL, URL: kit.Path("webhooks", w.ID)})
}

type webhooksView struct {
	List  *adminclient.WebhookList
	Pages kit.Pages
}

// listWebhooks shows the endpoints that events are sent to.
func listWebhooks(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListWebhooks(r.Context(), &adminclient.ListWebhooksParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	data := &webhooksView{answer.Value, kit.PagesOf(r, answer.Value.NextCursor)}
	return &kit.Page{
		Template: "webhooks",
		Title:    "Webhooks",
		Command:  "gwctl webhooks list",
		Data:     data,
	}, nil
}

type webhookView struct {
	*adminclient.Webhook
	Deliveries *adminclient.DeliveryList
	Pages      kit.Pages
	States     []kit.Link
	State      string
}

// showWebhook shows an endpoint with its deliveries.
func showWebhook(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetWebhook(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	data := &webhookView{Webhook: answer.Value, State: r.Text("state")}
	for _, state := range []adminclient.DeliveryState{
		"",
		adminclient.DeliveryStateFailed,
		adminclient.DeliveryStatePending,
		adminclient.DeliveryStateDelivered,
	} {
		data.States = append(data.States, kit.Link{Text: string(state), URL: kit.With(r.URL, "state", string(state))})
	}

	params := &adminclient.ListDeliveriesParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)}
	if data.State != "" {
		params.State = new(adminclient.DeliveryState(data.State))
	}

	deliveries, err := r.API.ListDeliveries(r.Context(), data.ID, params)
	if err != nil {
		return nil, err
	}

	data.Deliveries, data.Pages = deliveries.Value, kit.PagesOf(r, deliveries.Value.NextCursor)
	command := "gwctl webhooks get " + data.ID + "\n" + kit.Command("deliveries list "+data.ID, "--state", data.State)
	return &kit.Page{
		Template: "webhook",
		Title:    "Webhook",
		Crumbs:   webhookCrumbs,
		Command:  command,
		Data:     data,
	}, nil
}

type deliveryView struct {
	*adminclient.DeliveryDetail
	Webhook *adminclient.Webhook
}

// showDelivery shows an event that was sent to an endpoint, and every attempt.
func showDelivery(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetDelivery(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	w, err := r.API.GetWebhook(r.Context(), answer.Value.Delivery.WebhookID)
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "delivery",
		Title:    "Delivery",
		Crumbs:   crumbsOf(w.Value),
		Command:  "gwctl deliveries get " + answer.Value.Delivery.ID,
		Data:     &deliveryView{answer.Value, w.Value},
	}, nil
}
