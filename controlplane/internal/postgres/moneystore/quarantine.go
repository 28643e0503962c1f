package moneystore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/settle"
)

// Quarantine reads and resolves the events in quarantine.
type Quarantine struct{ db *postgres.DB }

// NewQuarantine returns a store that uses db.
func NewQuarantine(db *postgres.DB) *Quarantine { return &Quarantine{db} }

var _ settle.QuarantineStore = (*Quarantine)(nil)

func (s *Quarantine) List(ctx context.Context, q settle.QuarantineQuery) ([]settle.Quarantined, error) {
	rows, err := s.db.Queries().ListQuarantined(ctx, sqlcgen.ListQuarantinedParams{
		Resolution: string(q.Resolution), BeforeID: q.Before, RowLimit: int32(q.Limit),
	})
	found := make([]settle.Quarantined, len(rows))
	for i, r := range rows {
		found[i] = settle.Quarantined{
			ID:         r.ID,
			Session:    r.SessionID,
			Seq:        r.Seq,
			RequestID:  r.RequestID,
			Reason:     r.Reason,
			At:         r.CreatedAt,
			ResolvedAt: r.ResolvedAt,
			Resolution: settle.Resolution(r.Resolution),
			Note:       r.Note,
		}
	}

	return found, postgres.Translate("list quarantine", err)
}

func (s *Quarantine) Get(ctx context.Context, id int64) (settle.Quarantined, error) {
	return getQuarantined(ctx, s.db.Queries(), id)
}

func getQuarantined(ctx context.Context, q *sqlcgen.Queries, id int64) (settle.Quarantined, error) {
	r, err := q.GetQuarantined(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return settle.Quarantined{}, settle.ErrNotQuarantined
	}

	return settle.Quarantined{
		ID:         r.ID,
		Session:    r.SessionID,
		Seq:        r.Seq,
		RequestID:  r.RequestID,
		Reason:     r.Reason,
		Payload:    r.Payload,
		At:         r.CreatedAt,
		ResolvedAt: r.ResolvedAt,
		Resolution: settle.Resolution(r.Resolution),
		Note:       r.Note,
	}, postgres.Translate("read quarantine", err)
}

// quarantineID names an event in quarantine in the audit log.
type quarantineID int64

func (id quarantineID) String() string { return fmt.Sprintf("quarantine/%d", int64(id)) }

// resolved is an event in quarantine as the audit log keeps it, without payload.
type resolved struct {
	RequestID  string            `json:"request_id,omitempty"`
	Reason     string            `json:"reason"`
	Resolution settle.Resolution `json:"resolution,omitempty"`
	Note       string            `json:"note,omitempty"`
	ResolvedAt *time.Time        `json:"resolved_at,omitempty"`
}

func resolvedOf(q *settle.Quarantined) resolved {
	return resolved{q.RequestID, q.Reason, q.Resolution, q.Note, q.ResolvedAt}
}

func (s *Quarantine) Resolve(ctx context.Context, id int64, r settle.Resolution, why string) (after settle.Quarantined, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		before, err := getQuarantined(ctx, q, id)
		if err != nil {
			return err
		}

		n, err := q.ResolveQuarantined(ctx, sqlcgen.ResolveQuarantinedParams{ID: id, Resolution: string(r), Note: why})
		if err != nil {
			return err
		}
		if n == 0 {
			return settle.ErrAlreadyResolved
		}
		if after, err = getQuarantined(ctx, q, id); err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "quarantine."+string(r), quarantineID(id), resolvedOf(&before), resolvedOf(&after))
	})
	return after, postgres.Translate("resolve quarantine", err)
}

func (s *Quarantine) CountOpen(ctx context.Context) (int64, error) {
	n, err := s.db.Queries().CountOpenQuarantined(ctx)
	return n, postgres.Translate("count quarantine", err)
}
