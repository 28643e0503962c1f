package classify

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed rules.txt
var rulesText string

// table is parsed when it is first used, as it takes 1 MB. The tests make sure that it is valid.
var table = sync.OnceValue(func() *ruleTable { return mustParseRules(rulesText) })

// ruleTable is the parsed form of rules.txt.
type ruleTable struct {
	lex    *lexicon
	passes []pass
}

type pass struct {
	name  string
	rules []rule
}

// rule is one line of the table.
type rule struct {
	line    int // in rules.txt
	finding finding
	terms   []term
}

// finding is the conclusion of a rule.
type finding struct {
	class          Class
	unsupported    bool // for InvalidValue: the model does not offer the value
	keyRejected    bool
	quotaExhausted bool
	modelUnknown   bool
}

// findings maps the names of the table's groups.
var findings = map[string]finding{
	"gateway_refused":                 {class: GatewayRefused},
	"gateway_refused key_rejected":    {class: GatewayRefused, keyRejected: true},
	"gateway_refused quota_exhausted": {class: GatewayRefused, quotaExhausted: true},
	"gateway_refused model_unknown":   {class: GatewayRefused, modelUnknown: true},
	"content_policy":                  {class: ContentPolicy},
	"context_length":                  {class: ContextLength},
	"invalid_image":                   {class: InvalidImage},
	"rate_limit":                      {class: RateLimit},
	"unsupported_parameter":           {class: UnsupportedParameter},
	"unsupported_value":               {class: InvalidValue, unsupported: true},
	"invalid_value":                   {class: InvalidValue},
	"generation_failed":               {class: NoImage},
	"unavailable":                     {class: Unavailable},
	"invalid_request":                 {class: OtherClient},
}

// field is the part of an answer that a term is compared with.
type field uint8

const (
	fieldText field = iota // the text of the current depth
	fieldAll               // the texts of all depths
	fieldCode
	fieldStatus
	fieldFormat
	fieldHas
)

var fieldNames = map[string]field{"all": fieldAll, "code": fieldCode, "status": fieldStatus, "format": fieldFormat, "has": fieldHas}

// term is one condition of a rule.
type term struct {
	negated bool
	field   field
	words   sequence // for fieldText, fieldAll and fieldCode
	turned  sequence // the same in the other order, if either holds
	word    string   // for the other fields
}

func mustParseRules(src string) *ruleTable {
	t, err := parseRules(src)
	if err != nil {
		panic("classify: rules.txt: " + err.Error())
	}
	return t
}

func parseRules(src string) (*ruleTable, error) {
	t := &ruleTable{lex: newLexicon()}
	vocab := vocabulary{}
	var group *finding
	for i, line := range strings.Split(src, "\n") {
		text := strings.TrimSpace(line)
		var err error
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case strings.HasPrefix(line, "list "):
			err = t.addList(vocab, text)
		case strings.HasPrefix(line, "pass "):
			t.passes = append(t.passes, pass{name: strings.TrimPrefix(text, "pass ")})
			group = nil
		case line[0] != ' ':
			group, err = parseGroup(text)
		default:
			err = t.addRule(vocab, group, i+1, text)
		}

		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}

	return t, nil
}

func (t *ruleTable) addList(vocab vocabulary, text string) error {
	name, words, ok := strings.Cut(strings.TrimPrefix(text, "list "), " = ")
	if !ok {
		return fmt.Errorf("a list needs a name and words: %q", text)
	}
	for alt := range strings.SplitSeq(words, "|") {
		p := parsePhrase(alt, t.lex)
		if len(p) == 0 {
			return fmt.Errorf("empty entry in list %s", name)
		}
		vocab[name] = append(vocab[name], p)
	}
	return nil
}

func parseGroup(text string) (*finding, error) {
	name, reason, _ := strings.Cut(text, " -- ")
	f, known := findings[name]
	if !known || reason == "" {
		return nil, fmt.Errorf("a group needs a known class and a reason: %q", text)
	}
	return &f, nil
}

