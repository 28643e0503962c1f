package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// costWords are parts of the names of members that disclose the gateway's cost or supplier: cost, cost_details,
// estimated_cost, cost_in_usd_ticks, is_byok, pricing.
var costWords = [][]byte{[]byte("cost"), []byte("pric"), []byte("usd"), []byte("byok"), []byte("credit")}

// IsCost reports whether the name of a member of an answer or of its usage shows that the member discloses a cost. The
// client gets the cost of a request from its receipt only.
func IsCost(name []byte) bool {
	var lower [64]byte
	n := copy(lower[:], name)
	for i, c := range lower[:n] {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	for _, word := range costWords {
		if bytes.Contains(lower[:n], word) {
			return true
		}
	}
	return false
}

// maxCostDepth bounds how deep usage objects are searched for costs.
const maxCostDepth = 8

// DropCosts removes the costs from the usage object at index at of text, at any depth. It returns the index after the
// object, 0 if there is none.
func DropCosts(w *jsonspan.Splicer, text []byte, at int) (end int) {
	return dropCosts(w, text, at, maxCostDepth)
}

func dropCosts(w *jsonspan.Splicer, text []byte, at, depth int) (end int) {
	if depth == 0 {
		return 0
	}

	if jsonspan.KindOf(text[at:]) == jsonspan.KindArray {
		it := jsonspan.ArrayAt(text, at)
		for it.Next() {
			it.SetEnd(dropCosts(w, text, it.Start(), depth-1))
		}
		return it.SkipRest()
	}

	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch kind := c.Kind(); {
		case IsCost(c.DecodedName()):
			c.Drop(w)
		case kind == jsonspan.KindObject || kind == jsonspan.KindArray:
			c.SetEnd(dropCosts(w, text, c.Start(), depth-1))
		}
	}

	return c.SkipRest()
}
