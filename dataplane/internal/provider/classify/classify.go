// Package classify tells what an error answer of a model provider means, and
// what the client is told about it.
//
// It owns the judgement alone: which of ten classes an answer belongs to, the
// status, code and parameter that follow, how long the provider asked us to
// wait, whether another route or another credential may do better, and which
// words of the provider may be shown. It does not read from the network, does
// not retry, does not build the error envelope of a format, and keeps no
// state.
//
// The knowledge is the table in rules.txt, meant to be read and extended. The
// code around it takes a reason out of its packing (unwrap.go), compares words
// (words.go, pattern.go), finds names and pauses (param.go, pause.go) and
// removes what must not pass (clean.go).
//
// Invariants: no input makes it panic; work is bounded whatever the size or
// nesting of a body; text of a provider that refused our own account, or that
// failed, never reaches Verdict.Message.
package classify

import (
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Answer is what a provider sent.
type Answer struct {
	// Format is the kind of call: "chat", "responses", "messages", "images" or
	// "videos".
	Format string
	// Status is the HTTP status. An error inside a stream has the 200 that the
	// stream began with; 0 counts as 200.
	Status int
	// Header holds the provider's headers; nil is empty.
	Header http.Header
	// Body is the body as received, decompressed. Only its first 64 KiB are
	// looked at.
	Body []byte
	// Stream tells that the error came inside a stream: Body is event-stream
	// text, or the data of one event.
	Stream bool
	// Now is when the answer arrived, for pauses that are named as a moment.
	// Zero means time.Now().
	Now time.Time
	// Cleaner removes what identifies our side of the provider from the
	// message.
	Cleaner Cleaner
}

// Verdict is what an answer means. The zero value is never returned.
type Verdict struct {
	// Class is the kind of error.
	Class Class
	// Status and Code are what the client gets. Inside a stream that has begun,
	// only the code can be shown.
	Status int
	Code   string
	// Param is the request parameter at fault, "" if it cannot be told.
	Param string
	// Message may be shown to the client. It is empty for classes whose text
	// never passes: OurAccount, RateLimit and Unavailable.
	Message string
	// RetryAfter is the pause for the client, whole seconds from 1 to 60, only
	// for RateLimit; 0 means that the provider named none.
	RetryAfter time.Duration
	// Pause is what the provider itself asked for, however long, for any class
	// that another route may cure; 0 means none.
	Pause time.Duration
	// Failover tells that another route may serve the request as it is.
	Failover bool
	// Retryable tells that the same request may succeed later.
	Retryable bool
	// KeyRejected tells that the credential itself is refused and should be set
	// aside.
	KeyRejected bool
	// QuotaExhausted tells that the credential's balance, credit or plan is used
	// up.
	QuotaExhausted bool
	// ModelUnknown tells that the provider does not serve us the model name of
	// the route.
	ModelUnknown bool
	// Rule is the line of rules.txt that decided, for logs; 0 if none applied.
	Rule int
}

// Classify judges an error answer. Call it for answers that are known to be
// errors: any answer without a 2xx status, an error inside a stream, or a
// successful answer without the output that was asked for.
func Classify(a Answer) Verdict {
	if a.Now.IsZero() {
		a.Now = time.Now()
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	u := unwrap(a.Body, a.Header.Get("Content-Type"))
	e := gather(a, u)
	rule, at := table.decide(e)

	what := finding{class: Unavailable}
	switch {
	case rule != nil:
		what = rule.what
	case e.status >= 400 && e.status < 500:
		what.class = OtherClient
	}
	v := verdictOf(what, e.status)
	if rule != nil {
		v.Rule = rule.line
	}
	fill(&v, a, u, at)
	return v
}

// gather prepares an answer for the rules.
func gather(a Answer, u unwrapped) evidence {
	e := evidence{status: a.Status, format: a.Format, codes: table.lex.scan(strings.Join(u.hints, "\n"))}
	// Another gateway's 500 around a 400 is a 400.
	refused := u.status == http.StatusBadRequest || u.status == http.StatusUnprocessableEntity
	if a.Status < 400 && u.status != 0 || a.Status >= 500 && refused {
		e.status = u.status
	}
	e.has = map[string]func() bool{
		"html":        func() bool { return u.html },
		"nothing":     func() bool { return u.empty },
		"param":       func() bool { return findParam(u, false) != "" },
		"image_param": func() bool { return holdsImage(findParam(u, false)) },
		"name":        sync.OnceValue(func() bool { return findParam(u, true) != "" }),
	}
	var all []string
	for _, l := range u.levels {
		text := matchText(l.text)
		e.levels = append(e.levels, table.lex.scan(text))
		all = append(all, text)
	}
	e.all = table.lex.scan(strings.Join(all, "\n"))
	return e
}

// matchText is the part of a text that the rules see: without links, whose
// words mislead, and of a long text its beginning and its end.
func matchText(text string) string {
	const head, tail = 6 << 10, 2 << 10
	if len(text) > head+tail {
		text = strings.ToValidUTF8(text[:head], "") + "\n" + strings.ToValidUTF8(text[len(text)-tail:], "")
	}
	return scrubs[0].re.ReplaceAllString(text, " ")
}

func verdictOf(what finding, status int) Verdict {
	o := outcomes[what.class]
	v := Verdict{
		Class: what.class, Status: o.status, Code: o.code, Failover: o.elsewhere,
		KeyRejected: what.keyRejected, QuotaExhausted: what.quotaExhausted, ModelUnknown: what.modelUnknown,
	}
	switch what.class {
	case InvalidValue:
		if what.unsupported {
			v.Code = CodeUnsupportedValue
		}
	case OtherClient:
		if status >= 400 && status < 500 {
			v.Status = status
		}
	case RateLimit, Unavailable, NoImage:
		v.Retryable = true
	case OurAccount, ContentPolicy, ContextLength, InvalidImage, UnsupportedParameter:
	}
	return v
}

// fill adds what is read out of the answer: pause, parameter and message.
func fill(v *Verdict, a Answer, u unwrapped, at int) {
	if v.Failover {
		v.Pause = findPause(a.Header, u, a.Now)
	}
	switch v.Class {
	case RateLimit:
		v.RetryAfter = clampPause(v.Pause)
	case UnsupportedParameter, InvalidValue:
		v.Param = findParam(u, true)
	case OtherClient, ContextLength, InvalidImage:
		v.Param = findParam(u, false)
	case OurAccount, ContentPolicy, NoImage, Unavailable:
	}
	if a.Cleaner.Clean(v.Param) != v.Param {
		v.Param = "" // a name of ours got into the place of a parameter
	}
	if o := outcomes[v.Class]; o.shown {
		v.Message = message(v.Class, o.fallback, a.Cleaner.Clean(chooseText(u, at)))
	}
}

// chooseText picks the words to show: those that decided, else the innermost
// that say something.
func chooseText(u unwrapped, at int) string {
	if u.html {
		return ""
	}
	if at >= 0 && at < len(u.levels) && isProse(u.levels[at].text) {
		return u.levels[at].text
	}
	for _, l := range u.levels {
		if isProse(l.text) {
			return l.text
		}
	}
	return ""
}

// isProse tells a sentence from a code, which says nothing to a reader.
// Chinese has no blanks, and no codes.
func isProse(text string) bool {
	text = strings.TrimSpace(text)
	return strings.Contains(text, " ") || strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// tooLong is how the contract wants every message of ContextLength to begin.
const tooLong = "Prompt is too long:"

func message(c Class, fallback, text string) string {
	if text == "" {
		text = fallback
	}
	if c != ContextLength {
		return text
	}
	if len(text) >= len(tooLong) && strings.EqualFold(text[:len(tooLong)], tooLong) {
		text = strings.TrimSpace(text[len(tooLong):])
	}
	return shorten(tooLong + " " + text)
}
