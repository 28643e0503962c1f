package billingapi

import (
	"context"
	"encoding/json"
	"strconv"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/validation"
)

// maxPayload bounds the payload of an unreadable event in a response, in bytes.
const maxPayload = 64 << 10

func (h *Handlers) ListQuarantine(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListQuarantineRequestObject,
) (gen.ListQuarantineResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	query := settle.QuarantineQuery{Limit: p.Limit + 1}
	if r.Params.State != nil {
		switch state := *r.Params.State; state {
		case gen.QuarantineStateOpen:
		case gen.QuarantineStateReleased, gen.QuarantineStateDismissed:
			query.Resolution = settle.Resolution(state)
		default:
			return nil, validation.New("state", "must be open, released or dismissed")
		}
	}

	if query.Before, err = p.Number(); err != nil {
		return nil, err
	}

	found, err := h.Quarantine.List(ctx, query)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(q *settle.Quarantined) []byte { return strconv.AppendInt(nil, q.ID, 10) })
	return gen.ListQuarantine200JSONResponse{Data: convert.All(found, quarantinedView), NextCursor: cursor}, nil
}

func (h *Handlers) GetQuarantined(
	ctx context.Context,
	_ *gen.Call,
	r gen.GetQuarantinedRequestObject,
) (gen.GetQuarantinedResponseObject, error) {
	found, err := h.Quarantine.Get(ctx, r.QuarantineID)
	if err != nil {
		return nil, err
	}
	return gen.GetQuarantined200JSONResponse(quarantinedView(&found)), nil
}

func (h *Handlers) ReleaseQuarantined(
	ctx context.Context,
	_ *gen.Call,
	r gen.ReleaseQuarantinedRequestObject,
) (gen.ReleaseQuarantinedResponseObject, error) {
	released, err := h.Quarantine.Release(ctx, r.QuarantineID)
	if err != nil {
		return nil, err
	}
	return gen.ReleaseQuarantined200JSONResponse(quarantinedView(&released)), nil
}

func (h *Handlers) DismissQuarantined(
	ctx context.Context,
	_ *gen.Call,
	r gen.DismissQuarantinedRequestObject,
) (gen.DismissQuarantinedResponseObject, error) {
	if n := len([]rune(r.Body.Reason)); n == 0 || n > 500 {
		return nil, validation.New("reason", "must have 1 to 500 characters")
	}
	dismissed, err := h.Quarantine.Dismiss(ctx, r.QuarantineID, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.DismissQuarantined200JSONResponse(quarantinedView(&dismissed)), nil
}

func quarantinedView(q *settle.Quarantined) gen.Quarantined {
	view := gen.Quarantined{
		ID:         q.ID,
		Session:    q.Session,
		Seq:        q.Seq,
		RequestID:  convert.Optional(q.RequestID),
		Reason:     q.Reason,
		At:         q.At,
		State:      gen.QuarantineState(q.Resolution),
		ResolvedAt: q.ResolvedAt,
		Note:       convert.Optional(q.Note),
	}
	if q.Resolution == settle.Open {
		view.State = gen.QuarantineStateOpen
	}

	switch {
	case q.Payload == nil:
	case json.Valid(q.Payload):
		view.Event = json.RawMessage(q.Payload)
	default:
		view.Payload = q.Payload[:min(len(q.Payload), maxPayload)]
	}

	return view
}
