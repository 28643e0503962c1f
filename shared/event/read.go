package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Reading is one event of a batch as it came, and what could be read of it.
type Reading struct {
	// Usage is what was read, partly if Err says why not all of it could be.
	Usage Usage
	Err   error
	// Raw is the event's own bytes, part of the message.
	Raw []byte
}

// ReadBatch takes a message of the usage stream apart. An event that cannot be
// read does not keep the others from being read.
//
// It reads what encoding/json would read, and faster by an order of magnitude
// where a message looks as proxies write it: settlement of a long queue spends
// most of its time here otherwise. Everything else is left to encoding/json.
func ReadBatch(message []byte) (session int64, events []Reading, err error) {
	if session, events, ok := scanBatch(message); ok {
		return session, events, nil
	}
	return unmarshalBatch(message)
}

func unmarshalBatch(message []byte) (session int64, events []Reading, err error) {
	var batch Batch
	if err := json.Unmarshal(message, &batch); err != nil {
		return 0, nil, fmt.Errorf("event: not a batch: %w", err)
	}
	events = make([]Reading, len(batch.Events))
	for i, raw := range batch.Events {
		events[i].Raw = raw
		events[i].Err = json.Unmarshal(raw, &events[i].Usage)
	}
	return batch.Session, events, nil
}

// scanBatch reads a message that is written exactly as a Batch is marshalled.
func scanBatch(message []byte) (session int64, events []Reading, ok bool) {
	s := scanner{text: string(message)} // one copy, which all strings of the events are parts of
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
	events = make([]Reading, 0, bytes.Count(message, []byte("},{"))+1)
	for {
		start := s.at
		events = append(events, Reading{})
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

// scanner reads compact JSON of known fields. Its methods return false for
// whatever they do not know: another reader has to look at that.
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

// maxDigits bounds numbers that cannot overflow.
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

// str reads a string; one with escapes, or with more than ASCII, as
// encoding/json does.
func (s *scanner) str() (text string, ok bool) {
	if !s.skip(`"`) {
		return "", false
	}
	start := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], true
		case c < ' ' || c == '\\' || c > '~':
			s.at = start - 1
			return s.quoted()
		}
	}
	return "", false
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
