package classify

import (
	"regexp"
	"sort"
	"strings"
)

// maxBody is how much of a body is looked at. What explains an error stands
// at its beginning; the rest is echoed input or markup.
const maxBody = 64 << 10

// maxNesting bounds documents in documents: how often a string is opened as
// JSON again.
const maxNesting = 8

// unwrapped is what a body says, taken out of whatever it was packed in.
type unwrapped struct {
	levels []level     // innermost first
	hints  []string    // types, codes and reasons, innermost first
	params []string    // what fields such as param and loc name, innermost first
	pauses []namedText // fields that name a pause
	status int         // an HTTP status written into the body, 0 if none
	html   bool
	empty  bool
}

// level is the text found at one depth of wrapping.
type level struct {
	depth int
	text  string
}

type namedText struct{ name, text string }

// role is what a member of an error document is for.
type role uint8

const (
	roleOther  role = iota // opened if it is a container, else ignored
	roleText               // prose
	roleHint               // a code, type or reason
	roleParam              // names a request parameter
	rolePause              // names a pause
	roleSpeaks             // prose, and the name of the member itself is a hint
	roleError              // prose, a code, or a document
	roleIgnore             // echoed input, links, ids: never read
)

// roles knows the member names that providers use, spelled without case,
// dashes and underscores.
var roles = map[string]role{
	"message": roleText, "msg": roleText, "errormessage": roleText, "errormsg": roleText, "errmsg": roleText,
	"description": roleText, "errordescription": roleText, "title": roleText, "statusmsg": roleText, "statusmessage": roleText,
	"text": roleText, "failurereason": roleText, "failuremessage": roleText, "faultstring": roleText, "explanation": roleText,
	"finishmessage": roleText, "blockreasonmessage": roleText, "raifilteredreason": roleSpeaks, "raimediafilteredreasons": roleSpeaks, "raimediafilteredcount": roleSpeaks,
	"refusal": roleText, "causemessage": roleText, "note": roleText, "content": roleText, "usermessage": roleText, "summary": roleText,
	"debugmessage": roleText, "developermessage": roleText, "warning": roleText, "info": roleText,

	"error": roleError, "detail": roleError, "details": roleError, "raw": roleError, "reason": roleError, "err": roleError,
	"fault": roleError, "failure": roleError, "cause": roleError, "errors": roleError, "body": roleError, "response": roleError,
	"data": roleError, "innererror": roleError, "originalerror": roleError, "upstreamerror": roleError, "providererror": roleError,
	"exception": roleError, "metadata": roleError, "baseresp": roleError, "output": roleError, "result": roleError,
	"errorresponse": roleError, "responsebody": roleError, "logs": roleError, "stopdetails": roleError, "previouserrors": roleIgnore,

	"type": roleHint, "code": roleHint, "status": roleHint, "statuscode": roleHint, "errorcode": roleHint, "errortype": roleHint,
	"errcode": roleHint, "name": roleHint, "finishreason": roleHint, "stopreason": roleHint, "nativefinishreason": roleHint,
	"blockreason": roleHint, "failurecode": roleHint, "httpcode": roleHint, "httpstatus": roleHint, "httpstatuscode": roleHint,
	"quotaid": roleHint, "quotametric": roleHint, "quotalimit": roleHint, "reasoncode": roleHint, "category": roleHint,
	"limittype": roleHint, "subcode": roleHint, "finishreasons": roleHint, "errorname": roleHint, "kind": roleHint,
	"upstreamcode": roleHint, "ratelimittype": roleHint,

	"param": roleParam, "parameter": roleParam, "params": roleParam, "field": roleParam, "loc": roleParam, "location": roleParam,
	"parametername": roleParam, "paramname": roleParam, "fieldname": roleParam, "propertypath": roleParam, "propertyname": roleParam,
	"instancepath": roleParam, "argument": roleParam, "path": roleParam,

	"input": roleIgnore, "ctx": roleIgnore, "url": roleIgnore, "links": roleIgnore, "documentationurl": roleIgnore, "docs": roleIgnore,
	"requestid": roleIgnore, "traceid": roleIgnore, "id": roleIgnore, "userid": roleIgnore, "@type": roleIgnore, "model": roleIgnore,
	"usage": roleIgnore, "request": roleIgnore, "b64json": roleIgnore, "help": roleIgnore, "providername": roleIgnore,
	"contentfilterresults": roleIgnore, "timestamp": roleIgnore, "created": roleIgnore, "object": roleHint, "instance": roleIgnore,
	"stack": roleIgnore, "traceback": roleIgnore, "stacktrace": roleIgnore, "stackentries": roleIgnore, "instructions": roleIgnore,
	"moreinfo": roleIgnore, "helpurl": roleIgnore, "role": roleIgnore,
}

