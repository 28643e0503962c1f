package classify

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the type of a value.
type kind uint8

const (
	kindNull kind = iota
	kindScalar
	kindString
	kindArray
	kindObject
)

// value is a parsed document. A number or boolean is kept as its source text.
type value struct {
	kind    kind
	text    string // string or scalar
	items   []value
	members []member
}

type member struct {
	key string
	val value
}

const (
	maxDepth = 24   // parsing stops at values that are nested deeper
	maxNodes = 4000 // values per parse
)

// parseValue parses the JSON value at the start of src. Unlike encoding/json and package jsonspan it accepts two kinds
// of text that are frequent in error answers: a document that ends early, at the reading limit, and the repr of a
// Python object (single quotes, tuples, None, True, bytes literals). end is the index after the value. ok is false if
// src does not start with a value.
func parseValue(src string) (v value, end int, ok bool) {
	p := parser{src: src, nodes: maxNodes}
	v, ok = p.value(0)
	return v, p.pos, ok
}

type parser struct {
	src   string
	pos   int
	nodes int
}

func (p *parser) space() {
	for p.pos < len(p.src) && strings.IndexByte(" \t\r\n", p.src[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) peek() byte {
	p.space()
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) (value, bool) {
	p.nodes--
	if depth > maxDepth || p.nodes < 0 {
		return value{}, false
	}

	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[' || c == '(':
		return p.array(depth)
	case c == '"' || c == '\'':
		return value{kind: kindString, text: p.quoted(c)}, true
	case c == 'b' && p.pos+1 < len(p.src) && (p.src[p.pos+1] == '\'' || p.src[p.pos+1] == '"'):
		p.pos++ // a Python bytes literal
		return value{kind: kindString, text: p.quoted(p.src[p.pos])}, true
	default:
		return p.scalar()
	}
}

func (p *parser) object(depth int) (value, bool) {
	v := value{kind: kindObject}
	p.pos++

	for {
		switch c := p.peek(); c {
		case 0:
			return v, true // the text ends early; return the members before its end
		case '}':
			p.pos++
			return v, true
		case ',':
			p.pos++
		case '"', '\'':
			key := p.quoted(c)
			if p.peek() != ':' {
				return v, p.pos >= len(p.src)
			}
			p.pos++
			val, ok := p.value(depth + 1)
			if !ok {
				return v, p.pos >= len(p.src)
			}
			v.members = append(v.members, member{key: key, val: val})
		default:
			return v, false
		}
	}
}

func (p *parser) array(depth int) (value, bool) {
	v := value{kind: kindArray}
	p.pos++

	for {
		switch p.peek() {
		case 0:
			return v, true
		case ']', ')':
			p.pos++
			return v, true
		case ',':
			p.pos++
		default:
			item, ok := p.value(depth + 1)
			if !ok {
				return v, p.pos >= len(p.src)
			}
			v.items = append(v.items, item)
		}
	}
}

func (p *parser) scalar() (value, bool) {
	start := p.pos
	for p.pos < len(p.src) && strings.IndexByte(",]}): \t\r\n\"'", p.src[p.pos]) < 0 {
		p.pos++
	}

	switch text := p.src[start:p.pos]; text {
	case "":
		return value{}, false
	case "null", "None", "undefined":
		return value{kind: kindNull}, true
	case "true", "false", "True", "False":
		return value{kind: kindScalar, text: strings.ToLower(text)}, true
	default:
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return value{}, false
		}
		return value{kind: kindScalar, text: text}, true
	}
}

// quoted parses a string in the given quotes. The closing quote may be missing.
func (p *parser) quoted(quote byte) string {
	p.pos++
	start := p.pos

	for p.pos < len(p.src) && !p.closes(quote) && p.src[p.pos] != '\\' {
		p.pos++
	}

	if p.pos >= len(p.src) || p.closes(quote) {
		text := p.src[start:p.pos]
		p.pos = min(p.pos+1, len(p.src))
		return text
	}

	var b strings.Builder
	b.WriteString(p.src[start:p.pos])

	for p.pos < len(p.src) {
		c, closed := p.src[p.pos], p.closes(quote)
		p.pos++
		switch {
		case closed:
			return b.String()
		case c == '\\':
			p.escape(&b)
		default:
			b.WriteByte(c)
		}
	}

	return b.String()
}

// closes reports whether the byte at pos ends a string. A single quote may be an
// apostrophe, so it ends a string only before a character that can follow a string.
func (p *parser) closes(quote byte) bool {
	if p.src[p.pos] != quote {
		return false
	}
	if quote == '"' {
		return true
	}
	rest := strings.TrimLeft(p.src[p.pos+1:min(p.pos+8, len(p.src))], " \r\n\t")
	return rest == "" || strings.IndexByte(",:}])", rest[0]) >= 0
}

func (p *parser) escape(b *strings.Builder) {
	if p.pos >= len(p.src) {
		return
	}
	c := p.src[p.pos]
	p.pos++
	switch c {
	case 'n', 'r':
		b.WriteByte('\n')
	case 't', 'b', 'f':
		b.WriteByte(' ')
	case 'u':
		b.WriteRune(p.unicode())
	default:
		b.WriteByte(c)
	}
}

// unicode parses the four digits of a \u escape. A surrogate becomes the replacement
// character, because no rule matches characters outside the basic plane.
func (p *parser) unicode() rune {
	if p.pos+4 > len(p.src) {
		p.pos = len(p.src)
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(p.src[p.pos:p.pos+4], 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	p.pos += 4
	if r := rune(n); utf8.ValidRune(r) {
		return r
	}
	return utf8.RuneError
}
