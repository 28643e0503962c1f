package httpapi

import (
	"context"
	"encoding/json"
	"strconv"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/validation"
)

// maxPayload bounds the bytes of an unreadable event in an answer.
const maxPayload = 64 << 10

// ListQuarantine implements gen.StrictServerInterface.
func (s *server) ListQuarantine(ctx context.Context, r gen.ListQuarantineRequestObject) (gen.ListQuarantineResponseObject, error) {
	p, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	query := settle.QuarantineQuery{Limit: p.limit + 1}
	if r.Params.State != nil {
		switch state := *r.Params.State; state {
		case gen.QuarantineOpen:
		case gen.QuarantineReleased, gen.QuarantineDismissed:
			query.Resolution = settle.Resolution(state)
		default:
			return nil, validation.New("state", "must be open, released or dismissed")
		}
	}
	if query.Before, err = p.number(); err != nil {
		return nil, err
	}
	found, err := s.cfg.Quarantine.List(ctx, query)
	if err != nil {
		return nil, err
	}
	found, cursor := next(p, found, func(q *settle.Quarantined) []byte { return strconv.AppendInt(nil, q.ID, 10) })
	return gen.ListQuarantine200JSONResponse{Data: all(found, quarantinedView), NextCursor: cursor}, nil
}

// GetQuarantined implements gen.StrictServerInterface.
func (s *server) GetQuarantined(ctx context.Context, r gen.GetQuarantinedRequestObject) (gen.GetQuarantinedResponseObject, error) {
	found, err := s.cfg.Quarantine.Get(ctx, r.QuarantineID)
	if err != nil {
		return nil, err
	}
	return gen.GetQuarantined200JSONResponse(quarantinedView(&found)), nil
}

// ReleaseQuarantined implements gen.StrictServerInterface.
func (s *server) ReleaseQuarantined(ctx context.Context, r gen.ReleaseQuarantinedRequestObject) (gen.ReleaseQuarantinedResponseObject, error) {
	released, err := s.cfg.Quarantine.Release(ctx, r.QuarantineID)
	if err != nil {
		return nil, err
	}
	return gen.ReleaseQuarantined200JSONResponse(quarantinedView(&released)), nil
}

// DismissQuarantined implements gen.StrictServerInterface.
func (s *server) DismissQuarantined(ctx context.Context, r gen.DismissQuarantinedRequestObject) (gen.DismissQuarantinedResponseObject, error) {
	if n := len([]rune(r.Body.Reason)); n == 0 || n > 500 {
		return nil, validation.New("reason", "must have 1 to 500 characters")
	}
	dismissed, err := s.cfg.Quarantine.Dismiss(ctx, r.QuarantineID, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	return gen.DismissQuarantined200JSONResponse(quarantinedView(&dismissed)), nil
}

func quarantinedView(q *settle.Quarantined) gen.Quarantined {
	view := gen.Quarantined{
		ID: q.ID, Session: q.Session, Number: q.N, RequestID: present(q.RequestID), Reason: q.Reason, At: q.At,
		State: gen.QuarantineState(q.Resolution), ResolvedAt: q.ResolvedAt, Note: present(q.Note),
	}
	if q.Resolution == settle.Open {
		view.State = gen.QuarantineOpen
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
