package jsonspan

import "hash/maphash"

// keySet finds duplicate names in all the objects that are open at one point of
// the pass. Its slices are stacks: an object takes its part at the top and gives it
// back when it ends, so one set of buffers serves a whole body.
type keySet struct {
	keys  []key
	names []byte   // decoded text of names written with escapes
	slots []uint32 // hash tables of the objects with many members; 0 is free
}

// key is one name of an open object.
type key struct {
	start, end uint32 // in the body, or in names if decoded
	hash       uint32 // only set in objects that have a table
	decoded    bool
}

// keyFrame is an open object's part of a keySet.
type keyFrame struct {
	keys, names, slots int // where its parts start
	quoted             int // length of the newest name as written, with quotes
}

// outcome says what became of a name.
type outcome uint8

const (
	keyAdded outcome = iota
	keyDuplicate
	keyOverLimit
)

const (
	// linearKeys is how many members an object may have before it gets a table.
	// Up to there comparing lengths and a few bytes is cheaper than hashing.
	linearKeys = 8
	firstSlots = 4 * linearKeys
	// keepKeys and keepSlots bound what is kept between bodies.
	keepKeys  = 4096
	keepSlots = 4 * keepKeys
)

// seed keeps a client from choosing names that collide.
var seed = maphash.MakeSeed()

func (s *keySet) clear() {
	s.keys, s.names, s.slots = s.keys[:0], s.names[:0], s.slots[:0]
}

// trim lets go of buffers that grew beyond the usual.
func (s *keySet) trim() {
	if cap(s.keys) > keepKeys {
		s.keys = nil
	}
	if cap(s.names) > keepKeys {
		s.names = nil
	}
	if cap(s.slots) > keepSlots {
		s.slots = nil
	}
}

func (s *keySet) push() keyFrame {
	return keyFrame{keys: len(s.keys), names: len(s.names), slots: len(s.slots)}
}

func (s *keySet) pop(f keyFrame) {
	s.keys, s.names, s.slots = s.keys[:f.keys], s.names[:f.names], s.slots[:f.slots]
}

// text returns the decoded name of k.
func (s *keySet) text(k key, body []byte) []byte {
	if k.decoded {
		return s.names[k.start:k.end:k.end]
	}
	return body[k.start:k.end:k.end]
}

// add takes the name body[start:end] into the object of f. The returned name stays
// good while its object is open, and for the outermost object until clear.
func (s *keySet) add(f *keyFrame, body []byte, start, end int, escaped bool) ([]byte, outcome) {
	k := key{start: uint32(start), end: uint32(end)}
	if escaped {
		k.start = uint32(len(s.names))
		s.names = appendUnescaped(s.names, body[start:end])
		k.end = uint32(len(s.names))
		k.decoded = true
	}
	name := s.text(k, body)
	mine := s.keys[f.keys:]
	switch {
	case len(s.keys) == MaxOpenMembers:
		return nil, keyOverLimit
	case len(mine) < linearKeys:
		for _, other := range mine {
			if other.end-other.start == k.end-k.start && string(s.text(other, body)) == string(name) {
				return name, keyDuplicate
			}
		}
		s.keys = append(s.keys, k)
		return name, keyAdded
	case 2*len(mine) >= len(s.slots)-f.slots:
		s.grow(f, body)
	}
	k.hash = hashOf(name)
	if !s.place(f, body, k, uint32(len(mine))) {
		return name, keyDuplicate
	}
	s.keys = append(s.keys, k)
	return name, keyAdded
}

// grow makes or doubles the table of the object of f, which is the innermost one
// open, so that its table is the top of the stack.
func (s *keySet) grow(f *keyFrame, body []byte) {
	size := max(firstSlots, 2*(len(s.slots)-f.slots))
	fresh := size == firstSlots
	s.slots = s.slots[:f.slots]
	for range size {
		s.slots = append(s.slots, 0)
	}
	for i := range s.keys[f.keys:] {
		k := &s.keys[f.keys+i]
		if fresh {
			k.hash = hashOf(s.text(*k, body))
		}
		s.place(f, body, *k, uint32(i))
	}
}

// place enters the key of the given place in its object into the table. It returns
// false if the name is there already.
func (s *keySet) place(f *keyFrame, body []byte, k key, place uint32) bool {
	table := s.slots[f.slots:]
	mask := uint32(len(table) - 1)
	for at := k.hash & mask; ; at = (at + 1) & mask {
		if table[at] == 0 {
			table[at] = place + 1
			return true
		}
		other := s.keys[f.keys+int(table[at]-1)]
		if other.hash == k.hash && string(s.text(other, body)) == string(s.text(k, body)) {
			return false
		}
	}
}

func hashOf(name []byte) uint32 { return uint32(maphash.Bytes(seed, name)) }
