package usage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/price"
)

// fakeStore has one record and one price sheet.
type fakeStore struct {
	usage.Store
	record usage.Record
	sheet  *price.Sheet
}

func (f fakeStore) Get(context.Context, usage.RequestID) (usage.Record, error) { return f.record, nil }

func (f fakeStore) Count(context.Context) (int64, error) { return 0, nil }

func (f fakeStore) Sheet(context.Context, int64) (price.Sheet, error) {
	if f.sheet == nil {
		return price.Sheet{}, usage.ErrNoSheet
	}
	return *f.sheet, nil
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	sheet := &price.Sheet{Rates: price.Rates{price.Input: 1e9}}
	for _, test := range []struct {
		name   string
		record usage.Record
		sheet  *price.Sheet
		lines  int
		want   error
	}{
		{"adds up", usage.Record{Usage: price.Usage{Input: 1e6}, Cost: 1e9}, sheet, 1, nil},
		{"nothing billable, no price", usage.Record{}, nil, 0, nil},
		{"differs from the charge", usage.Record{Usage: price.Usage{Input: 1e6}, Cost: 1e9 + 1}, sheet, 0, usage.ErrReceipt},
		{"charged for nothing", usage.Record{Cost: 5}, sheet, 0, usage.ErrReceipt},
		{"price is gone", usage.Record{Usage: price.Usage{Input: 1}, Cost: 1000}, nil, 0, usage.ErrNoSheet},
		{"unpriced", usage.Record{Usage: price.Usage{Output: 1}, Cost: 1000}, sheet, 0, price.ErrUnpriced},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, receipt, err := usage.NewService(fakeStore{record: test.record, sheet: test.sheet}).Get(t.Context(), usage.RequestID{})
			if !errors.Is(err, test.want) || len(receipt.Lines) != test.lines {
				t.Errorf("got %d lines, %v; want %d, %v", len(receipt.Lines), err, test.lines, test.want)
			}
		})
	}
}

func (f fakeStore) List(_ context.Context, q usage.Query) (usage.Page, error) {
	if (q.Before != usage.RequestID{}) {
		return usage.Page{Records: []usage.Record{f.record}}, nil
	}
	page := make([]usage.Record, q.Limit)
	for i := range page {
		page[i] = f.record
		page[i].RequestID = usage.RequestID{15: 1}
	}
	return usage.Page{Records: page}, nil
}

func TestReceiptsEqualCharges(t *testing.T) {
	t.Parallel()
	sheet := &price.Sheet{Rates: price.Rates{price.Input: 1e9}}
	for _, test := range []struct {
		name   string
		record usage.Record
		sheet  *price.Sheet
		want   *ledger.Difference
	}{
		{"adds up", usage.Record{Usage: price.Usage{Input: 1e6}, Cost: 1e9}, sheet, nil},
		{"nothing billable", usage.Record{}, nil, nil},
		{"differs", usage.Record{Usage: price.Usage{Input: 1e6}, Cost: 7}, sheet, &ledger.Difference{Want: 1e9, Got: 7}},
		{"price is gone", usage.Record{Usage: price.Usage{Input: 1}, Cost: 7}, nil, &ledger.Difference{Want: 0, Got: 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := usage.NewService(fakeStore{record: test.record, sheet: test.sheet}).CheckReceipts(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := ledger.Check{Name: "receipts_equal_charges", Compared: 1001, First: test.want}
			if test.want != nil {
				want.Differing = 1001
				want.First.Row = "request " + usage.RequestID{15: 1}.String()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrefixRange(t *testing.T) {
	t.Parallel()
	lowest, highest, err := usage.PrefixRange("req_0192f0c1d2e37a4b8c5d6e7f8091a2")
	if err != nil || lowest.String() != "req_0192f0c1d2e37a4b8c5d6e7f8091a200" || highest.String() != "req_0192f0c1d2e37a4b8c5d6e7f8091a2ff" {
		t.Errorf("got %s to %s, %v", lowest, highest, err)
	}
	if _, _, err := usage.PrefixRange("req_"); err != nil {
		t.Errorf("every id begins with req_; got %v", err)
	}
	for _, prefix := range []string{"", "re", "acc_01", "req_0G", "req_0A", "req_0192f0c1d2e37a4b8c5d6e7f8091a2b3c"} {
		if _, _, err := usage.PrefixRange(prefix); !errors.Is(err, usage.ErrNotFound) {
			t.Errorf("%q: got %v; want no such request", prefix, err)
		}
	}
}
