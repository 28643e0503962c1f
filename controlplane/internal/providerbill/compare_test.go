package providerbill

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

// month is a month of calls, and the bill of it with seeded differences.
type month struct {
	records []Record
	rows    strings.Builder
	seeded  map[Reason]int
}

var firstDay = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func (m *month) bill(r *Record, id string, amount money.Nano) {
	fmt.Fprintf(&m.rows, "%s,%s,%s,%s,%s,USD\n", r.At.Format(time.RFC3339), r.Model, r.Credential, id, amount)
}

// newMonth returns a month with n calls, of which about one in a thousand is billed otherwise than it was recorded, in seven ways.
func newMonth(seed uint64, n int) *month {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &month{seeded: map[Reason]int{}}
	m.rows.WriteString("day,model,credential,request_id,amount,currency\n")
	for i := range n {
		record := Record{
			At:         firstDay.Add(time.Duration(r.Int64N(int64(30 * 24 * time.Hour)))),
			Model:      fmt.Sprint("model-", r.IntN(5)),
			Credential: fmt.Sprint("key-", r.IntN(3)),
			RequestID:  fmt.Sprint("id-", i),
			Cost:       1000 * money.Nano(1000+r.IntN(1_000_000)),
			Estimated:  r.IntN(100) == 0,
			Cancelled:  r.IntN(100) == 0,
		}
		m.records = append(m.records, record)
		if r.IntN(1000) > 0 {
			m.bill(&record, record.RequestID, record.Cost)
			continue
		}
		last := &m.records[i]
		last.Estimated, last.Cancelled = false, false
		reasons := []Reason{Rounding, OurEstimate, CancelledStream, UnknownCall, NotBilled, BilledTwice, Price}
		reason := reasons[r.IntN(len(reasons))]
		m.seeded[reason]++
		switch reason {
		case Rounding:
			last.Cost += 400 // the bill has six places
			m.bill(last, last.RequestID, record.Cost)
		case OurEstimate:
			last.Estimated = true
			m.bill(last, last.RequestID, record.Cost*2)
		case CancelledStream:
			last.Cancelled = true
			m.bill(last, last.RequestID, record.Cost/1000/2*1000)
		case UnknownCall:
			m.bill(last, last.RequestID, record.Cost)
			m.bill(last, "other-"+last.RequestID, record.Cost)
		case BilledTwice:
			m.bill(last, last.RequestID, record.Cost)
			m.bill(last, last.RequestID, record.Cost)
		case Price:
			m.bill(last, last.RequestID, record.Cost+1000)
		}
	}
	return m
}

// Of a month of calls with a line for each, every seeded difference is found with its reason, and nothing else.
func TestEverySeededDifferenceIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	const calls = 200_000
	m := newMonth(rand.Uint64(), calls)
	got, err := Compare(parse(t, m.rows.String()), slices.Values(m.records))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.seeded, got.Counts); diff != "" || len(m.seeded) != 7 {
		t.Errorf("differences (-seeded +found):\n%s", diff)
	}
	sum := money.Nano(0)
	for _, d := range got.Differences {
		for _, part := range d.Parts {
			sum += part.Amount
		}
	}
	if sum != got.Billed-got.Recorded {
		t.Errorf("the parts of all differences sum to %s; the bill differs by %s", sum, got.Billed-got.Recorded)
	}
}

// groupBill is a bill of days.
func groupBill(rows ...string) string {
	return "day,model,credential,amount\n" + strings.Join(rows, "\n") + "\n"
}

func TestDifferencesOfDaysAreExplainedByTheirCalls(t *testing.T) {
	t.Parallel()
	noon, night := firstDay.Add(12*time.Hour), firstDay.Add(23*time.Hour+30*time.Minute)
	calls := []Record{
		{At: noon, Model: "demo-2026-01-01", Credential: "k", Cost: 5 * money.Unit},
		{At: noon, Model: "Demo", Credential: "k", Cost: 2 * money.Unit, Estimated: true},
		{At: noon, Model: "demo", Credential: "k", Cost: money.Unit, Cancelled: true},
		{At: night, Model: "demo", Credential: "k", Cost: money.Unit},
	}
	for name, test := range map[string]struct {
		rows []string
		want []Part
	}{
		"equal":                  {[]string{"2026-11-01,demo,k,9.00"}, nil},
		"rounded":                {[]string{"2026-11-01,demo,k,4.004", "2026-11-01,demo,k,4.9965"}, []Part{{Rounding, 100_000}, {OurEstimate, 400_000}}},
		"another estimate":       {[]string{"2026-11-01,demo,k,10.50"}, []Part{{Rounding, 5_000_000}, {OurEstimate, 1_495_000_000}}},
		"more than an estimate":  {[]string{"2026-11-01,demo,k,13.000000000"}, []Part{{Rounding, 1}, {OurEstimate, 2 * money.Unit}, {CancelledStream, money.Unit}, {Unexplained, money.Unit - 1}}},
		"the next day":           {[]string{"2026-11-01,demo,k,8.000000000", "2026-11-02,demo,k,1.000000000"}, []Part{{OtherDay, -money.Unit}, {OtherDay, money.Unit}}},
		"not billed":             {[]string{"2026-11-01,other,k,0.000000001"}, []Part{{OurEstimate, -2 * money.Unit}, {CancelledStream, -money.Unit}, {NotBilled, -6 * money.Unit}, {Rounding, 1}}},
		"somebody else's calls":  {[]string{"2026-11-01,demo,k,9.000000000", "2026-11-01,demo,x,3.000000000"}, []Part{{Rounding, 1}, {UnknownCall, 3*money.Unit - 1}}},
		"by day alone":           {[]string{"2026-11-01,,,12.000000000"}, []Part{{Rounding, 1}, {OurEstimate, 2 * money.Unit}, {CancelledStream, money.Unit - 1}}},
		"less than it should be": {[]string{"2026-11-01,demo,k,5.000000000"}, []Part{{Rounding, -1}, {OurEstimate, -2 * money.Unit}, {CancelledStream, -money.Unit}, {Unexplained, 1 - money.Unit}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compared, err := Compare(parse(t, groupBill(test.rows...)), slices.Values(calls))
			if err != nil {
				t.Fatal(err)
			}
			var got []Part
			for _, d := range compared.Differences {
				sum := money.Nano(0)
				for _, part := range d.Parts {
					sum += part.Amount
				}
				if sum != d.Billed-d.Recorded {
					t.Errorf("the parts of %+v sum to %s", d, sum)
				}
				got = append(got, d.Parts...)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAlarmNeedsMoreThanOneInAThousandOpen(t *testing.T) {
	t.Parallel()
	calls := []Record{{At: firstDay, Model: "demo", Credential: "k", Cost: 1000 * money.Unit}}
	for amount, want := range map[string]bool{"1000.000000000": false, "1000.9": false, "999.000000001": false, "1001.100000000": true, "998.900000000": true} {
		compared, err := Compare(parse(t, groupBill("2026-11-01,demo,k,"+amount)), slices.Values(calls))
		if err != nil || compared.Alarming() != want {
			t.Errorf("%s of 1000: %v, open %s; want %v", amount, err, compared.OpenAmount(), want)
		}
	}
}
