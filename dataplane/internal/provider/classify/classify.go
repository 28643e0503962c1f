// Package classify determines what an error answer of a model provider means and which
// error the client gets for it.
//
// For an answer it returns one of ten classes, the status, code and parameter of the client's error, the pause that the
// provider asks for, whether another route or credential may serve the request, and the part of the provider's text
// that the client may read. It does not read from the network, does not retry, does not encode the error envelope of a
// format, and keeps no state.
//
// The rules are the table in rules.txt, which explains its own notation. The code
// extracts the texts from nested documents (unwrap.go, lenient.go, frame.go), matches
// words (words.go, pattern.go), finds parameter names and pauses (param.go, pause.go) and
// removes identifying text (clean.go).
//
// Invariants:
//
//   - No input makes it panic.
//   - Its work is bounded whatever the size or nesting of a body.
//   - The text of a provider that refused the gateway's account, or that failed, never
//     reaches Verdict.Message.
package classify

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Answer is an error answer of a provider.
type Answer struct {
	// Format is the kind of call: "chat", "responses", "messages", "images" or
	// "videos".
	Format string
	// Status is the HTTP status, for an error inside a stream the 200 of the stream.
	// 0 counts as 200.
	Status int
	// Header holds the provider's headers; nil is empty.
	Header http.Header
	// Body is the decompressed body. Only its first 64 KiB are read.
	Body []byte
	// Stream is true for an error inside a stream: Body is then event-stream text or the
	// data of one event.
	Stream bool
	// Now is the time of arrival. A pause that the provider gives as a time is relative
	// to it. Zero means time.Now().
	Now time.Time
	// Cleaner removes names and ids of the gateway's account from the message.
	Cleaner Cleaner
}

// Verdict is the meaning of an answer. Classify never returns its zero value.
type Verdict struct {
	// Class is the kind of error.
	Class Class
	// Status and Code are those of the error for the client. A stream that has begun
	// can only report the code.
	Status int
	Code   string
	// Certain reports whether a status or code that no request can cause shows that the provider refuses the gateway's
	// account, limits its rate, or is not there. Otherwise the words of a client may have led to the Class, or the request
	// may have made the provider fail.
	Certain bool
	// NamesMember reports whether the answer names a member of the request as the reason, which is then never a reason to
	// judge the gateway's account.
	NamesMember bool
	// NotOffered reports whether the deployment does not offer a value that another may offer. The code of a provider that calls
	// the value invalid says that none does.
	NotOffered bool
	// Param is the request parameter that the error is about, "" if it is unknown.
	Param string
	// Members are the members of the request that the answer refuses, that of Param among them; nil if it names none, or has
	// another reason.
	Members []string
	// Message is text for the client. It is empty for GatewayRefused, RateLimit and
	// Unavailable, whose text the client must not read.
	Message string
	// RetryAfter is the pause for the client, whole seconds from 1 to 60. Only RateLimit
	// has one; 0 means that the provider gave none.
	RetryAfter time.Duration
	// Pause is the pause that the provider asks for, not limited to a minute. Only
	// classes with Failover have one; 0 means none.
	Pause time.Duration
	// Failover reports whether another route may serve the unchanged request.
	Failover bool
	// Retryable reports whether the same request may succeed later.
	Retryable bool
	// KeyRejected reports whether the provider refuses the credential itself, so that it
	// needs a cooldown.
	KeyRejected bool
	// QuotaExhausted reports whether the balance, credit or plan of the credential is
	// used up.
	QuotaExhausted bool
	// ModelUnknown reports whether the provider does not serve the route's model name to
	// the gateway's account.
	ModelUnknown bool
	// ForeignItem reports whether the request has encrypted reasoning, or a signature, that another account has made and this one
	// cannot verify.
	ForeignItem bool
	// Rule is the line in rules.txt of the rule that applied, for logs; 0 if none did.
	Rule int
}

// Classify returns the meaning of an error answer. Its callers pass answers that are
// errors: an answer without a 2xx status, an error inside a stream, or a successful answer
// without the requested output.
func Classify(a Answer) Verdict {
	if a.Now.IsZero() {
		a.Now = time.Now()
	}
	v, u, at := judge(&a)
	addDetails(&v, a, u, at)
	return v
}

