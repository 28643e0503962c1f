package classify

import (
	"regexp"
	"strings"
)

// statusInProse matches a status before, or around, another text.
var statusInProse = regexp.MustCompile(`(?i)(?:^\W{0,2}|\berror code:? |\bstatus(?: code)?:? |\bhttp(?: error)? |\[)([45]\d\d)(?:\W|$)`)

// codePrefix matches a code before prose, as exceptions print it: "ThrottlingException: ...". Only the last part of a code
// says what is wrong; the parts before it name the vendor's program.
var codePrefix = regexp.MustCompile(`^(?:[A-Za-z]\w*\.)*([A-Z][A-Za-z]*[a-z][A-Z]\w*)\s*(?::|\s-)\s+`)

// markedCode matches a status and a code that a vendor writes before prose, also in the middle of a text of another
// gateway: "<400> InternalError.Algo.InvalidParameter: ...".
var markedCode = regexp.MustCompile(`<([45]\d\d)>\s*(?:[A-Za-z]\w*\.)*([A-Za-z]\w*)\s*:\s*`)

// routingNotes match what a gateway adds to the text of a provider about its own routes.
var routingNotes = lazily(`(?i)\b(?:received|available) model group\b.*`)

func (c *collector) addText(depth int, s string) {
	if strings.Contains(s, "Model Group") && len(s) < maxProse {
		s = routingNotes.get().ReplaceAllString(s, "")
	}
	if s = strings.TrimSpace(s); s != "" {
		if at := markedCode.FindStringSubmatchIndex(s); at != nil && at[1] < len(s) && len(s) < maxProse {
			c.out.status = httpStatus(s[at[2]:at[3]])
			c.hints = append(c.hints, depthText{depth, s[at[4]:at[5]]})
			s = s[at[1]:] // what is before it is the frame of another gateway
		}

		for range 3 {
			m := codePrefix.FindStringSubmatch(s)
			if m == nil {
				break
			}
			c.hints = append(c.hints, depthText{depth, m[1]})
			s = s[len(m[0]):]
		}

		if m := statusInProse.FindStringSubmatch(s); m != nil && len(s) < maxProse {
			c.out.status = httpStatus(m[1])
		}

		c.texts[depth] = append(c.texts[depth], s)
	}
}

// invalidArgument is the description of a gRPC code, which xAI sends in place of the code with all it refuses.
const invalidArgument = "Client specified an invalid argument"

func (c *collector) addHint(depth int, v value) {
	switch v.kind {
	case kindString, kindScalar:
		text := strings.TrimSpace(v.text)
		if text == "" {
			return
		}
		if strings.EqualFold(text, invalidArgument) {
			text = "invalid_argument"
		}
		if strings.Count(text, " ") > 3 {
			c.openText(depth-1, text) // a sentence, but less important than the message
			return
		}
		c.hints = append(c.hints, depthText{depth, text})
		if n := httpStatus(text); n != 0 {
			c.out.status = n // the last one read is the innermost
		}
	case kindArray:
		for i, item := range v.items {
			if i < 8 {
				c.addHint(depth, item)
			}
		}
	case kindObject:
		c.openValue(depth+1, v)
	case kindNull:
	}
}

func httpStatus(text string) int {
	if len(text) != 3 || text[0] != '4' && text[0] != '5' {
		return 0
	}
	n := 0
	for _, r := range text {
		if r < '0' || r > '9' {
			return 0
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// addParam reads a member that holds a parameter: a name, a path, a list of path segments,
// or a sentence.
func (c *collector) addParam(depth int, v value) {
	switch v.kind {
	case kindString:
		text := strings.TrimSpace(v.text)
		if n := httpStatus(text); n != 0 {
			c.out.status = n // where gateways keep the status of the provider behind them
			return
		}
		if strings.Contains(text, " ") {
			c.openText(depth, text)
			if first := firstSegment(text); len(first) < strings.Index(text, " ") && knownParams[plainName(first)] {
				c.params = append(c.params, depthText{depth, first}) // a path at the begin of a sentence
			}
		} else if text != "" {
			c.params = append(c.params, depthText{depth, text})
		}
	case kindArray:
		if path := joinPath(v.items); path != "" {
			c.params = append(c.params, depthText{depth, path})
		}
		for _, item := range v.items {
			if item.kind == kindObject {
				c.openValue(depth+1, item)
			}
		}
	case kindObject:
		c.openValue(depth+1, v)
	case kindNull, kindScalar:
	}
}

func joinPath(items []value) string {
	var parts []string
	for i, item := range items {
		if i < 8 && (item.kind == kindString || item.kind == kindScalar) {
			parts = append(parts, item.text)
		}
	}
	return strings.Join(parts, ".")
}
