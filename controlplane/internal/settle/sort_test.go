package settle

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/ident"
)

// Items with the same request id keep their order, so that the first event of a
// request is the one that is charged.
func TestSortByRequestKeepsTheOrderOfRepeatedEvents(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		items := make([]Item, r.IntN(50))
		for i := range items {
			items[i].Seq = int64(i)
			items[i].RequestID = ident.UUID{0: byte(r.IntN(3)) << 7, 7: byte(r.IntN(2)), 8: byte(r.IntN(2)) << 7, 15: byte(r.IntN(2))}
		}
		want := slices.Clone(items)
		slices.SortStableFunc(want, func(a, b Item) int { return bytes.Compare(a.RequestID[:], b.RequestID[:]) })
		sortByRequest(items)
		if diff := cmp.Diff(want, items); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}