// judge returns the verdict without what is for the client, the texts of the answer, and the index of the text that
// decided.
func judge(a *Answer) (v Verdict, u unwrapped, at int) {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}

	u = unwrap(a.Body, a.Header.Get("Content-Type"))
	e := newEvidence(*a, u)
	rule, at := table().decide(e)

	f := finding{class: Unavailable}
	switch {
	case rule != nil:
		f = rule.finding
	case e.status >= 400 && e.status < 500:
		f.class = OtherClient
	}

	v = newVerdict(f, e.status)
	if rule != nil {
		v.Rule = rule.line
	}

	param := findParam(u, false)
	v.NamesMember = isAboutRequest(e.status) && param != "" && param != "model" // the route's, not the client's
	v.Certain = !v.NamesMember && isCertain(f.class, e)
	v.NotOffered = v.Code == CodeUnsupportedValue && !slices.ContainsFunc(u.hints, isInvalidCode)
	v.ForeignItem = isAboutRequest(e.status) && !v.Failover && v.Class != ContextLength && refusesForeignItem(u)
	return v, u, at
}

// isInvalidCode reports whether a code or type of an error calls the value itself invalid.
func isInvalidCode(hint string) bool {
	switch strings.ToLower(hint) {
	case "invalid_value", "invalid_type", "invalid_enum_value", "literal_error", "enum":
		return true
	}
	return false
}

// newEvidence prepares an answer for the rules.
func newEvidence(a Answer, u unwrapped) evidence {
	e := evidence{status: a.Status, format: a.Format, codes: table().lex.scan(strings.Join(u.hints, "\n"))}
	// Other gateways on the way to the provider wrap a 400 in a 500.
	refused := u.status == http.StatusBadRequest || u.status == http.StatusUnprocessableEntity
	if a.Status < 400 && u.status != 0 || a.Status >= 500 && refused {
		e.status = u.status
	}

	e.has = map[string]func() bool{
		"html":        func() bool { return u.html },
		"nothing":     func() bool { return u.empty },
		"answer":      func() bool { return u.answer },
		"param":       func() bool { return findParam(u, false) != "" },
		"image_param": func() bool { return isImageParam(findParam(u, false)) },
		"own_param": func() bool {
			return slices.ContainsFunc(u.params, func(p string) bool { return plainName(p) == "model" })
		},
		"value": func() bool {
			return slices.ContainsFunc(u.levels, func(l level) bool { return namedWithValue(l.text) != "" })
		},
		"numbers": func() bool {
			return slices.ContainsFunc(u.levels, func(l level) bool { return len(largeNumber.get().FindAllString(matchText(l.text), 2)) == 2 })
		},
		"name": sync.OnceValue(func() bool { return findParam(u, true) != "" }),
	}

	var texts []string
	for _, l := range u.levels {
		texts = append(texts, matchText(l.text))
	}

	e.setTexts(texts)
	if !isAboutRequest(e.status) {
		return e
	}

	own := e
	for i, text := range texts {
		texts[i] = withoutEchoes(text)
	}

	own.setTexts(texts)
	e.ownWords = &own
	return e
}

// setTexts sets the texts that the rules are matched with, innermost first.
func (e *evidence) setTexts(texts []string) {
	e.levels = nil
	for _, text := range texts {
		e.levels = append(e.levels, table().lex.scan(text))
	}
	e.all = table().lex.scan(strings.Join(texts, "\n"))
}

// isCertain reports whether a verdict about the provider or the gateway's account depends on a status or code that no
// request can cause.
func isCertain(c Class, e evidence) bool {
	switch c {
	case GatewayRefused:
		return e.status == http.StatusUnauthorized || e.status == http.StatusPaymentRequired || table().refusesByCode(e)
	case RateLimit:
		return e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable || e.status == statusOverloaded
	case Unavailable:
		switch e.status {
		// the last six: Cloudflare cannot reach the server
		case http.StatusBadGateway, http.StatusServiceUnavailable, 521, 522, 523, 525, 526, 530:
			return true
		}
	case ContentPolicy, ContextLength, InvalidImage, UnsupportedParameter, InvalidValue, NoImage, OtherClient:
	}
	return false
}