// namesPause matches the many members that name a pause: retryDelay,
// retry_after_ms, quotaResetDelay, resets_in_seconds, wait_seconds.
var namesPause = regexp.MustCompile(`^x?(?:ratelimit|quota|suggested|limit)?(?:retry|resets?|wait|cooldown)(?:delay|after|in|at|timestamp|time|requests|tokens|seconds?|secs?|sec|ms|milliseconds)*$`)

// roleOf finds the role of a member by its name.
func roleOf(name string) role {
	if r, ok := roles[name]; ok {
		return r
	}
	if len(name) < 40 && namesPause.MatchString(name) {
		return rolePause
	}
	return roleOther
}

func spelling(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(key))
}

// unwrap opens a body. It never fails: what cannot be opened is text.
func unwrap(body []byte, contentType string) unwrapped {
	if len(body) > maxBody {
		body = body[:maxBody]
	}
	c := collector{texts: map[int][]string{}}
	c.openText(0, strings.ToValidUTF8(strings.TrimPrefix(string(body), "\ufeff"), " "))
	c.out.empty = len(c.texts) == 0 && len(c.hints) == 0
	c.out.html = c.out.html || strings.Contains(contentType, "text/html")
	return c.finish()
}

// collector gathers texts and hints with the depth that they were found at.
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

// openText takes a string that may be prose or a document in any packing.
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

// openProse looks for a document inside prose: "Error code: 400 - {...}".
func (c *collector) openProse(depth int, s string) {
	if s[0] == '"' {
		if v, end, ok := parseValue(s); ok && end >= len(s)-1 {
			c.openText(depth, v.text)
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

// openDocument reads a document that has at least one member we know. Quotes
// with a backslash before them are tried as well: a document that was
// printed into a string and cut out of it again.
func openDocument(s string) (v value, end int, ok bool) {
	if v, end, _ = parseValue(s); meaningful(v, 0) {
		return v, end, true
	}
	if !strings.Contains(s, `\"`) {
		return value{}, 0, false
	}
	plain := strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, " ").Replace(s)
	if v, _, _ = parseValue(plain); meaningful(v, 0) {
		return v, len(s), true
	}
	return value{}, 0, false
}

func meaningful(v value, depth int) bool {
	if depth > 3 {
		return false
	}
	for _, m := range v.members {
		if r := roleOf(spelling(m.key)); r != roleOther && r != roleIgnore || meaningful(m.val, depth+1) {
			return true
		}
	}
	for i, item := range v.items {
		if i > 3 {
			break
		}
		if meaningful(item, depth+1) {
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
		for _, m := range v.members {
			c.openMember(depth, m)
		}
	case kindNull, kindScalar:
	}
}

func (c *collector) openMember(depth int, m member) {
	name := spelling(m.key)
	container := m.val.kind == kindObject || m.val.kind == kindArray
	switch roleOf(name) {
	case roleIgnore:
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
	case roleSpeaks:
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
			c.openText(depth+1, m.val.text) // a document under a name of its own
		}
	}
}

// statusInProse is a status written in front of, or around, another text.
var statusInProse = regexp.MustCompile(`(?i)(?:^\W{0,2}|\berror code:? |\bstatus(?: code)?:? |\bhttp(?: error)? |\[)([45]\d\d)(?:\W|$)`)

// codeInFront is a code that stands before the prose, as exceptions print it:
// "ThrottlingException: ...", "<400> InternalError.Algo.InvalidParameter: ...".
var codeInFront = regexp.MustCompile(`^(?:<([45]\d\d)>\s*)?((?:[a-z]\w*\.)*[A-Z][A-Za-z]*[a-z][A-Z]\w*(?:\.\w+)*)\s*(?::|\s-)\s+`)

func (c *collector) addText(depth int, s string) {
	if s = strings.TrimSpace(s); s != "" {
		for range 3 {
			m := codeInFront.FindStringSubmatch(s)
			if m == nil {
				break
			}
			c.hints = append(c.hints, depthText{depth, m[2]})
			if m[1] != "" {
				c.out.status = httpStatus(m[1])
			}
			s = s[len(m[0]):]
		}
		if m := statusInProse.FindStringSubmatch(s); m != nil && len(s) < maxProse {
			c.out.status = httpStatus(m[1])
		}
		c.texts[depth] = append(c.texts[depth], s)
	}
}

func (c *collector) addHint(depth int, v value) {
	switch v.kind {
	case kindString, kindScalar:
		text := strings.TrimSpace(v.text)
		if text == "" {
			return
		}
		if strings.Count(text, " ") > 3 {
			c.openText(depth-1, text) // a sentence, but less than the message beside it
			return
		}
		c.hints = append(c.hints, depthText{depth, text})
		if n := httpStatus(text); n != 0 {
			c.out.status = n // the last one seen is the innermost
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

// addParam takes a name, a path, a list of path segments, or a sentence that
// somebody put there.
func (c *collector) addParam(depth int, v value) {
	switch v.kind {
	case kindString:
		text := strings.TrimSpace(v.text)
		if strings.Contains(text, " ") {
			c.openText(depth, text)
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
