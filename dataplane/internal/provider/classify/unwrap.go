package classify

import (
	"regexp"
	"slices"
	"sort"
	"strings"
)

// maxBody is how many bytes of a body are read. The explanation of an error is at its
// beginning; the rest is echoed input or markup.
const maxBody = 64 << 10

// maxNesting bounds how often a string is parsed as JSON inside another document.
const maxNesting = 8

// unwrapped holds the texts and members of a body, extracted from nested documents.
type unwrapped struct {
	levels []level     // innermost first
	hints  []string    // types, codes and reasons, innermost first
	params []string    // the values of members such as param and loc, innermost first
	pauses []namedText // the members that hold a pause
	status int         // the HTTP status in the body, 0 if none
	html   bool
	empty  bool
	answer bool // the body has a list where an answer has its output
}

// level is the text found at one depth of wrapping.
type level struct {
	depth int
	text  string
}

type namedText struct{ name, text string }

// role is the purpose of a member of an error document.
type role uint8

const (
	roleOther       role = iota // read if it is an object or array, else ignored
	roleText                    // prose
	roleHint                    // a code, type or reason
	roleParam                   // the name of a request parameter
	rolePause                   // a pause
	roleTextAndHint             // prose; the name of the member is a hint as well
	roleError                   // prose, a code, or a document
	roleIgnore                  // echoed input, links, ids: never read
)

// roles lists the member names that providers use, without case, dashes and underscores.
var roles = map[string]role{
	"message":                 roleText,
	"msg":                     roleText,
	"errormessage":            roleText,
	"errormsg":                roleText,
	"errmsg":                  roleText,
	"description":             roleText,
	"errordescription":        roleText,
	"title":                   roleText,
	"statusmsg":               roleText,
	"statusmessage":           roleText,
	"text":                    roleText,
	"failurereason":           roleText,
	"failuremessage":          roleText,
	"faultstring":             roleText,
	"explanation":             roleText,
	"finishmessage":           roleText,
	"blockreasonmessage":      roleText,
	"raifilteredreason":       roleTextAndHint,
	"raimediafilteredreasons": roleTextAndHint,
	"raimediafilteredcount":   roleTextAndHint,
	"refusal":                 roleText,
	"causemessage":            roleText,
	"note":                    roleText,
	"content":                 roleText,
	"usermessage":             roleText,
	"summary":                 roleText,
	"suggestion":              roleText,
	"debugmessage":            roleText,
	"developermessage":        roleText,
	"warning":                 roleText,
	"info":                    roleText,

	"error":          roleError,
	"detail":         roleError,
	"details":        roleError,
	"raw":            roleError,
	"reason":         roleError,
	"err":            roleError,
	"fault":          roleError,
	"failure":        roleError,
	"cause":          roleError,
	"errors":         roleError,
	"body":           roleError,
	"response":       roleError,
	"data":           roleError,
	"innererror":     roleError,
	"originalerror":  roleError,
	"lasterror":      roleError,
	"upstreamerror":  roleError,
	"providererror":  roleError,
	"exception":      roleError,
	"metadata":       roleError,
	"baseresp":       roleError,
	"output":         roleError,
	"result":         roleError,
	"errorresponse":  roleError,
	"responsebody":   roleError,
	"logs":           roleError,
	"stopdetails":    roleError,
	"previouserrors": roleIgnore,

	"type":               roleHint,
	"code":               roleHint,
	"status":             roleHint,
	"statuscode":         roleHint,
	"errorcode":          roleHint,
	"errortype":          roleHint,
	"errcode":            roleHint,
	"name":               roleHint,
	"finishreason":       roleHint,
	"stopreason":         roleHint,
	"nativefinishreason": roleHint,
	"blockreason":        roleHint,
	"failurecode":        roleHint,
	"httpcode":           roleHint,
	"httpstatus":         roleHint,
	"httpstatuscode":     roleHint,
	"quotaid":            roleHint,
	"quotametric":        roleHint,
	"quotalimit":         roleHint,
	"reasoncode":         roleHint,
	"category":           roleHint,
	"limittype":          roleHint,
	"subcode":            roleHint,
	"finishreasons":      roleHint,
	"errorname":          roleHint,
	"kind":               roleHint,
	"upstreamcode":       roleHint,
	"ratelimittype":      roleHint,

	"param":         roleParam,
	"parameter":     roleParam,
	"params":        roleParam,
	"field":         roleParam,
	"loc":           roleParam,
	"location":      roleParam,
	"parametername": roleParam,
	"paramname":     roleParam,
	"fieldname":     roleParam,
	"propertypath":  roleParam,
	"propertyname":  roleParam,
	"instancepath":  roleParam,
	"argument":      roleParam,
	"path":          roleParam,

	"input":                roleIgnore,
	"ctx":                  roleIgnore,
	"url":                  roleIgnore,
	"links":                roleIgnore,
	"documentationurl":     roleIgnore,
	"docs":                 roleIgnore,
	"requestid":            roleIgnore,
	"traceid":              roleIgnore,
	"id":                   roleIgnore,
	"userid":               roleIgnore,
	"@type":                roleIgnore,
	"model":                roleIgnore,
	"usage":                roleIgnore,
	"request":              roleIgnore,
	"b64json":              roleIgnore,
	"help":                 roleIgnore,
	"providername":         roleIgnore,
	"contentfilterresults": roleIgnore,
	"timestamp":            roleIgnore,
	"created":              roleIgnore,
	"object":               roleHint,
	"instance":             roleIgnore,
	"stack":                roleIgnore,
	"traceback":            roleIgnore,
	"stacktrace":           roleIgnore,
	"stackentries":         roleIgnore,
	"instructions":         roleIgnore,
	"moreinfo":             roleIgnore,
	"tools":                roleIgnore,
	"functions":            roleIgnore,
	"messages":             roleIgnore,
	"prompt":               roleIgnore,
	"revisedprompt":        roleIgnore,
	"negativeprompt":       roleIgnore,
	"system":               roleIgnore,
	"toolchoice":           roleIgnore,
	"promptcachekey":       roleIgnore,
	"safetyidentifier":     roleIgnore,
	"user":                 roleIgnore,
	"helpurl":              roleIgnore,
	"role":                 roleIgnore,
}

