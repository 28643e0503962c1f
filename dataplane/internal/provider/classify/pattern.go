package classify

import (
	"fmt"
	"strings"
)

// gapWords is the number of words that ".." may skip.
const gapWords = 9

// A lexicon numbers the distinct words of the rule table, so that one pass over a text
// finds all positions at which a rule can match.
type lexicon struct {
	exact  map[string]int
	prefix map[string]int // words with a trailing star, without it
	size   int
}

func newLexicon() *lexicon {
	return &lexicon{exact: map[string]int{}, prefix: map[string]int{}}
}

// id returns the number of a pattern word. "exceed*" matches all words with that prefix.
func (l *lexicon) id(word string) int {
	table := l.exact
	if cut, ok := strings.CutSuffix(word, "*"); ok {
		table, word = l.prefix, cut
	}
	n, ok := table[word]
	if !ok {
		n = l.size
		table[word] = n
		l.size++
	}
	return n
}

// wordIndex is a text prepared for matching. Most pattern words are not in a text, so their lists of positions are chains
// in one small table instead of slices.
type wordIndex struct {
	words []string
	first []int32 // pattern word -> its last match in matches, counted from 1; 0 if it has none
	match []match
	from  []int32 // position -> the first of its matches
}

// match is a position at which a pattern word occurs.
type match struct {
	id, pos int32
	next    int32 // the match before it of the same pattern word, counted from 1; 0 if there is none
}

// scan returns the positions of the pattern words in a text.
func (l *lexicon) scan(text string) *wordIndex {
	words := splitWords(text)
	s := &wordIndex{
		words: words,
		first: make([]int32, l.size),
		match: make([]match, 0, 2*len(words)),
		from:  make([]int32, len(words)+1),
	}

	for pos, word := range words {
		s.from[pos] = int32(len(s.match))
		if n, ok := l.exact[word]; ok {
			s.add(n, pos)
		}
		for end := 1; end <= len(word); end++ {
			if n, ok := l.prefix[word[:end]]; ok {
				s.add(n, pos)
			}
		}
	}

	s.from[len(words)] = int32(len(s.match))
	return s
}

func (s *wordIndex) add(id, pos int) {
	s.match = append(s.match, match{id: int32(id), pos: int32(pos), next: s.first[id]})
	s.first[id] = int32(len(s.match))
}

func (s *wordIndex) has(pos, id int) bool {
	if pos >= len(s.words) {
		return false
	}
	for _, m := range s.match[s.from[pos]:s.from[pos+1]] {
		if int(m.id) == id {
			return true
		}
	}
	return false
}

// A phrase is a list of adjacent pattern words.
type phrase []int

// An element is a choice between phrases, or a gap.
type element struct {
	choices  []phrase
	gap      bool
	optional bool
}

// A sequence is the pattern of one term of a rule.
type sequence []element

// find reports whether the sequence occurs anywhere in the text.
func (q sequence) find(s *wordIndex) bool {
	if s == nil || len(q) == 0 {
		return false
	}
	for _, p := range q[0].choices {
		for at := s.first[p[0]]; at != 0; at = s.match[at-1].next {
			if end, ok := p.match(s, int(s.match[at-1].pos)); ok && q[1:].matchFrom(s, end) {
				return true
			}
		}
	}
	return false
}

func (p phrase) match(s *wordIndex, pos int) (end int, ok bool) {
	for _, id := range p {
		if !s.has(pos, id) {
			return 0, false
		}
		pos++
	}
	return pos, true
}

func (q sequence) matchFrom(s *wordIndex, pos int) bool {
	if len(q) == 0 {
		return true
	}

	if q[0].gap {
		for skip := 0; skip <= gapWords; skip++ {
			if q[1:].matchFrom(s, pos+skip) {
				return true
			}
			if pos+skip >= len(s.words) || s.words[pos+skip] == sentenceBreak {
				return false
			}
		}
		return false
	}

	for _, p := range q[0].choices {
		if end, ok := p.match(s, pos); ok && q[1:].matchFrom(s, end) {
			return true
		}
	}

	return q[0].optional && q[1:].matchFrom(s, pos)
}

// vocabulary holds the named word lists of the rule table.
type vocabulary map[string][]phrase

// parseSequence parses the notation that rules.txt explains at its top.
func parseSequence(src string, lex *lexicon, vocab vocabulary) (sequence, error) {
	var q sequence
	for field := range strings.FieldsSeq(src) {
		if field == ".." {
			q = append(q, element{gap: true})
			continue
		}
		field, optional := strings.CutSuffix(field, "?")
		choices, err := parseChoices(field, lex, vocab)
		if err != nil {
			return nil, err
		}
		q = append(q, element{choices: choices, optional: optional})
	}

	if len(q) == 0 || q[0].gap || q[0].optional || q[len(q)-1].gap {
		return nil, fmt.Errorf("pattern %q must begin and end with a word", src)
	}

	return q, nil
}

func parseChoices(src string, lex *lexicon, vocab vocabulary) ([]phrase, error) {
	var choices []phrase
	for alt := range strings.SplitSeq(src, "|") {
		if name, ok := strings.CutPrefix(alt, "{"); ok {
			list, known := vocab[strings.TrimSuffix(name, "}")]
			if !known {
				return nil, fmt.Errorf("unknown word list %q", alt)
			}
			choices = append(choices, list...)
			continue
		}
		p := parsePhrase(strings.ReplaceAll(alt, "_", " "), lex)
		if len(p) == 0 {
			return nil, fmt.Errorf("empty choice in %q", src)
		}
		choices = append(choices, p)
	}

	return choices, nil
}

// parsePhrase splits a pattern with splitWords, so that Chinese matches by character, but
// keeps the stars.
func parsePhrase(src string, lex *lexicon) phrase {
	var p phrase
	for field := range strings.FieldsSeq(src) {
		words := splitWords(field)
		for i, word := range words {
			if i == len(words)-1 && strings.HasSuffix(field, "*") {
				word += "*"
			}
			p = append(p, lex.id(word))
		}
	}
	return p
}
