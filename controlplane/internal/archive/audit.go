package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/audit"
)

// auditLine is an audit entry in a file.
type auditLine struct {
	ID        int64           `json:"id"`
	At        time.Time       `json:"at"`
	Actor     string          `json:"actor"`
	Action    string          `json:"action"`
	Object    string          `json:"object"`
	RequestID string          `json:"request_id,omitempty"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}

// maxAudit bounds the entries of one file; the next run writes the rest.
const maxAudit = 100_000

// runAudit moves old audit entries to a file. Without a directory it deletes nothing, since no
// other record of the entries would be left.
func (s *Service) runAudit(ctx context.Context, from time.Time) error {
	if s.cfg.AuditRetentionMonths <= 0 || s.cfg.Dir == "" {
		return nil
	}

	found, err := s.cfg.Store.AuditBefore(ctx, from, 0, 1)
	if err != nil || len(found) == 0 {
		return err
	}

	first, last, entries := found[0].ID, int64(0), int64(0)
	name := fmt.Sprintf("audit-%012d.ndjson.gz", first)
	sum, err := write(s.cfg.Dir, name, func(line func([]byte) error) error {
		last, entries = first-1, 0
		for entries < maxAudit {
			found, err := s.cfg.Store.AuditBefore(ctx, from, last, page)
			if err != nil || len(found) == 0 {
				return err
			}
			for i := range found {
				if err := line(encodeAudit(&found[i])); err != nil {
					return err
				}
			}
			entries += int64(len(found))
			last = found[len(found)-1].ID
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}

	return s.cfg.Store.RemoveAudit(ctx, last, entries, name, sum)
}

func encodeAudit(e *audit.Entry) []byte {
	line, err := json.Marshal(auditLine{e.ID, e.At, e.Actor, e.Action, e.Object, e.RequestID, e.Before, e.After})
	if err != nil { // jsonb from Postgres always marshals
		panic(err)
	}
	return line
}
