package moneystore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/money"
)

// insert writes the usage records and returns the indices of the new ones.
func (t *settleTx) insert() ([]int, error) {
	transaction := ident.New()
	absent, err := t.findAbsent()
	if err != nil || len(absent) == 0 {
		return nil, err
	}
	if err := t.copy(absent, transaction); err != nil {
		return nil, fmt.Errorf("insert usage: %w", err)
	}
	took := make(map[[16]byte]bool, len(absent))
	for _, i := range absent {
		took[t.items[i].RequestID] = true
	}
	fresh := t.MarkInserted(took)
	return fresh, t.post(transaction, fresh)
}

// findAbsent returns the candidates that have no usage record that this transaction
// can see.
func (t *settleTx) findAbsent() ([]int, error) {
	absent, doubtful, err := t.partition()
	if err != nil {
		return nil, err
	}

	t.fingerprints = map[[16]byte][32]byte{}
	if len(doubtful) == 0 {
		return absent, nil
	}

	ids := make([]ident.UUID, len(doubtful))
	for n, i := range doubtful {
		ids[n] = t.items[i].RequestID
	}

	rows, err := t.q.SettledCharges(t.ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read settled charges: %w", err)
	}

	for i := range rows {
		if t.fingerprints[rows[i].RequestID], err = fingerprintOf(&rows[i]); err != nil {
			return nil, err
		}
	}

	var unrecorded []int
	for _, i := range doubtful {
		if _, recorded := t.fingerprints[t.items[i].RequestID]; !recorded {
			unrecorded = append(unrecorded, i)
		}
	}

	if unrecorded, err = t.dropQuarantined(unrecorded); err != nil {
		return nil, err
	}

	absent = append(absent, unrecorded...)
	slices.Sort(absent) // by request id, like the items, so that concurrent settlements of the same events insert in the same order
	return absent, nil
}

// fingerprintOf returns the fingerprint of the event that a record was made of: the
// record has every member on which it depends.
func fingerprintOf(r *sqlcgen.SettledChargesRow) ([32]byte, error) {
	e := event.Usage{
		RequestID:    ident.Request.Format(r.RequestID),
		AccountID:    ident.Account.Format(r.AccountID),
		KeyID:        ident.Key.Format(r.KeyID),
		Model:        r.Model,
		PriceVersion: r.PriceVersion,
		Cost:         money.Nano(r.Cost),
	}
	if err := json.Unmarshal(r.Usage, &e.Usage); err != nil {
		return [32]byte{}, fmt.Errorf("read usage of %s: %w", e.RequestID, err)
	}
	return e.Fingerprint(), nil
}

// copy writes the records of these items.
func (t *settleTx) copy(indices []int, transaction ident.UUID) error {
	began, err := t.q.TransactionTime(t.ctx)
	if err != nil {
		return err
	}
	records := &recordCopy{
		items:       t.items,
		indices:     indices,
		transaction: transaction,
		settledAt:   began,
	}
	if _, err := t.tx.Conn().PgConn().CopyFrom(t.ctx, records, copyRecords); err != nil {
		return fmt.Errorf("copy records: %w", err)
	}
	return nil
}

// partition splits the candidates into those that are probably new and those that
// may be settled already: by their sequence numbers, or because Postgres does not
// know the session, which it may have lost. This only saves queries: the primary key
// decides.
func (t *settleTx) partition() (expected, doubtful []int, err error) {
	candidates := t.Candidates()
	if t.checkAll || len(candidates) == 0 {
		return nil, candidates, nil
	}

	settled, err := t.settledSeqs()
	if err != nil {
		return nil, nil, err
	}

	for _, i := range candidates {
		if numbers, known := settled[t.items[i].Session]; known && !numbers.Contains(t.items[i].Seq) {
			expected = append(expected, i)
		} else {
			doubtful = append(doubtful, i)
		}
	}

	return expected, doubtful, nil
}

func (t *settleTx) settledSeqs() (map[int64]settlement.IntervalSet, error) {
	rows, err := t.q.SettledSeqs(t.ctx, t.sessions())
	if err != nil {
		return nil, fmt.Errorf("read settled sequence numbers: %w", err)
	}
	settled := make(map[int64]settlement.IntervalSet, len(rows))
	for _, r := range rows {
		if settled[r.ID], err = numbersOf(r.ID, r.Ranges); err != nil {
			return nil, err
		}
	}
	return settled, nil
}

func numbersOf(session int64, ranges []byte) (numbers settlement.IntervalSet, err error) {
	if err := json.Unmarshal(ranges, &numbers); err != nil {
		return nil, fmt.Errorf("read settled sequence numbers of session %d: %w", session, err)
	}
	return numbers, nil
}

// sessions returns the ids of the sessions of the batch, sorted.
func (t *settleTx) sessions() []int64 {
	ids := map[int64]bool{}
	for i := range t.items {
		ids[t.items[i].Session] = true
	}
	return slices.Sorted(maps.Keys(ids))
}
