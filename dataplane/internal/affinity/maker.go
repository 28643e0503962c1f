package affinity

import (
	"bytes"
	"sync"
	"sync/atomic"

	"modelgateway/dataplane/internal/jsonspan"
)

// itemMembers are the members that have encrypted reasoning, or a signature over some, in any format. Text of a client cannot
// contain them: its quotes are escaped.
var itemMembers = [][]byte{[]byte(`"encrypted_content"`), []byte(`"signature"`), []byte(`"thought_signature"`)}

// Item returns a hash of the first encrypted item or signature in a body of an account. All later turns of the conversation have
// the same one. ok is false if there is none.
func Item(account string, body []byte) (item uint64, ok bool) {
	first := len(body)
	var value []byte
	for _, member := range itemMembers {
		for from := 0; ; {
			at := bytes.Index(body[from:first], member)
			if at < 0 {
				break
			}
			from += at + len(member)
			colon := jsonspan.SkipSpace(body, from)
			if colon == len(body) || body[colon] != ':' {
				continue
			}
			if text := textAt(body, jsonspan.SkipSpace(body, colon+1)); text != nil {
				first, value = from-len(member), text
				break
			}
		}
	}
	if value == nil {
		return 0, false
	}
	k := key{}
	k.hash.Reset()
	_, _ = k.hash.WriteString(account)
	k.mark(0)
	_, _ = k.hash.Write(value)
	return k.hash.Sum64(), true
}

// textAt returns the string that begins at index at, as written and without its quotes; nil if there is none or it is empty.
func textAt(body []byte, at int) []byte {
	if at == len(body) || body[at] != '"' {
		return nil
	}
	return text(body[at:jsonspan.SkipValue(body, at)])
}

// Maker is the route and the credential whose account has made an item.
type Maker struct{ Route, Credential string }

// maxMakers bounds the items that are remembered.
const maxMakers = 4096

// Makers remembers who has taken an item that another account could not verify: a conversation that was moved by a failure stays
// where its items can be read. Another process learns it by one refused call. It is safe for concurrent use; the zero value is
// empty.
type Makers struct {
	any atomic.Bool

	mu    sync.Mutex
	by    map[uint64]Maker
	items [maxMakers]uint64 // in the order in which they came, from next on
	next  int
}

// Note remembers the maker of an item, and forgets the oldest if there are too many.
func (m *Makers) Note(item uint64, maker Maker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[uint64]Maker{}
	}
	if _, known := m.by[item]; !known {
		if len(m.by) == maxMakers {
			delete(m.by, m.items[m.next])
		}
		m.items[m.next] = item
		m.next = (m.next + 1) % maxMakers
	}
	m.by[item] = maker
	m.any.Store(true)
}

// Of returns the maker of the first item in a body of an account, if it is remembered. While nothing is, it costs nothing.
func (m *Makers) Of(account string, body []byte) (maker Maker, ok bool) {
	if !m.any.Load() {
		return Maker{}, false
	}
	item, ok := Item(account, body)
	if !ok {
		return Maker{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maker, ok = m.by[item]
	return maker, ok
}
