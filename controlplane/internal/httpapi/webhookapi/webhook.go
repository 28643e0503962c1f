package webhookapi

import (
	"context"
	"slices"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

func (h *Handlers) GetAlerts(ctx context.Context, _ *gen.Call, r gen.GetAlertsRequestObject) (gen.GetAlertsResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	a, err := h.Webhooks.Alerts(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.GetAlerts200JSONResponse(alertsView(&a)), nil
}

func (h *Handlers) SetAlerts(ctx context.Context, _ *gen.Call, r gen.SetAlertsRequestObject) (gen.SetAlertsResponseObject, error) {
	id, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}
	low, err := convert.Amount("low_balance", r.Body.LowBalance)
	a := webhook.Alerts{LowBalance: low, LimitPercent: r.Body.SpendLimitPercent}
	if err := validation.Merge(err, a.Validate()); err != nil {
		return nil, err
	}
	if err := h.Webhooks.SetAlerts(ctx, id, a); err != nil {
		return nil, err
	}
	return gen.SetAlerts200JSONResponse(alertsView(&a)), nil
}

func alertsView(a *webhook.Alerts) gen.Alerts {
	view := gen.Alerts{SpendLimitPercent: a.LimitPercent}
	if a.LowBalance != nil {
		view.LowBalance = convert.Optional(a.LowBalance.String())
	}
	return view
}

func (h *Handlers) CreateWebhook(
	ctx context.Context,
	call *gen.Call,
	r gen.CreateWebhookRequestObject,
) (gen.CreateWebhookResponseObject, error) {
	e := webhook.Endpoint{
		ID:          webhook.ID(call.OperationID),
		URL:         r.Body.URL,
		Description: convert.Text(r.Body.Description),
		Enabled:     r.Body.Enabled == nil || *r.Body.Enabled,
	}
	e.EventTypes = eventTypes(r.Body.EventTypes)
	if err := mayManage(ctx, e.EventTypes); err != nil {
		return nil, err
	}

	made, secret, err := h.Webhooks.Create(ctx, e)
	if err != nil {
		return nil, err
	}
	return gen.CreateWebhook201JSONResponse{Webhook: webhookView(&made), Secret: secret}, nil
}

func (h *Handlers) ListWebhooks(ctx context.Context, _ *gen.Call, r gen.ListWebhooksRequestObject) (gen.ListWebhooksResponseObject, error) {
	p, after, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := h.Webhooks.List(ctx, webhook.Query{After: webhook.ID(after), Limit: p.Limit + 1})
	if err != nil {
		return nil, err
	}
	found, cursor := convert.NextPage(p, found, func(e *webhook.Endpoint) []byte { return e.ID[:] })
	return gen.ListWebhooks200JSONResponse{Data: convert.All(found, webhookView), NextCursor: cursor}, nil
}

func (h *Handlers) GetWebhook(ctx context.Context, call *gen.Call, r gen.GetWebhookRequestObject) (gen.GetWebhookResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}
	e, err := h.Webhooks.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	tag, err := e.Tag()
	if err != nil {
		return nil, err
	}
	call.ETag = tag
	return gen.GetWebhook200JSONResponse(webhookView(&e)), nil
}

func (h *Handlers) UpdateWebhook(
	ctx context.Context,
	call *gen.Call,
	r gen.UpdateWebhookRequestObject,
) (gen.UpdateWebhookResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}

	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}

	patch := webhook.Patch{
		Match:       match,
		URL:         r.Body.URL,
		Description: r.Body.Description,
		Enabled:     r.Body.Enabled,
	}
	if r.Body.EventTypes != nil {
		types := eventTypes(*r.Body.EventTypes)
		if err := mayManage(ctx, types); err != nil {
			return nil, err
		}
		patch.EventTypes = &types
	}

	if err := h.manages(ctx, id); err != nil {
		return nil, err
	}

	e, err := h.Webhooks.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}

	tag, err := e.Tag()
	if err != nil {
		return nil, err
	}

	call.ETag = tag
	return gen.UpdateWebhook200JSONResponse(webhookView(&e)), nil
}

func (h *Handlers) DeleteWebhook(
	ctx context.Context,
	_ *gen.Call,
	r gen.DeleteWebhookRequestObject,
) (gen.DeleteWebhookResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}
	if err := h.manages(ctx, id); err != nil {
		return nil, err
	}

	if err := h.Webhooks.Delete(ctx, id); err != nil {
		return nil, err
	}
	return gen.DeleteWebhook204Response{}, nil
}

func (h *Handlers) RotateWebhookSecret(
	ctx context.Context,
	call *gen.Call,
	r gen.RotateWebhookSecretRequestObject,
) (gen.RotateWebhookSecretResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}
	if err := h.manages(ctx, id); err != nil {
		return nil, err
	}

	secret, err := h.Webhooks.Rotate(ctx, id, call.OperationID, convert.Seconds(int64(r.Body.OverlapSeconds)))
	if err != nil {
		return nil, err
	}
	return gen.RotateWebhookSecret200JSONResponse{Secret: secret}, nil
}

func (h *Handlers) TestWebhook(ctx context.Context, call *gen.Call, r gen.TestWebhookRequestObject) (gen.TestWebhookResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}
	if err := h.manages(ctx, id); err != nil {
		return nil, err
	}

	event, err := h.Webhooks.Test(ctx, id, call.OperationID)
	if err != nil {
		return nil, err
	}
	return gen.TestWebhook200JSONResponse{EventID: event}, nil
}

