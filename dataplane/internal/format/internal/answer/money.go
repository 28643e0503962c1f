package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// moneyWords are what names of members have that say what the gateway pays, or to
// whom: cost, cost_details, estimated_cost, cost_in_usd_ticks, is_byok, pricing.
var moneyWords = [][]byte{[]byte("cost"), []byte("pric"), []byte("usd"), []byte("byok"), []byte("credit")}

// IsMoney tells by its name whether a member of an answer, or of its usage, is a figure
// of money. What a request costs is said by the receipt alone.
func IsMoney(name []byte) bool {
	var lower [64]byte
	n := copy(lower[:], name)
	for i, c := range lower[:n] {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	for _, word := range moneyWords {
		if bytes.Contains(lower[:n], word) {
			return true
		}
	}
	return false
}

// maxMoneyDepth bounds how deep figures of money are looked for.
const maxMoneyDepth = 8

// DropMoney leaves the figures of money out of the usage object at index at of text, and
// of what lies in it. It returns the index after the object, 0 if there is none.
func DropMoney(w *jsonspan.Splicer, text []byte, at int) (end int) {
	return dropMoney(w, text, at, maxMoneyDepth)
}

func dropMoney(w *jsonspan.Splicer, text []byte, at, depth int) (end int) {
	if depth == 0 {
		return 0
	}
	if jsonspan.KindOf(text[at:]) == jsonspan.KindArray {
		it := jsonspan.ArrayAt(text, at)
		for it.Next() {
			it.SetEnd(dropMoney(w, text, it.Start(), depth-1))
		}
		return it.SkipRest()
	}
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch kind := c.Kind(); {
		case IsMoney(c.Name()):
			c.Drop(w)
		case kind == jsonspan.KindObject || kind == jsonspan.KindArray:
			c.SetEnd(dropMoney(w, text, c.Start(), depth-1))
		}
	}
	return c.SkipRest()
}