// pauseMember matches the names of members that hold a pause, such as retryDelay,
// retry_after_ms, quotaResetDelay, resets_in_seconds and wait_seconds.
var pauseMember = regexp.MustCompile(
	`^x?(?:ratelimit|quota|suggested|limit)?(?:retry|resets?|wait|cooldown)(?:delay|after|in|at|timestamp|time|requests|tokens|seconds?|secs?|sec|ms|milliseconds)*$`,
)

// roleOf returns the role of a member with the given name, as memberName returns it.
func roleOf(name string) role {
	if r, ok := roles[name]; ok {
		return r
	}
	if len(name) < 40 && pauseMember.MatchString(name) {
		return rolePause
	}
	if strings.HasSuffix(name, "msg") || strings.HasSuffix(name, "message") {
		return roleText
	}
	return roleOther
}

// memberName returns the name of a member or header without case and separators.
func memberName(key string) string {
	return strings.ToLower(separators.Replace(key))
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

// unwrap reads a body. It never fails: a body that is not a document counts as prose.
func unwrap(body []byte, contentType string) unwrapped {
	if len(body) > maxBody {
		body = body[:maxBody]
	}
	c := collector{texts: map[int][]string{}}
	text := strings.ToValidUTF8(strings.TrimPrefix(string(body), "\ufeff"), " ")
	c.openText(0, text)
	c.out.answer = isAnswer(text)
	c.out.empty = len(c.texts) == 0 && len(c.hints) == 0
	c.out.html = c.out.html || strings.Contains(contentType, "text/html")
	return c.finish()
}

// isAnswer reports whether a body is a document with a list in a member where providers write the output.
func isAnswer(body string) bool {
	v, _, ok := parseValue(body)
	return ok && slices.ContainsFunc(v.members, func(m member) bool {
		switch memberName(m.key) {
		case "data", "choices", "candidates", "predictions", "output", "artifacts":
			return m.val.kind == kindArray
		case "promptfeedback":
			return m.val.kind == kindObject
		}
		return false
	})
}

// collector collects texts, hints and parameters with their depth in the document.
type collector struct {
	out    unwrapped
	texts  map[int][]string
	hints  []depthText
	params []depthText
	opened int
}

type depthText struct {
	depth int
	text  string
}

func (c *collector) finish() unwrapped {
	for depth, texts := range c.texts {
		c.out.levels = append(c.out.levels, level{depth: depth, text: strings.Join(texts, "\n")})
	}
	sort.Slice(c.out.levels, func(i, j int) bool { return c.out.levels[i].depth > c.out.levels[j].depth })
	c.out.hints = innermostFirst(c.hints)
	c.out.params = innermostFirst(c.params)
	return c.out
}

func innermostFirst(found []depthText) []string {
	sort.SliceStable(found, func(i, j int) bool { return found[i].depth > found[j].depth })
	var out []string
	for _, f := range found {
		out = append(out, f.text)
	}
	return out
}

// openText reads a string that is prose, a page, an event stream or a document.
func (c *collector) openText(depth int, s string) {
	s = strings.TrimSpace(s)
	if s == "" || s == "null" {
		return
	}

	c.opened++
	if c.opened > 200 || depth > maxNesting*3 {
		c.addText(depth, s)
		return
	}

	switch {
	case looksLikeEvents(s):
		c.openEvents(depth, s)
	case looksLikeHTML(s):
		c.out.html = true
		c.addText(depth, stripHTML(s))
	default:
		c.openProse(depth, s)
	}
}

// openProse reads prose and the document in it, as in "Error code: 400 - {...}".
func (c *collector) openProse(depth int, s string) {
	if s[0] == '"' {
		if v, end, ok := parseValue(s); ok && end >= len(s)-1 {
			c.openText(depth, v.text)
			return
		}
	}

	if depth == 0 && s[0] == '{' {
		if v, end, ok := parseValue(s); ok && end == len(s) {
			c.openValue(1, v) // also if no member has a known name
			return
		}
	}

	for from, tries := 0, 0; tries < 4; tries++ {
		at := strings.IndexAny(s[from:], "{[")
		if at < 0 {
			break
		}
		at += from
		if v, end, ok := openDocument(s[at:]); ok {
			before, after := s[:at], s[at+end:]
			c.addText(depth, strings.Trim(before, " \t\n-:'\"")+" "+strings.Trim(after, " \t\n'\")"))
			c.openValue(depth+1, v)
			return
		}
		from = at + 1
	}

	c.addText(depth, s)
}

// openDocument parses a document that has at least one known member. It also accepts a
// document whose quotes are escaped, because it was copied out of a string.
func openDocument(s string) (v value, end int, ok bool) {
	if v, end, _ = parseValue(s); hasKnownMember(v, 0) {
		return v, end, true
	}
	if !strings.Contains(s, `\"`) {
		return value{}, 0, false
	}
	plain := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, " ").Replace(s)
	if v, _, _ = parseValue(plain); hasKnownMember(v, 0) {
		return v, len(s), true
	}
	return value{}, 0, false
}

