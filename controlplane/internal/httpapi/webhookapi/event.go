package webhookapi

import (
	"context"
	"encoding/binary"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

func (h *Handlers) ListEvents(ctx context.Context, _ *gen.Call, r gen.ListEventsRequestObject) (gen.ListEventsResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q := webhook.EventQuery{Type: webhook.Type(convert.Value(r.Params.Type)), Limit: p.Limit + 1}
	var invalid validation.Errors
	q.AccountID, _ = convert.ReadOwner(&invalid, r.Params.AccountID, nil)
	switch convert.Value(r.Params.Order) {
	case "", gen.EventOrderNewest:
	case gen.EventOrderOldest:
		q.OldestFirst = true
	default:
		invalid.Add("order", "must be newest or oldest")
	}

	if q.From, err = position(p.Cursor); invalid.Err() != nil || err != nil {
		return nil, validation.Merge(invalid.Err(), err)
	}

	found, err := h.Webhooks.Events(ctx, q)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, cursorOf)
	if q.OldestFirst && cursor == nil {
		// Whoever pulls continues here when there are new events.
		if cursor = r.Params.Cursor; len(found) > 0 {
			cursor = convert.CursorOf(cursorOf(&found[len(found)-1]))
		}
	}

	return gen.ListEvents200JSONResponse{NextCursor: cursor, Data: convert.All(found, func(e *webhook.Listed) gen.ListedEvent {
		return gen.ListedEvent{Event: e.Body, Deliveries: convert.All(e.Deliveries, deliveryView)}
	})}, nil
}

// timeLen is the length of the time in a cursor, which the id follows.
const timeLen = 8

func cursorOf(e *webhook.Listed) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(e.At.UnixMicro())), e.ID[:]...)
}

// position parses a cursor; nil for the first page.
func position(cursor []byte) (*webhook.Position, error) {
	if cursor == nil {
		return nil, nil //nolint:nilnil // an absent position is valid
	}
	var p webhook.Position
	if len(cursor) != timeLen+len(p.ID) {
		return nil, convert.InvalidCursor()
	}
	p.At, p.ID = time.UnixMicro(int64(binary.BigEndian.Uint64(cursor))), ident.UUID(cursor[timeLen:])
	return &p, nil
}
