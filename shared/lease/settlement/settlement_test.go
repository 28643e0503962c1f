package settlement_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"modelgateway/shared/lease/settlement"
)

// numbers lists a set by its ranges, and fails the test unless they are in order and apart.
func numbers(t *testing.T, s settlement.IntervalSet) []int64 {
	t.Helper()
	var all []int64
	for i, r := range s {
		if r[0] > r[1] || i > 0 && r[0] <= s[i-1][1]+1 {
			t.Fatalf("ranges overlap or touch: %v", s)
		}
		for n := r[0]; n <= r[1]; n++ {
			all = append(all, n)
		}
	}
	return all
}

func TestIntervalsHoldWhatWasAddedInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s settlement.IntervalSet
		added := map[int64]bool{}
		for range 60 {
			n := 1 + r.Int64N(40)
			s, added[n] = s.Add(n), true
			want := slices.Sorted(maps.Keys(added))
			if got := numbers(t, s); !slices.Equal(got, want) || s.Count() != int64(len(want)) {
				t.Fatalf("seed %d: got %v, %d numbers; want %v", seed, got, s.Count(), want)
			}
		}
		for n := range int64(42) {
			if s.Contains(n) != added[n] {
				t.Fatalf("seed %d: Contains(%d) is %t", seed, n, s.Contains(n))
			}
		}

		// A proxy forgets what is at or below the watermark and in the ranges beyond it: nothing else.
		m := s.Settled(7)
		beyond := numbers(t, settlement.IntervalSet(m.Beyond))
		for n := int64(1); n <= 41; n++ {
			if told := n <= m.Watermark || slices.Contains(beyond, n); told != added[n] {
				t.Fatalf("seed %d: %d is told as settled: %t, watermark %d beyond %v", seed, n, told, m.Watermark, m.Beyond)
			}
		}
	}
}

func TestARequestIsChargedOnceHoweverItIsDelivered(t *testing.T) {
	t.Parallel()
	charge := func(request, fingerprint byte) settlement.Charge {
		return settlement.Charge{Request: [16]byte{request}, Fingerprint: [32]byte{fingerprint}, Cost: 1}
	}
	invalid := charge(5, 1)
	invalid.Invalid = true
	b := settlement.NewBatch([]settlement.Charge{
		charge(1, 1), // new
		charge(1, 1), // the same again
		charge(1, 2), // contradicts the first
		charge(2, 1), // was settled before with this content
		charge(3, 1), // was settled before with another content
		invalid,
		charge(4, 1), // was settled before, and its record is gone
	})
	if got, want := b.Candidates(), []int{0, 3, 4, 6}; !slices.Equal(got, want) {
		t.Fatalf("candidates %v; want %v", got, want)
	}
	if got, want := b.MarkInserted(map[[16]byte]bool{{1}: true}), []int{0}; !slices.Equal(got, want) {
		t.Fatalf("inserted %v; want %v", got, want)
	}
	if got, want := b.Unresolved(), []int{1, 2, 3, 4, 6}; !slices.Equal(got, want) {
		t.Fatalf("unresolved %v; want %v", got, want)
	}
	b.ResolveDuplicates(map[[16]byte][32]byte{{1}: {1}, {2}: {1}, {3}: {9}})
	want := []settlement.Outcome{
		settlement.Inserted, settlement.Duplicate, settlement.Conflicting, settlement.Duplicate, settlement.Conflicting,
		settlement.Invalid, settlement.Conflicting,
	}
	if !slices.Equal(b.Outcomes, want) {
		t.Errorf("outcomes %v; want %v", b.Outcomes, want)
	}
}
