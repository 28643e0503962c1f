package providerbill

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/money"
)

var firstDay = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// call is a record without a counterpart.
func call(at time.Time, model string, cost money.Nano, change func(*Pair)) *Pair {
	p := &Pair{
		Calls:            1,
		At:               at,
		CalledModel:      model,
		CalledCredential: "k",
		Recorded:         cost,
	}
	if change != nil {
		change(p)
	}
	return p
}

// compare compares the rows of a table with records.
func compare(t *testing.T, rows string, records ...*Pair) *Comparison {
	t.Helper()
	content, lines := read(t, "day,model,credential,amount\n"+rows)
	pairs := slices.Clone(records)
	for i := range lines {
		pairs = append(pairs, lineOf(content, &lines[i]))
	}
	compared, err := Compare(&Bill{Options: Options{TimeZone: "UTC"}, Content: *content}, func(yield func(*Pair, error) bool) {
		for _, p := range pairs {
			if !yield(p, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := money.Nano(0)
	for _, d := range compared.Differences {
		if parts := sumOf(d.Parts); parts != d.Billed-d.Recorded {
			t.Errorf("the parts of %+v sum to %s", d, parts)
		}
		sum += d.Billed - d.Recorded
	}
	if sum != compared.Billed-compared.Recorded || sum != sumOf(compared.Parts) {
		t.Errorf("the differences sum to %s, the bill differs by %s and its parts sum to %s", sum, compared.Billed-compared.Recorded, sumOf(compared.Parts))
	}
	return compared
}

func over(kind Kind, amount money.Nano) Part  { return Part{kind, amount, 0, 1} }
func under(kind Kind, amount money.Nano) Part { return Part{kind, 0, amount, 1} }

// Of a bill that has nothing but a total for each day, each day is compared with all its requests.
func TestTotalsOfDaysAreComparedByDay(t *testing.T) {
	t.Parallel()
	const unit = money.Unit
	second := firstDay.AddDate(0, 0, 1)
	noon := func(day time.Time) time.Time { return day.Add(12 * time.Hour) }
	records := []*Pair{
		call(noon(firstDay), "small", 2*unit, nil), call(noon(firstDay), "large", 5*unit, nil),
		call(noon(second), "small", 3*unit, nil), call(noon(second), "large", 4*unit, func(p *Pair) { p.Estimated, p.CalledCredential = true, "other" }),
	}
	compared := compare(t, "2026-11-01,,,7.000000000\n2026-11-02,,,9.500000000\n", records...)
	if compared.ByModel || compared.ByCredential {
		t.Errorf("compared by model %t, by credential %t; want neither", compared.ByModel, compared.ByCredential)
	}
	want := []Difference{{
		Number: 1, Day: second, Billed: 9*unit + unit/2, Recorded: 7 * unit, Lines: 1, Calls: 2,
		Parts: []Part{over(OurEstimate, 2*unit+unit/2-3), over(Rounding, 3)},
	}}
	if diff := cmp.Diff(want, compared.Differences); diff != "" {
		t.Errorf("the differences (-want +got):\n%s", diff)
	}
	compared = compare(t, "2026-11-01,,,6.000000000\n2026-11-02,,,7.000000000\n", records...)
	if d := compared.Differences; len(d) != 1 || !d[0].Day.Equal(firstDay) || d[0].OpenAmount() != unit-3 || d[0].Model != "" {
		t.Errorf("got %+v; want a unit that the first day lacks", d)
	}
}

func TestDifferencesOfDaysAreExplainedByTheirRequests(t *testing.T) {
	t.Parallel()
	noon, night := firstDay.Add(12*time.Hour), firstDay.Add(23*time.Hour+30*time.Minute)
	records := []*Pair{
		call(noon, "demo-2026-01-01", 5*money.Unit, nil),
		call(noon, "Demo", 2*money.Unit, func(p *Pair) { p.Estimated = true }),
		call(noon, "demo", money.Unit, func(p *Pair) { p.Cancelled = true }),
		call(night, "demo", money.Unit, nil),
	}
	const unit = money.Unit
	// Lines of nine places may be rounded by half a nano-unit, and so may each of the four requests.
	for name, test := range map[string]struct {
		rows string
		want []Part
	}{
		"equal":                 {"2026-11-01,demo,k,9.00", nil},
		"rounded":               {"2026-11-01,demo,k,4.004\n2026-11-01,demo,k,4.9965", []Part{over(OurEstimate, 399_996), over(Rounding, 100_004)}},
		"another estimate":      {"2026-11-01,demo,k,10.50", []Part{over(OurEstimate, 1_494_999_996), over(Rounding, 5_000_004)}},
		"more than an estimate": {"2026-11-01,demo,k,13.000000000", []Part{over(Unexplained, unit-5), over(OurEstimate, 2*unit), over(CancelledStream, unit), over(Rounding, 5)}},
		"the next day": {
			"2026-11-01,demo,k,8.000000000\n2026-11-02,demo,k,1.000000000", []Part{{OtherDay, unit, unit, 2}},
		},
		"not billed": {
			"2026-11-01,demo,k,0.000000001",
			[]Part{under(Unexplained, 5*unit-6), under(OurEstimate, 2*unit), under(CancelledStream, unit), under(Rounding, 5), under(OtherDay, unit)},
		},
		"another model as well":      {"2026-11-01,demo,k,9.000000000\n2026-11-01,other,k,3.000000000", []Part{over(UnknownCall, 3*unit-1), over(Rounding, 1)}},
		"somebody else's calls":      {"2026-11-01,demo,k,9.000000000\n2026-11-01,demo,x,3.000000000", []Part{over(UnknownCall, 3*unit-1), over(Rounding, 1)}},
		"by day alone":               {"2026-11-01,,,12.000000000", []Part{over(OurEstimate, 2*unit), over(CancelledStream, unit-5), over(Rounding, 5)}},
		"names of its own":           {"2026-11-01,USE1-sku,111122223333,9.000000000", nil},
		"a line without a model":     {"2026-11-01,demo,k,8.250000000\n2026-11-01,,k,0.750000000", []Part{{OtherLine, 750_000_000, 750_000_000, 2}}},
		"what no model lacks":        {"2026-11-01,demo,k,9.000000000\n2026-11-01,,k,5.000000000", []Part{over(UnknownCall, 5*unit-1), over(Rounding, 1)}},
		"a credit of the model":      {"2026-11-01,demo,k,9.000000000\n2026-11-01,demo,k,-2.000000000", []Part{under(Rounding, 6), under(Credited, 2*unit-6)}},
		"the end of the bill":        {"2026-11-01T11:00:00Z,demo,k,0.000000000", nil},
		"less than it should be":     {"2026-11-01,demo,k,4.000000000", []Part{under(Unexplained, unit-5), under(OurEstimate, 2*unit), under(CancelledStream, unit), under(Rounding, 5), under(OtherDay, unit)}},
		"a day that is not recorded": {"2026-11-01,demo,k,9.000000000\n2026-11-03,demo,k,1.000000000", []Part{over(UnknownCall, unit-1), over(Rounding, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compared := compare(t, test.rows, records...)
			if name == "the end of the bill" {
				if len(compared.Parts) != 2 || compared.Parts[1].Kind != AfterEnd || compared.OpenAmount() != 0 {
					t.Errorf("parts %+v; want what came after the end explained", compared.Parts)
				}
				return
			}
			if diff := cmp.Diff(test.want, compared.Parts); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// A provider that bills requests of the last hour on the next day does so on the first and the last day of a bill, too: one that is
// imported every day would always differ.
func TestFirstAndLastHourMayBeOnOtherBills(t *testing.T) {
	t.Parallel()
	const unit = money.Unit
	night := func(day int) time.Time { return firstDay.AddDate(0, 0, day).Add(-10 * time.Minute) }
	records := []*Pair{
		call(night(0), "demo", unit, nil), call(firstDay.Add(time.Hour), "demo", 8*unit, nil), call(night(1), "demo", 2*unit, nil),
		call(night(-1), "demo", 4*unit, nil), call(night(0).Add(-time.Hour), "demo", 4*unit, nil),
	}
	for rows, want := range map[string][]Part{
		"2026-11-01,demo,k,9.000000000":  {under(Rounding, 3), under(OtherDay, unit-3)}, // what both hours have is one difference
		"2026-11-01,demo,k,11.000000000": {over(Rounding, 3), over(OtherDay, unit-3)},
		"2026-11-01,demo,k,12.000000000": {over(Unexplained, unit-3), over(Rounding, 3), over(OtherDay, unit)},
		"2026-11-01,demo,k,8.000000000":  {under(Rounding, 3), under(OtherDay, 2*unit-3)},
		"2026-11-01,demo,k,7.000000000":  {under(Unexplained, unit-3), under(Rounding, 3), under(OtherDay, 2*unit)},
		"2026-11-01,,,11.000000000":      {over(Rounding, 3), over(OtherDay, unit-3)},
	} {
		if diff := cmp.Diff(want, compare(t, rows, records...).Parts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", rows, diff)
		}
	}
}

// What one day has too much and another too little does not cancel out.
func TestOpenDifferencesDoNotCancelOut(t *testing.T) {
	t.Parallel()
	compared := compare(t, "2026-11-01,demo,k,6.000000000\n2026-11-05,demo,k,4.000000000",
		call(firstDay, "demo", 5*money.Unit, nil), call(firstDay.AddDate(0, 0, 4), "demo", 5*money.Unit, nil))
	if open := compared.OpenAmount(); open < 2*money.Unit-10 || compared.Billed != compared.Recorded {
		t.Errorf("%s is open; want 2", open)
	}
}

// A request whose price is unknown may explain any amount, so it is open.
func TestUnknownPricesAreOpen(t *testing.T) {
	t.Parallel()
	compared := compare(t, "2026-11-01,demo,k,6.000000000", call(firstDay, "demo", 5*money.Unit, nil),
		call(firstDay, "demo", 0, func(p *Pair) { p.NoPrice = true }))
	if diff := cmp.Diff([]Part{over(NoPrice, money.Unit-3), over(Rounding, 3)}, compared.Parts); diff != "" || compared.OpenAmount() == 0 {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestAlarmNeedsMoreThanOneInAThousandOpen(t *testing.T) {
	t.Parallel()
	imported := firstDay.AddDate(0, 1, 0)
	for amount, want := range map[string]State{
		"1000.000000000": Explained, "1000.9": Explained, "999.000000001": Explained, "1001.1000000": Overdue, "998.9000000": Overdue,
	} {
		c := compare(t, "2026-11-01,demo,k,"+amount, call(firstDay, "demo", 1000*money.Unit, nil))
		bill := &Bill{
			ImportedAt: imported,
			ComparedAt: &imported,
			Comparison: *c,
			OpenAmount: c.OpenAmount(),
		}
		if got := bill.State(imported.Add(SettleTime + 1)); got != want {
			t.Errorf("%s of 1000: %s open: %s; want %s", amount, c.OpenAmount(), got, want)
		}
		if got := bill.State(imported.Add(SettleTime)); got == Overdue {
			t.Errorf("%s of 1000 is overdue before 48 hours", amount)
		}
		bill.AcceptedAt = &imported
		if got := bill.State(imported.Add(SettleTime + 1)); got != Accepted {
			t.Errorf("%s of 1000 that somebody accepts is %s", amount, got)
		}
	}
}
