package classify

import (
	"html"
	"strings"
)

// looksLikeEvents reports whether a text has the framing of an event stream.
func looksLikeEvents(s string) bool {
	for _, start := range []string{"data:", "event:", "id:", ":"} {
		if strings.HasPrefix(s, start) {
			return strings.Contains(s, "data:")
		}
	}
	return false
}

// openEvents reads an event stream. It reads the texts of error events only, so that the
// output of a model is never mistaken for an error.
func (c *collector) openEvents(depth int, s string) {
	var data []string
	flush := func() {
		if len(data) > 0 {
			c.openEvent(depth, strings.Join(data, "\n"))
		}
		data = data[:0]
	}

	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimRight(line, "\r")
		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "data:"):
			data = append(data, strings.TrimPrefix(line[len("data:"):], " "))
		case strings.HasPrefix(line, "{"):
			data = append(data, line) // a document without the framing
		}
	}

	flush()
}

func (c *collector) openEvent(depth int, data string) {
	v, _, ok := parseValue(data)
	if !ok || v.kind != kindObject {
		if strings.TrimSpace(data) != "[DONE]" {
			c.openText(depth, data)
		}
		return
	}
	if !carriesError(v) {
		c.addEventHints(depth, v, 0)
		return
	}
	c.openValue(depth+1, v)
}

// carriesError reports whether an event contains a failure rather than output.
func carriesError(v value) bool {
	for _, m := range v.members {
		set := m.val.kind != kindNull && (m.val.kind == kindObject || m.val.text != "")
		switch memberName(m.key) {
		case "error", "errors", "lasterror", "errorcode", "errormessage", "errormsg", "detail":
			if set {
				return true
			}
		case "type", "object", "status":
			if strings.Contains(m.val.text, "error") || strings.Contains(m.val.text, "failed") {
				return true
			}
		case "statuscode", "errcode", "retcode":
			if m.val.kind == kindScalar && m.val.text != "0" && m.val.text != "200" && m.val.text != "null" {
				return true
			}
		case "success":
			if m.val.text == "false" {
				return true
			}
		case "code", "message":
			if m.val.kind == kindString || m.val.kind == kindScalar {
				return true
			}
		case "response", "xgroq", "baseresp":
			if m.val.kind == kindObject && carriesError(m.val) {
				return true
			}
		}
	}
	return false
}

// addEventHints adds the finish reasons of an output event, and none of its text.
func (c *collector) addEventHints(depth int, v value, nested int) {
	if nested > 6 {
		return
	}

	for _, m := range v.members {
		switch memberName(m.key) {
		case "finishreason", "stopreason", "blockreason", "nativefinishreason", "reason":
			c.addHint(depth, m.val)
		default:
			c.addEventHints(depth, m.val, nested+1)
		}
	}

	for i, item := range v.items {
		if i < 8 {
			c.addEventHints(depth, item, nested+1)
		}
	}
}

var (
	htmlStart  = lazily(`(?i)^(<\?xml[^>]*>\s*)?<(!doctype|html|head|body|center|h1|title|!--|error|div|p\b)`)
	htmlHidden = lazily(`(?is)<(script|style|svg)\b.*?(</(script|style|svg)>|$)`)
	htmlBlock  = lazily(`(?i)</?(p|h[1-6]|title|div|br|li|tr|center|hr|code|message)\b[^>]*>`)
	htmlTag    = lazily(`<[^<>]{0,1000}>`)
	blanks     = lazily(`[ \t\r\n]+`)
)

func looksLikeHTML(s string) bool { return htmlStart.get().MatchString(s) }

// stripHTML returns the text of a page, one line per block element.
func stripHTML(s string) string {
	s = htmlHidden.get().ReplaceAllString(s, " ")
	s = blanks.get().ReplaceAllString(s, " ")
	s = htmlBlock.get().ReplaceAllString(s, "\n")
	s = htmlTag.get().ReplaceAllString(s, " ")
	return strings.TrimSpace(html.UnescapeString(s))
}