// statusOverloaded is the status of an overloaded provider of the messages format.
const statusOverloaded = 529

// matchText returns the part of a text that rules are matched with: without links and names of
// models, whose words are misleading, and of a long text only the beginning and the end.
func matchText(text string) string {
	const head, tail = 6 << 10, 2 << 10
	if len(text) > head+tail {
		text = strings.ToValidUTF8(text[:head], "") + "\n" + strings.ToValidUTF8(text[len(text)-tail:], "")
	}
	text = linkPattern.get().ReplaceAllString(text, " ")
	text = modelNames.get().ReplaceAllString(text, "$1 ")
	text = valueError.get().ReplaceAllString(text, "")
	text = reporter.get().ReplaceAllString(text, "$1")
	return comparison.get().ReplaceAllString(text, "$1 exceeds ")
}

// modelNames matches the name of a model after the word for it. Names have words of features and policies in them:
// "model gpt-4-vision-preview", "model_id: llama-guard-3".
var modelNames = lazily("(?i)\\b((?:model|deployment|engine)(?:[ _](?:id|name))?)(?:\\s*[:=]\\s*|\\s+)[\"'`\\[<]?[\\w.@/]*[a-z][\\w.@/]*-[\\w.@:/-]*[\"'`\\]>]?")

// valueError matches what Pydantic puts before a complaint of any kind. Its word "value" is no evidence of one.
var valueError = lazily(`\b(?:Value error, |ValueError: )`)

// reporter matches the words with which a gateway says whose answer follows: "Upstream error: ", "Provider returned 400: ".
// They blame nobody; only the words after them do.
var reporter = lazily(`(?i)^\W*(?:error from (?:the )?(?:upstream|provider|vendor|backend)|(?:the )?(?:upstream|provider|vendor|backend)(?: \w+)? ` +
	`(?:answered|returned|responded|replied|reported|said|says|error|request failed|rejected the request))[^:\n]{0,40}:\s*(\S+\s+\S+\s)`)

// largeNumber matches a number of three digits and more, as the counts of tokens are.
var largeNumber = lazily(`\d[\d,.]*\d\d`)

// comparison matches the sign between two numbers that an error compares: "tokens (9000) > limit (8192)".
var comparison = lazily(`(\d\)?) > `)

func newVerdict(f finding, status int) Verdict {
	o := outcomes[f.class]
	v := Verdict{
		Class:          f.class,
		Status:         o.status,
		Code:           o.code,
		Failover:       o.failover,
		KeyRejected:    f.keyRejected,
		QuotaExhausted: f.quotaExhausted,
		ModelUnknown:   f.modelUnknown,
	}

	switch f.class {
	case InvalidValue:
		if f.unsupported {
			v.Code = CodeUnsupportedValue
		}
	case OtherClient:
		if status >= 400 && status < 500 {
			v.Status = status
		}
	case RateLimit, Unavailable, NoImage:
		v.Retryable = true
	case GatewayRefused, ContentPolicy, ContextLength, InvalidImage, UnsupportedParameter:
	}

	return v
}

// addDetails adds the pause, the parameter and the message, which are read from the
// answer. at is the index of the text that the rule matched, -1 without one.
func addDetails(v *Verdict, a Answer, u unwrapped, at int) {
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
	case GatewayRefused, ContentPolicy, NoImage, Unavailable:
	}

	if v.Class == UnsupportedParameter || v.Class == InvalidValue || v.Class == OtherClient {
		v.Members = namedMembers(u, v.Param)
	}

	if a.Cleaner.Clean(v.Param) != v.Param {
		v.Param = "" // it identifies the gateway's account
	}
	if o := outcomes[v.Class]; o.showText {
		v.Message = message(v.Class, o.fallback, a.Cleaner.Clean(chooseText(u, at)))
	}
}

// chooseText returns the text for the client: the one that the rule matched if it is a
// sentence, else the innermost sentence.
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

// isProse reports whether a text is a sentence rather than a code or a document. Chinese text has no
// blanks, and codes are never Chinese.
func isProse(text string) bool {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[{") {
		return false // a document without a member that is known
	}
	return strings.Contains(text, " ") || strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// tooLong begins every message of ContextLength, as the public API promises.
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
