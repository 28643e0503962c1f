package classify

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed rules.txt
var rulesText string

// table is the one rule table, read at start. A fault in it is a fault of the
// build, and the tests find it.
var table = mustParseRules(rulesText)

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
	line  int // in rules.txt, for tests and for people
	what  finding
	terms []term
}

// finding is what a rule concludes.
type finding struct {
	class          Class
	unsupported    bool // InvalidValue: not offered, rather than out of range
	keyRejected    bool
	quotaExhausted bool
	modelUnknown   bool
}

// findings maps the names of the table's groups.
var findings = map[string]finding{
	"our_account":                 {class: OurAccount},
	"our_account key_rejected":    {class: OurAccount, keyRejected: true},
	"our_account quota_exhausted": {class: OurAccount, quotaExhausted: true},
	"our_account model_unknown":   {class: OurAccount, modelUnknown: true},
	"content_policy":              {class: ContentPolicy},
	"context_length":              {class: ContextLength},
	"invalid_image":               {class: InvalidImage},
	"rate_limit":                  {class: RateLimit},
	"unsupported_parameter":       {class: UnsupportedParameter},
	"unsupported_value":           {class: InvalidValue, unsupported: true},
	"invalid_value":               {class: InvalidValue},
	"generation_failed":           {class: NoImage},
	"unavailable":                 {class: Unavailable},
	"invalid_request":             {class: OtherClient},
}

// field says what a term looks at.
type field uint8

const (
	fieldText field = iota // the text at hand
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
	run     sequence // of fieldText, fieldAll, fieldCode
	word    string   // of the other fields
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
	r := rule{line: line, what: *group}
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
	var err error
	tm.run, err = parseSequence(src, t.lex, vocab)
	return tm, err
}

// evidence is an answer prepared for the rules.
type evidence struct {
	levels []*scanned // innermost first
	all    *scanned
	codes  *scanned
	status int
	format string
	has    map[string]func() bool // asked only when a rule asks
}

// decide returns what the first rule that applies concludes, and the index of
// the text that it applied to (-1 if none was needed).
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

func (r *rule) applies(e evidence, at int) (byText, ok bool) {
	for _, tm := range r.terms {
		if tm.holds(e, at) == tm.negated {
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
			return tm.run.find(e.all)
		}
		return at < len(e.levels) && tm.run.find(e.levels[at])
	case fieldAll:
		return tm.run.find(e.all)
	case fieldCode:
		return tm.run.find(e.codes)
	case fieldStatus:
		return statusIs(e.status, tm.word)
	case fieldFormat:
		return e.format == tm.word
	case fieldHas:
		ask, known := e.has[tm.word]
		return known && ask()
	}
	return false
}

// statusIs compares with "429" or "4xx".
func statusIs(status int, want string) bool {
	if class, ok := strings.CutSuffix(want, "xx"); ok {
		return strconv.Itoa(status/100) == class
	}
	return strconv.Itoa(status) == want
}