func (t *ruleTable) addRule(vocab vocabulary, group *finding, line int, text string) error {
	if group == nil || len(t.passes) == 0 {
		return fmt.Errorf("rule outside of a group: %q", text)
	}
	r := rule{line: line, finding: *group}
	for part := range strings.SplitSeq(text, " & ") {
		tm, err := t.parseTerm(vocab, strings.TrimSpace(part))
		if err != nil {
			return err
		}
		r.terms = append(r.terms, tm)
	}
	last := &t.passes[len(t.passes)-1]
	last.rules = append(last.rules, r)
	return nil
}

func (t *ruleTable) parseTerm(vocab vocabulary, src string) (term, error) {
	var tm term
	src, tm.negated = strings.CutPrefix(src, "!")
	if name, rest, ok := strings.Cut(src, ":"); ok {
		if tm.field, ok = fieldNames[name]; !ok {
			return term{}, fmt.Errorf("unknown field in %q", src)
		}
		src = rest
	}
	if tm.field >= fieldStatus {
		tm.word = src
		return tm, nil
	}
	one, other, either := strings.Cut(src, " ~ ")
	if !either {
		var err error
		tm.words, err = parseSequence(src, t.lex, vocab)
		return tm, err
	}

	words, err := parseSequence(one+" .. "+other, t.lex, vocab)
	if err != nil {
		return term{}, err
	}
	tm.words = words
	tm.turned, err = parseSequence(other+" .. "+one, t.lex, vocab)
	return tm, err
}

// evidence is an answer prepared for the rules.
type evidence struct {
	levels []*wordIndex // innermost first
	all    *wordIndex
	codes  *wordIndex
	status int
	format string
	has    map[string]func() bool // called only for rules with a "has" term
	// ownWords is the evidence without words of the client, for rules that judge more than the request; nil if the answer
	// can have none.
	ownWords *evidence
}

// decide returns the first rule that applies, and the index of the text that it matched,
// -1 for a rule without a term about text.
func (t *ruleTable) decide(e evidence) (r *rule, at int) {
	for p := range t.passes {
		for i := range max(len(e.levels), 1) {
			if r, byText := t.passes[p].first(e, i); r != nil {
				if !byText {
					return r, -1
				}
				return r, i
			}
		}
	}
	return nil, -1
}

func (p *pass) first(e evidence, at int) (r *rule, byText bool) {
	for i := range p.rules {
		if byText, ok := p.rules[i].applies(e, at); ok {
			return &p.rules[i], byText
		}
	}
	return nil, false
}

// refusesByCode reports whether a code alone says that the provider refuses the gateway's account.
func (t *ruleTable) refusesByCode(e evidence) bool {
	for p := range t.passes {
		for i := range t.passes[p].rules {
			r := &t.passes[p].rules[i]
			if r.finding.class != GatewayRefused || slices.ContainsFunc(r.terms, func(tm term) bool { return tm.field != fieldCode }) {
				continue
			}
			if _, ok := r.applies(e, 0); ok {
				return true
			}
		}
	}
	return false
}

func (r *rule) applies(e evidence, at int) (byText, ok bool) {
	words := e
	if e.ownWords != nil && r.finding.class.isJudgement() {
		words = *e.ownWords
	}
	for _, tm := range r.terms {
		seen := words
		if tm.negated {
			seen = e
		}
		if tm.holds(seen, at) == tm.negated {
			return false, false
		}
		byText = byText || tm.field == fieldText && !tm.negated
	}
	return byText, true
}

func (tm *term) holds(e evidence, at int) bool {
	switch tm.field {
	case fieldText:
		if tm.negated {
			return tm.find(e.all)
		}
		return at < len(e.levels) && tm.find(e.levels[at])
	case fieldAll:
		return tm.find(e.all)
	case fieldCode:
		return tm.find(e.codes)
	case fieldStatus:
		return statusIs(e.status, tm.word)
	case fieldFormat:
		return e.format == tm.word
	case fieldHas:
		has, known := e.has[tm.word]
		return known && has()
	}
	return false
}

// find reports whether the words of the term occur in the text.
func (tm *term) find(s *wordIndex) bool {
	return tm.words.find(s) || tm.turned.find(s)
}

// statusIs compares a status with a pattern such as "429" or "4xx".
func statusIs(status int, want string) bool {
	if class, ok := strings.CutSuffix(want, "xx"); ok {
		return strconv.Itoa(status/100) == class
	}
	return strconv.Itoa(status) == want
}