func (h *Handlers) RedeliverFailed(
	ctx context.Context,
	_ *gen.Call,
	r gen.RedeliverFailedRequestObject,
) (gen.RedeliverFailedResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}
	if err := h.manages(ctx, id); err != nil {
		return nil, err
	}

	n, err := h.Webhooks.RedeliverFailed(ctx, id, r.Body.Since)
	if err != nil {
		return nil, err
	}
	return gen.RedeliverFailed200JSONResponse{Deliveries: n}, nil
}

func (h *Handlers) ListDeliveries(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListDeliveriesRequestObject,
) (gen.ListDeliveriesResponseObject, error) {
	id, err := webhook.ParseID(r.WebhookID)
	if err != nil {
		return nil, err
	}

	p, before, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	query := webhook.DeliveryQuery{EndpointID: id, Before: webhook.DeliveryID(before), Limit: p.Limit + 1}
	if r.Params.State != nil {
		query.State = webhook.State(*r.Params.State)
	}

	found, err := h.Webhooks.Deliveries(ctx, query)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(d *webhook.Delivery) []byte { return d.ID[:] })
	return gen.ListDeliveries200JSONResponse{Data: convert.All(found, deliveryView), NextCursor: cursor}, nil
}

func (h *Handlers) GetDelivery(ctx context.Context, _ *gen.Call, r gen.GetDeliveryRequestObject) (gen.GetDeliveryResponseObject, error) {
	id, err := webhook.ParseDeliveryID(r.DeliveryID)
	if err != nil {
		return nil, err
	}
	d, attempts, err := h.Webhooks.Delivery(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.GetDelivery200JSONResponse{Delivery: deliveryView(&d), Attempts: convert.All(attempts, attemptView), Event: d.Body}, nil
}

func (h *Handlers) Redeliver(ctx context.Context, _ *gen.Call, r gen.RedeliverRequestObject) (gen.RedeliverResponseObject, error) {
	id, err := webhook.ParseDeliveryID(r.DeliveryID)
	if err != nil {
		return nil, err
	}
	before, _, err := h.Webhooks.Delivery(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := h.manages(ctx, before.EndpointID); err != nil {
		return nil, err
	}

	d, err := h.Webhooks.Redeliver(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.Redeliver200JSONResponse(deliveryView(&d)), nil
}

// manages returns an error unless the caller may manage an endpoint.
func (h *Handlers) manages(ctx context.Context, id webhook.ID) error {
	e, err := h.Webhooks.Get(ctx, id)
	if err != nil {
		return err
	}
	return mayManage(ctx, e.EventTypes)
}

// mayManage returns an error unless the caller may manage an endpoint that gets events of these types. A cabinet has endpoints for
// the events of its customers; whoever has the secret of an endpoint for the operator's events could make such events up.
func mayManage(ctx context.Context, types []webhook.Type) error {
	if p := admin.PrincipalOf(ctx); p != nil && admin.Allows(p.Scopes, admin.Operator) {
		return nil
	}
	if len(types) == 0 || slices.ContainsFunc(types, webhook.Type.IsForOperator) {
		return problem.Explain(
			problem.ErrForbidden,
			"a webhook that gets events of the operator needs the scope operator: with cabinet, name the event types of accounts and keys",
		)
	}
	return nil
}

func eventTypes(texts []gen.EventType) []webhook.Type {
	types := make([]webhook.Type, len(texts))
	for i, t := range texts {
		types[i] = webhook.Type(t)
	}
	return types
}

func webhookView(e *webhook.Endpoint) gen.Webhook {
	return gen.Webhook{
		ID:             e.ID.String(),
		URL:            e.URL,
		Description:    e.Description,
		Enabled:        e.Enabled,
		DisabledReason: convert.Optional(e.DisabledReason),
		EventTypes:     convert.All(e.EventTypes, func(t *webhook.Type) gen.EventType { return gen.EventType(*t) }),
		FailingSince:   e.FailingSince,
		CreatedAt:      e.CreatedAt,
		UpdatedAt:      e.UpdatedAt,
	}
}

func deliveryView(d *webhook.Delivery) gen.Delivery {
	view := gen.Delivery{
		ID:            d.ID.String(),
		WebhookID:     d.EndpointID.String(),
		EventID:       ident.Event.Format(d.EventID),
		Type:          string(d.Type),
		State:         gen.DeliveryState(d.State),
		Attempts:      d.Attempts,
		NextAttemptAt: d.NextAttemptAt,
		CreatedAt:     d.CreatedAt,
		EndedAt:       d.EndedAt,
	}
	if d.Last != nil {
		last := attemptView(d.Last)
		view.LastAttempt = &last
	}

	return view
}

func attemptView(a *webhook.Attempt) gen.DeliveryAttempt {
	view := gen.DeliveryAttempt{
		N:         a.N,
		At:        a.At,
		LatencyMS: a.Latency.Milliseconds(),
		Error:     convert.Optional(a.Error),
		Excerpt:   convert.Optional(a.Excerpt),
	}
	if a.Status != 0 {
		view.Status = &a.Status
	}
	return view
}
