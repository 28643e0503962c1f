package providersim

import "strings"

// textPlan is the content of an answer of a text format, computed before anything is sent.
// The JSON answer and the stream have the same plan.
type textPlan struct {
	prompt     int64 // tokens, cached and written ones included
	cached     int64 // part of prompt
	cacheWrite int64 // part of prompt
	text       int64 // visible tokens per choice
	reasoning  int64 // tokens per choice, before the visible ones
	choices    int64
	truncated  bool // the request's limit cut the answer
	tool       *toolCall
}

func planText(f Format, m members, d *directives) textPlan {
	p := textPlan{prompt: TokensOf(m.contentBytes(f)), choices: 1}
	p.cached = min(d.cached, p.prompt)
	p.cacheWrite = min(d.cacheWrite, p.prompt-p.cached)
	var total int64
	total, p.truncated = OutputTokens(d.out+d.reasoning, m.outputLimit(f))
	p.reasoning = min(d.reasoning, total)
	p.text = total - p.reasoning
	if f == Chat {
		p.choices = m.number("n", 1)
	}
	p.tool = forcedTool(f, m)
	return p
}

func (p textPlan) output() int64         { return (p.text + p.reasoning) * p.choices }
func (p textPlan) reasoningTotal() int64 { return p.reasoning * p.choices }

// visible returns the number of output tokens whose text is in the answer.
func (p textPlan) visible(f Format, d *directives) int64 {
	switch {
	case f == Messages && d.refuse:
		return 0
	case f == Messages || f == Chat && d.reasoningContent:
		return p.output()
	}
	return p.text * p.choices
}

// counts returns the normalised usage that the format's usage object reports.
func (p textPlan) counts(f Format) Counts {
	c := Counts{
		Input:       p.prompt - p.cached - p.cacheWrite,
		CachedInput: p.cached,
		Output:      p.output(),
		Reasoning:   p.reasoningTotal(),
	}
	if f == Messages {
		c.CacheWrite5m = p.cacheWrite
	} else {
		c.CacheWrite30m = p.cacheWrite
	}
	return c
}

// vocabulary is repeated in order. One word is one token.
var vocabulary = strings.Fields(`amber birch cedar delta ember fjord grove harbor island juniper
	kelp lagoon meadow nectar orchard pebble quartz river spruce tundra
	umber valley willow xenon yarrow zephyr`)

// word returns token i of every answer, repeated to at least size bytes. All except the first
// begin with a space.
func word(i, size int64) string {
	w := vocabulary[i%int64(len(vocabulary))]
	if int64(len(w)) < size {
		w = strings.Repeat(w, int(size)/len(w)+1)[:size]
	}
	if i > 0 {
		return " " + w
	}
	return w
}

// words returns tokens from, from+1, … to-1 joined.
func words(from, to, size int64) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(word(i, size))
	}
	return b.String()
}
