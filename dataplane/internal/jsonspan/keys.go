package jsonspan

import (
	"hash/maphash"
	"unsafe"
)

// keySet detects duplicate names in all objects that are open at one point of the scan. Its slices are stacks: an
// object pushes its entries on top and pops them when it ends, so one set of buffers serves a whole body.
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

// keyFrame is the part of a keySet that belongs to one open object.
type keyFrame struct {
	keys, names, slots int // where its parts start
	quoted             int // length of the newest name as written, with quotes
}

// addResult is the result of adding a name.
type addResult uint8

const (
	keyAdded addResult = iota
	keyDuplicate
	keyOverLimit
)

const (
	// linearKeys is how many members an object may have before it gets a hash table. Up to this number it is cheaper
	// to compare lengths and a few bytes than to hash.
	linearKeys = 8
	firstSlots = 4 * linearKeys
	// maxPooledKeys and maxPooledSlots bound the memory that is kept between bodies.
	maxPooledKeys  = 4096
	maxPooledSlots = 4 * maxPooledKeys
)

// seed is random, so that clients cannot choose names that collide.
var seed = maphash.MakeSeed()

func (s *keySet) clear() {
	s.keys, s.names, s.slots = s.keys[:0], s.names[:0], s.slots[:0]
}

// trim frees buffers that have grown large for an unusual body.
func (s *keySet) trim() {
	if cap(s.keys) > maxPooledKeys {
		s.keys = nil
	}
	if cap(s.names) > maxPooledKeys {
		s.names = nil
	}
	if cap(s.slots) > maxPooledSlots {
		s.slots = nil
	}
}

// held returns the bytes of memory of the buffers.
func (s *keySet) held() int {
	return cap(s.keys)*int(unsafe.Sizeof(key{})) + cap(s.names) + cap(s.slots)*int(unsafe.Sizeof(uint32(0)))
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

// add adds the name body[start:end] to the object of f. The returned name is valid while its object is open; for the
// outermost object, until clear.
func (s *keySet) add(f *keyFrame, body []byte, start, end int, escaped bool) ([]byte, addResult) {
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
	if !s.insert(f, body, k, uint32(len(mine))) {
		return name, keyDuplicate
	}

	s.keys = append(s.keys, k)
	return name, keyAdded
}

// grow creates or doubles the hash table of the object of f. This is the innermost open object, so that its table is
// on top of the stack.
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
		s.insert(f, body, *k, uint32(i))
	}
}

// insert adds the key with the given index in its object to the hash table. It returns false if the table has the name.
func (s *keySet) insert(f *keyFrame, body []byte, k key, place uint32) bool {
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
