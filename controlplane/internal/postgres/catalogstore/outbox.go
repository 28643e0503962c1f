package catalogstore

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/subject"
)

// writeOutbox writes entries to the outbox, the head last, and notifies the
// publisher when the transaction commits.
func writeOutbox(ctx context.Context, q *sqlcgen.Queries, rev int64, entries []catalog.Entry) error {
	head, err := json.Marshal(catalogkv.Head{V: headVersion, Rev: rev})
	if err != nil {
		return fmt.Errorf("encode head: %w", err)
	}
	for _, e := range append(entries, catalog.Entry{Subject: subject.CatalogHead, Payload: head}) {
		if err := q.InsertOutbox(ctx, sqlcgen.InsertOutboxParams{Subject: e.Subject, Payload: e.Payload}); err != nil {
			return err
		}
	}
	return q.NotifyOutbox(ctx)
}

// headVersion is the version of the head entry that this program writes.
const headVersion = 1
