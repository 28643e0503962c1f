package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"modelgateway/controlplane/internal/validation"
)

// jsonParser parses a JSON text into a tree.
type jsonParser struct {
	dec     *json.Decoder
	invalid validation.Errors
}

var errTooDeep = errors.New("nested too deep")

func parseJSON(data []byte) (*node, validation.Errors) {
	if at := brokenText(data); at >= 0 { // the decoder would replace such text by U+FFFD
		return nil, validation.Errors{{Detail: fmt.Sprintf("not valid JSON at byte %d: it is not UTF-8", at)}}
	}
	p := jsonParser{dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	tree, err := p.value("", 0)
	if err == nil {
		if _, more := p.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more text follows the value")
		}
	}
	if err != nil {
		p.invalid.Add("", "not valid JSON at byte %d: %s", p.dec.InputOffset(), reason(err))
	}
	return tree, p.invalid
}

// brokenText returns the position of bytes that are not UTF-8, or of an unpaired surrogate escape;
// -1 if there is none.
func brokenText(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return i
		case r != '\\':
			i += size
		case !utf16.IsSurrogate(escaped(data[i:])):
			i += 2
		case utf16.DecodeRune(escaped(data[i:]), escaped(data[min(i+6, len(data)):])) == utf8.RuneError:
			return i
		default:
			i += 12
		}
	}
	return -1
}

// escaped returns the character of an escape such as \u00e9; zero for any other text.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

func reason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return err.Error()
}

func (p *jsonParser) value(path string, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}

	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}

	switch t := token.(type) {
	case nil:
		return &node{kind: null}, nil
	case bool:
		return &node{kind: boolean, text: strconv.FormatBool(t)}, nil
	case json.Number:
		return &node{kind: number, text: t.String()}, nil
	case string:
		return &node{kind: text, text: t}, nil
	case json.Delim:
		if t == '[' {
			return p.list(path, depth)
		}
		return p.object(path, depth)
	}

	return nil, errors.New("unknown token")
}

func (p *jsonParser) list(path string, depth int) (*node, error) {
	n := &node{kind: list}
	for p.dec.More() {
		item, err := p.value(validation.Index(path, len(n.items)), depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	_, err := p.dec.Token()
	return n, err
}

func (p *jsonParser) object(path string, depth int) (*node, error) {
	n := &node{kind: object}
	seen := map[string]bool{}
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder accepts only a string here
		value, err := p.value(validation.Member(path, name), depth+1)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			p.invalid.Add(validation.Member(path, name), "is given twice")
		}
		seen[name] = true
		n.members = append(n.members, member{name, value})
	}

	_, err := p.dec.Token()
	return n, err
}
