package providerbill

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"modelgateway/shared/money"
)

// randomBill returns the lines and the calls of a bill of some days, as pairs, and what they sum to. Some lines and calls have names or
// days that the others do not have.
func randomBill(r *rand.Rand, bill *Bill, zone *time.Location) (pairs []*Pair, billed, recorded money.Nano) {
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	start := endOf(firstDay.AddDate(0, 0, -1), zone)
	call := func(p *Pair) {
		p.Calls = 1
		p.At = start.Add(time.Duration(r.Int64N(int64(6*24*time.Hour))) - 30*time.Hour)
		p.CalledModel, p.CalledCredential = pick("demo", "demo-2026-01-01", "other"), pick("k", "l")
		p.Recorded = money.Nano(r.IntN(100))
		p.Estimated, p.Cancelled, p.NoPrice = r.IntN(6) == 0, r.IntN(6) == 0, r.IntN(20) == 0
	}
	line := func(p *Pair) {
		p.Lines = int64(1 + r.IntN(2))
		p.Day = firstDay.AddDate(0, 0, r.IntN(3))
		p.Model, p.Credential = pick("demo", "Demo", "x", ""), pick("k", "proj", "")
		p.Billed = Amount{money.Nano(r.IntN(120) - 20), int64(r.IntN(restPerNano))}
		p.First, p.Negative = p.Billed.Nano, min(p.Billed.Nano, 0)
	}
	count := func(p *Pair) {
		bill.Lines += p.Lines
		pairs = append(pairs, p)
	}
	byRequest := r.IntN(3) == 0
	days := map[string]Amount{}
	for range 1 + r.IntN(30) {
		p := &Pair{}
		switch {
		case r.IntN(2) == 0:
			call(p)
		default:
			line(p)
		}
		if p.ByRequest = byRequest && p.Lines > 0; p.ByRequest {
			bill.WithRequest += p.Lines
			if r.IntN(2) == 0 {
				at := p.Day
				call(p)
				p.Day = at
			}
			billed += p.Billed.Round()
		} else if p.Lines > 0 {
			days[fmt.Sprint(p.Day)], _ = days[fmt.Sprint(p.Day)].Add(p.Billed)
		}
		day := dayOf(p.At, zone)
		if p.Lines > 0 || !day.Before(bill.FirstDay) && !day.After(bill.LastDay) {
			recorded += p.Recorded
		}
		count(p)
	}
	for _, sum := range days {
		billed += sum.Round()
	}
	return pairs, billed, recorded
}

// Whatever is on a bill, all of it and of the records of its days is in the comparison once, and the parts sum to what differs.
func TestNothingIsComparedTwiceOrDropped(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for n := range 3_000 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		name := []string{"UTC", "America/Los_Angeles", "Australia/Lord_Howe"}[r.IntN(3)]
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		bill := &Bill{Options: Options{TimeZone: name}, Content: Content{FirstDay: firstDay, LastDay: firstDay.AddDate(0, 0, 2), Step: 1}}
		bill.EndsAt = endOf(bill.LastDay, zone)
		pairs, billed, recorded := randomBill(r, bill, zone)
		compared, err := Compare(bill, func(yield func(*Pair, error) bool) {
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
				t.Fatalf("seed %d, bill %d: the parts of %+v sum to %d", seed, n, d, parts)
			}
			sum += d.Billed - d.Recorded
		}
		// Each day, model and credential is rounded by itself.
		if off := abs(compared.Billed - billed); off > money.Nano(len(pairs)) || compared.Recorded != recorded ||
			sum != compared.Billed-compared.Recorded || sumOf(compared.Parts) != sum {
			t.Fatalf("seed %d, bill %d: billed %d, recorded %d, differences %d, parts %d; want %d and %d: %+v", seed, n, compared.Billed,
				compared.Recorded, sum, sumOf(compared.Parts), billed, recorded, compared)
		}
	}
}
