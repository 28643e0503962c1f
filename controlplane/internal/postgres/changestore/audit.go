// Package changestore writes what a change leaves for others in its own transaction: the audit entry, webhook events, and the
// key change that proxies apply. The other stores use it.
package changestore

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// InsertAudit writes an audit entry in the transaction of the change. Before and after are written as JSON; nil means
// that the object did not exist.
func InsertAudit(ctx context.Context, q *sqlcgen.Queries, action string, object fmt.Stringer, before, after any) error {
	by := audit.By(ctx)
	entry := sqlcgen.InsertAuditParams{
		Actor:     by.Name,
		RequestID: by.RequestID,
		Action:    action,
		Object:    object.String(),
	}

	for _, side := range []struct {
		value any
		into  *[]byte
	}{{before, &entry.Before}, {after, &entry.After}} {
		if side.value == nil {
			continue
		}
		text, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("audit %s: %w", action, err)
		}
		*side.into = text
	}

	return q.InsertAudit(ctx, entry)
}

// InsertAuditOfCreated writes an entry for each object that one change has created, in its transaction, with one statement. afters
// are written as JSON.
func InsertAuditOfCreated(ctx context.Context, q *sqlcgen.Queries, action string, objects []fmt.Stringer, afters []any) error {
	by := audit.By(ctx)
	entries := sqlcgen.InsertAuditsParams{Actor: by.Name, RequestID: by.RequestID, Action: action}
	for i, object := range objects {
		text, err := json.Marshal(afters[i])
		if err != nil {
			return fmt.Errorf("audit %s: %w", action, err)
		}
		entries.Objects, entries.Afters = append(entries.Objects, object.String()), append(entries.Afters, string(text))
	}
	return q.InsertAudits(ctx, entries)
}

// Audit reads the audit log.
type Audit struct{ db *postgres.DB }

// NewAudit returns a store that uses db.
func NewAudit(db *postgres.DB) *Audit { return &Audit{db} }

func (s *Audit) Record(ctx context.Context, action, object string) error {
	by := audit.By(ctx)
	err := s.db.Queries().InsertAudit(ctx, sqlcgen.InsertAuditParams{
		Actor:     by.Name,
		RequestID: by.RequestID,
		Action:    action,
		Object:    object,
	})
	return postgres.Translate("write audit entry", err)
}

func (s *Audit) List(ctx context.Context, query audit.Query) ([]audit.Entry, error) {
	rows, err := s.db.PlannedQueries().ListAudit(ctx, sqlcgen.ListAuditParams{
		Object:    query.Object,
		Actor:     query.Actor,
		Action:    query.Action,
		RequestID: query.RequestID,
		FromTime:  postgres.OptionalTime(query.From),
		ToTime:    postgres.OptionalTime(query.To),
		BeforeID:  query.Before,
		RowLimit:  int32(query.Limit),
	})
	entries := make([]audit.Entry, len(rows))
	for i, row := range rows {
		entries[i] = audit.Entry{
			ID:        row.ID,
			At:        row.CreatedAt,
			Actor:     row.Actor,
			Action:    row.Action,
			Object:    row.Object,
			Before:    row.Before,
			After:     row.After,
			RequestID: row.RequestID,
		}
	}

	return entries, postgres.Translate("list audit log", err)
}
