package statement

import (
	"context"
	"math"
	"testing"
	"time"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/money"
)

// fakeStore has the entries of one period.
type fakeStore Entries

func (b fakeStore) Entries(context.Context, Query, int) (Entries, error) { return Entries(b), nil }

func day(n int) time.Time { return time.Date(2026, time.October, n, 0, 0, 0, 0, time.UTC) }

func charged(costs ...money.Nano) (lines []usage.Total) {
	for _, cost := range costs {
		lines = append(lines, usage.Total{Sums: usage.Sums{Cost: cost}})
	}
	return lines
}

func TestStatementSums(t *testing.T) {
	t.Parallel()
	q := Query{Period: Period{day(1), day(2)}}
	got, err := NewService(fakeStore{
		Opening: 700, Lines: charged(30, 12),
		Transactions: []ledger.Transaction{{Kind: ledger.Payment, Amount: 1000}, {Kind: ledger.Correction, Amount: -250}, {Kind: ledger.Correction, Amount: 50}},
	}).Make(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for name, sum := range map[string][2]money.Nano{
		"opening": {got.Opening, 700}, "credits": {got.Payments, 1000}, "corrections": {got.Corrections, -200}, "usage": {got.Usage, 42},
		"closing": {got.Closing, 1458},
	} {
		if sum[0] != sum[1] {
			t.Errorf("%s is %d; want %d", name, sum[0], sum[1])
		}
	}
	if got, err := NewService(fakeStore{Opening: math.MaxInt64, Transactions: []ledger.Transaction{{Kind: ledger.Payment, Amount: 1}}}).Make(t.Context(), q); err == nil {
		t.Errorf("sums that no int64 holds gave %d", got.Closing)
	}
}
