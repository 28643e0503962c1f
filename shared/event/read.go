package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// BatchEvent is one event of a batch.
type BatchEvent struct {
	// Usage is the decoded event. If Err is set, only a part of it is.
	Usage Usage
	Err   error
	// Raw is the encoded event, a part of the message.
	Raw []byte
}

// DecodeBatch decodes a message of the usage stream. An event that cannot be
// decoded does not affect the others; an error means that the message is not a
// batch.
//
// The result equals that of encoding/json. A message in the exact form that
// proxies write is decoded by a scanner, which is ten times as fast: otherwise
// settlement would spend most of its time in encoding/json.
func DecodeBatch(message []byte) (session int64, events []BatchEvent, err error) {
	if session, events, ok := scanBatch(message); ok {
		return session, events, nil
	}
	return unmarshalBatch(message)
}

func unmarshalBatch(message []byte) (session int64, events []BatchEvent, err error) {
	var batch Batch
	if err := json.Unmarshal(message, &batch); err != nil {
		return 0, nil, fmt.Errorf("event: not a batch: %w", err)
	}
	events = make([]BatchEvent, len(batch.Events))
	for i, raw := range batch.Events {
		events[i].Raw = raw
		events[i].Err = json.Unmarshal(raw, &events[i].Usage)
	}
	return batch.Session, events, nil
}

// scanBatch decodes a message in the exact form that Batch.AppendJSON writes. It
// returns false for any other message.
func scanBatch(message []byte) (session int64, events []BatchEvent, ok bool) {
	s := scanner{text: string(message)} // one copy, which the strings of all events share
	if !s.skip(`{"v":`) {
		return 0, nil, false
	}
	if _, ok = s.integer(); !ok || !s.skip(`,"batch_id":`) {
		return 0, nil, false
	}
	if _, ok = s.str(); !ok || !s.skip(`,"session":`) {
		return 0, nil, false
	}
	if session, ok = s.integer(); !ok || !s.skip(`,"events":[`) {
		return 0, nil, false
	}

	events = make([]BatchEvent, 0, bytes.Count(message, []byte("},{"))+1)
	for {
		start := s.at
		events = append(events, BatchEvent{})
		e := &events[len(events)-1]
		if !s.object(usageFields, valueOf(&e.Usage)) {
			return 0, nil, false
		}
		e.Raw = message[start:s.at]
		if s.skip("]}") {
			return session, events, s.at == len(s.text)
		}
		if !s.skip(",") {
			return 0, nil, false
		}
	}
}

// scanner decodes compact JSON with known members. Its methods return false for
// anything else; the message is then decoded by encoding/json.
type scanner struct {
	text string
	at   int
}

func (s *scanner) skip(token string) bool {
	if !strings.HasPrefix(s.text[s.at:], token) {
		return false
	}
	s.at += len(token)
	return true
}

// maxDigits is the greatest number of digits that cannot overflow an int64.
const maxDigits = 18

func (s *scanner) integer() (n int64, ok bool) {
	negative := s.skip("-")
	start := s.at
	for s.at < len(s.text) && s.text[s.at]-'0' <= 9 {
		n = n*10 + int64(s.text[s.at]-'0')
		s.at++
	}
	digits := s.at - start
	if digits == 0 || digits > maxDigits || (digits > 1 && s.text[start] == '0') {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

// str decodes a string. It uses encoding/json for strings with escapes or with
// characters beyond ASCII.
func (s *scanner) str() (text string, ok bool) {
	if !s.skip(`"`) {
		return "", false
	}
	length := strings.IndexByte(s.text[s.at:], '"')
	if length < 0 {
		return "", false
	}
	text = s.text[s.at : s.at+length]
	if !isLiteral(text) {
		s.at--
		return s.quoted()
	}
	s.at += length + 1
	return text, true
}

// isLiteral reports whether a text without quotes stands for itself in JSON and is
// ASCII. It examines eight bytes at a time.
func isLiteral(text string) bool {
	const ones, highBits = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		word := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		control := word - ones*' '           // has the high bit of the lowest byte below a space
		backslash := word ^ ones*'\\' - ones // has the high bit of the lowest backslash
		if (word|control|backslash)&highBits != 0 {
			return false
		}
	}

	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}

	return true
}

func (s *scanner) quoted() (text string, ok bool) {
	for end := s.at + 1; end < len(s.text); end++ {
		switch s.text[end] {
		case '\\':
			end++
		case '"':
			err := json.Unmarshal([]byte(s.text[s.at:end+1]), &text)
			s.at = end + 1
			return text, err == nil
		}
	}
	return "", false
}

func (s *scanner) boolean() (value, ok bool) {
	if s.skip("true") {
		return true, true
	}
	return false, s.skip("false")
}
