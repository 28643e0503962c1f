package sse

import (
	"bytes"
	"slices"
)

// block is what has been understood of the block being read. Places are offsets
// into the block, whose bytes may still move.
type block struct {
	line    int  // where the line being read starts
	fields  bool // some line is not a comment before all fields
	comment bool
	name    span
	data    span
	lines   int    // number of data fields
	joined  []byte // the data of several
}

type span struct{ start, end int }

// read takes the line held[start:end], without its line end, as a field.
func (b *block) read(held []byte, start, end int) {
	if start == end {
		return
	}
	b.fields = true
	line := held[start:end]
	switch line[0] {
	case 'd':
		if value, ok := fieldValue(line, "data"); ok {
			b.readData(held, span{end - len(value), end})
		}
	case 'e':
		if value, ok := fieldValue(line, "event"); ok {
			b.name = span{end - len(value), end}
		}
	}
}

// readData takes the value of a data field.
func (b *block) readData(held []byte, value span) {
	if b.lines == 1 {
		b.joined = append(b.joined[:0], held[b.data.start:b.data.end]...)
	}
	if b.lines >= 1 {
		b.joined = append(b.joined, '\n')
		b.joined = append(b.joined, held[value.start:value.end]...)
	}
	b.data = value
	b.lines++
}

// fieldValue returns the value of line if it is the named field. One space after
// the colon is not part of it; a line without a colon is a field without value.
func fieldValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	value = line[len(name):]
	if len(value) == 0 {
		return value, true
	}
	if value[0] != ':' {
		return nil, false
	}
	return bytes.TrimPrefix(value[1:], []byte(" ")), true
}

// event returns the block as an event; held is all its bytes.
func (b *block) event(held []byte) Event {
	event := Event{
		Raw:     slices.Clip(held),
		Name:    held[b.name.start:b.name.end:b.name.end],
		Comment: b.comment,
	}
	switch {
	case b.lines == 1:
		event.Data = held[b.data.start:b.data.end:b.data.end]
	case b.lines > 1:
		event.Data = slices.Clip(b.joined)
	}
	return event
}

// reset begins another block. The event of the last one still uses joined, which
// is next written when that event is no longer good.
func (b *block) reset() {
	joined := b.joined
	if cap(joined) > maxPooledBytes {
		joined = nil
	}
	*b = block{joined: joined}
}
