// Package affinity tells which conversation a request belongs to, so that all of its requests go to the route and the
// credential that have its prompt cache and can read its encrypted reasoning.
//
// A conversation is known by what each of its requests has: an identifier that the client sends, or else what it began
// with. Nothing is remembered, and all proxies come to the same result. The account is always part of it.
//
// A conversation that a failure has moved may have encrypted items that only another account can read. Makers remembers, in
// one process, whose that is, once a call has shown it.
package affinity

import (
	"github.com/cespare/xxhash/v2"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
)

const (
	// maxHashed bounds how much of an identifier, or of a message, is read, in bytes: two conversations that differ only
	// after so much share a key, which does no harm.
	maxHashed = 8 << 10
	// maxMessages is how many messages at most are looked through for the first of a user.
	maxMessages = 16
)

// The parts of a key, so that equal texts in different places give different keys.
const (
	partSession = iota + 1
	partSystem
	partUser
)

// Key returns the key of the conversation of a request of an account. session is the identifier in a header, empty for none.
func Key(account, session string, r *format.Request) uint64 {
	k := key{}
	k.hash.Reset()
	_, _ = k.hash.WriteString(account)
	switch id := identifier(r); {
	case id != nil:
		k.part(partSession, id)
	case session != "":
		k.mark(partSession)
		_, _ = k.hash.WriteString(session[:min(len(session), maxHashed)])
	default:
		k.beginning(r)
	}
	return k.hash.Sum64()
}

// identifier returns what the client calls the conversation, or its user, as written and without quotes; nil if it sends
// nothing of the kind.
func identifier(r *format.Request) []byte {
	if id := text(r.Value("prompt_cache_key")); id != nil {
		return id
	}
	if raw, ok := jsonspan.Find(r.Value("metadata"), "user_id"); ok {
		if id := text(raw); id != nil {
			return id
		}
	}
	if id := text(r.Value("user")); id != nil {
		return id
	}
	return text(r.Value("safety_identifier"))
}

// text returns a string as written, without its quotes; nil for an empty one and for anything else.
func text(raw []byte) []byte {
	if len(raw) < 3 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// key is a key that is being computed.
type key struct{ hash xxhash.Digest }

func (k *key) mark(part byte) { _, _ = k.hash.Write([]byte{0, part}) }

// part adds one text.
func (k *key) part(part byte, of []byte) {
	k.mark(part)
	_, _ = k.hash.Write(of[:min(len(of), maxHashed)])
}

// beginning adds the instructions and the first message of a user. Only texts count: a client may move the marks of its cache
// from turn to turn, and write a text with or without a list around it.
func (k *key) beginning(r *format.Request) {
	for _, name := range [...]string{"system", "instructions"} {
		if raw := r.Value(name); raw != nil {
			k.mark(partSystem)
			k.content(raw, 0)
		}
	}
	for _, name := range [...]string{"messages", "input", "prompt"} {
		raw := r.Value(name)
		if jsonspan.KindOf(raw) == jsonspan.KindArray {
			k.messages(raw)
		} else if raw != nil {
			k.mark(partUser)
			k.content(raw, 0)
		}
	}
}

// messages adds the messages of a list up to the first one of a user.
func (k *key) messages(raw []byte) {
	it := jsonspan.ArrayAt(raw, 0)
	for it.Next() && it.Index() < maxMessages {
		var role []byte
		content := -1
		c := jsonspan.ObjectAt(raw, it.Start())
		for (role == nil || content < 0) && c.Next() {
			switch string(c.Name()) {
			case "role":
				role = text(c.Value())
			case "content":
				content = c.Start()
			}
		}
		switch string(role) {
		case "system", "developer":
			if content >= 0 {
				k.mark(partSystem)
				k.content(raw, content)
			}
		case "user":
			if content >= 0 { // its end is not looked for: it may be long
				k.mark(partUser)
				k.content(raw, content)
				return
			}
		}
		it.SetEnd(c.SkipRest())
	}
}

// content adds the texts of a message: the one that begins at index at, or those of a list of parts.
func (k *key) content(raw []byte, at int) {
	if jsonspan.KindOf(raw[at:]) == jsonspan.KindString {
		most := raw[:min(len(raw), at+maxHashed+2)] // with its quotes
		k.text(raw[at:jsonspan.SkipString(most, at)], maxHashed)
		return
	}
	left := maxHashed
	it := jsonspan.ArrayAt(raw, at)
	for left > 0 && it.Next() {
		c := jsonspan.ObjectAt(raw, it.Start())
		for c.Next() {
			if string(c.Name()) == "text" {
				left -= k.text(c.Value(), left)
			}
		}
		it.SetEnd(c.SkipRest())
	}
}

// text adds at most so much of a text, and returns how much.
func (k *key) text(raw []byte, most int) int {
	t := text(raw)
	n := min(len(t), most)
	_, _ = k.hash.Write(t[:n])
	return n
}