func hasKnownMember(v value, depth int) bool {
	if depth > 3 {
		return false
	}

	for _, m := range v.members {
		if r := roleOf(memberName(m.key)); r != roleOther && r != roleIgnore || hasKnownMember(m.val, depth+1) {
			return true
		}
	}

	for i, item := range v.items {
		if i > 3 {
			break
		}
		if hasKnownMember(item, depth+1) {
			return true
		}
	}

	return false
}

func (c *collector) openValue(depth int, v value) {
	switch v.kind {
	case kindString:
		c.openText(depth, v.text)
	case kindArray:
		for i, item := range v.items {
			if i >= 16 {
				break
			}
			c.openValue(depth, item)
		}
	case kindObject:
		before := c.count()
		for _, m := range v.members {
			c.openMember(depth, m)
		}
		if c.count() == before {
			c.openUnnamed(depth, v)
		}
	case kindNull, kindScalar:
	}
}

// count returns the number of texts.
func (c *collector) count() int {
	n := 0
	for _, texts := range c.texts {
		n += len(texts)
	}
	return n
}

// openUnnamed reads the sentences of an object that has no text under a known name, as services write it that name their
// members in another language, or after the provider behind them.
func (c *collector) openUnnamed(depth int, v value) {
	for _, m := range v.members {
		if roleOf(memberName(m.key)) == roleOther && m.val.kind == kindString && isProse(m.val.text) {
			c.openText(depth, m.val.text)
		}
	}
}

// listsErrors reports whether a list is one of errors, although its name is that of a member of requests: its items have
// codes, which no part of a request has.
func listsErrors(v value) bool {
	if v.kind != kindArray || len(v.items) == 0 {
		return false
	}
	return slices.ContainsFunc(v.items[0].members, func(m member) bool { return memberName(m.key) == "errorcode" })
}

func (c *collector) openMember(depth int, m member) {
	name := memberName(m.key)
	container := m.val.kind == kindObject || m.val.kind == kindArray
	switch roleOf(name) {
	case roleIgnore:
		if listsErrors(m.val) {
			c.openValue(depth+1, m.val)
		}
	case roleText:
		if container {
			c.openValue(depth+1, m.val)
		} else {
			c.openText(depth, m.val.text)
		}
	case roleHint:
		c.addHint(depth, m.val)
	case roleParam:
		c.addParam(depth, m.val)
	case rolePause:
		if !container {
			c.out.pauses = append(c.out.pauses, namedText{name, m.val.text})
		}
	case roleTextAndHint:
		if m.val.text != "0" && m.val.kind != kindNull {
			c.hints = append(c.hints, depthText{depth, m.key})
		}
		if m.val.kind != kindScalar {
			c.openValue(depth+1, m.val)
		}
	case roleError:
		switch {
		case container:
			c.openValue(depth+1, m.val)
		case m.val.kind == kindString:
			c.openText(depth, m.val.text)
			if !strings.Contains(m.val.text, " ") {
				c.addHint(depth, m.val)
			}
		}
	case roleOther:
		switch {
		case container:
			c.openValue(depth+1, m.val)
		case m.val.kind == kindString && strings.Contains(m.val.text, `{"`):
			c.openText(depth+1, m.val.text) // a document in a member with an unknown name
		}
	}
}
