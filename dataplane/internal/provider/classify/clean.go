package classify

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMessage is the length limit of a text for the client, in bytes.
const maxMessage = 2 << 10

// removed replaces identifying text.
const removed = "[removed]"

// Cleaner removes text that identifies the gateway's account at a provider: accounts,
// keys, hosts, request ids, upstream model names. The zero value removes everything that
// has a recognisable form.
type Cleaner struct {
	// UpstreamModels are the provider's names of the model. ClientModel replaces them.
	UpstreamModels []string
	// ClientModel is the model name in the client's request; "" means "the model".
	ClientModel string
	// Hidden lists further texts to remove: provider names, account labels, hosts,
	// header values.
	Hidden []string
}

// minSecret is the length of the shortest listed text that is replaced, in bytes. A
// shorter one would occur inside ordinary words.
const minSecret = 3

var linkPattern = lazily(`(?i)\b(?:https?|wss?|s3|gs|ftp)://[^\s"'<>)\]}，。]+|\bwww\.[^\s"'<>)\]}]+`)

// pattern is a form of identifying text. The first group of re, if there is one, stays: it is a label.
type pattern struct {
	what string
	re   *expression
}

// idPattern is a form of text that identifies something if a condition holds for its second group. The first group
// stays.
type idPattern struct {
	what string
	re   *expression
	is   func(id string) bool
}

// ids lists the patterns of ids that words could match, too. They are applied after those of identifying.
var ids = []idPattern{
	{
		"paths of programs",
		lazily(
			`(?i)()(/(?:opt|usr|home|root|app|srv|var|tmp|mnt|workspace)/[^\s"'<>)]+|(?:/[\w.-]+)+\.(?:py|go|rs|js|ts|cpp|cc|cu|so|rb|java|php)\b)`,
		),
		always,
	},
	{
		"ids by their prefix, also short ones and such without digits",
		lazily(
			`()\b(?:org|organization|proj|project|acct|account|acc|user|usr|team|tenant|workspace|wrkspc|req|request|resp|chatcmpl|cmpl|run|trace|gen|batch|msg|sess|session)[-_]([A-Za-z0-9]{6,})\b`,
		),
		isMixed,
	},
	{
		"ids by a label with the word id",
		lazily(
			`(?i)\b((?:ray|key|request|trace|correlation|activity|subscription|organi[sz]ation|org|project|account|team|tenant|workspace|resource|session|deployment|log)[ _-]?(?:id|uuid)\b\s*(?:is\s+|of\s+)?[:=#(]?\s*["'<\x60]?)([A-Za-z0-9_.-]{4,})`,
		),
		hasDigit,
	},
	{
		"ids by a label alone",
		lazily(`(?i)\b((?:ray|reference|ref|subscription|incident)\s*[:=#(]*\s*["'<\x60]?)([0-9a-f]{8,}(?:-[a-z]{3})?)\b`),
		hasDigit,
	},
	{
		"names of machines and deployments",
		lazily(`(?i)\b((?:deployment|resource|pod|node)(?:\s+name)?\s*[:=]?\s*["'<\x60]?)([a-z0-9]+(?:-[a-z0-9]+)+)\b`),
		always,
	},
	{"ids of several parts", lazily(`()\b([A-Za-z0-9]{5,8}-[A-Za-z0-9]{5,8}-[0-9a-f]{16})\b`), always},
	{"hexadecimal ids", lazily(`()\b([0-9a-f]{12,}(?:-[A-Z]{3})?)\b`), isMixed},
	{"random text in base64", lazily(`()([A-Za-z0-9+/]{20,}={0,2})`), isRandom},
}

func always(string) bool { return true }

func hasDigit(id string) bool { return strings.ContainsAny(id, "0123456789") }

// isMixed reports whether a text has digits and letters, or a capital letter inside of it.
func isMixed(id string) bool {
	hasLetter := strings.ContainsFunc(id, unicode.IsLetter)
	return hasDigit(id) && hasLetter || strings.ContainsFunc(id[1:], unicode.IsUpper) && strings.ContainsFunc(id, unicode.IsLower)
}

// isRandom reports whether a text has small and capital letters and several digits.
func isRandom(id string) bool {
	digits := 0
	for _, r := range id {
		if unicode.IsDigit(r) {
			digits++
		}
	}
	return digits > 1 && strings.ContainsFunc(id, unicode.IsLower) && strings.ContainsFunc(id, unicode.IsUpper)
}

// hide replaces the ids in a text.
func (p idPattern) hide(text string) string {
	return p.re.get().ReplaceAllStringFunc(text, func(match string) string {
		groups := p.re.get().FindStringSubmatch(match)
		if groups == nil || !p.is(groups[2]) {
			return match
		}
		return groups[1] + removed
	})
}

// identifying lists the patterns of text that identifies an account or a host. They are
// applied in this order: a URL before the host and the id in it.
var identifying = []pattern{
	{"links, also without a scheme", linkPattern},
	{"inline data, which is long and meaningless", lazily(`(?i)\bdata:[\w/+.-]+;base64,[A-Za-z0-9+/=_-]*`)},
	{"mail addresses", lazily(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`)},
	{"AWS resource names hold the account number", lazily(`(?i)\barn:[\w:/.*-]+`)},
	{"Google resource names hold the project", lazily(`(?i)\bprojects?/[\w.:-]+(?:/[\w.:@-]+)*`)},
	{"Azure resource names hold the subscription", lazily(`(?i)/?subscriptions/[\w-]+(?:/[\w.:@-]+)*`)},
	{"bearer tokens", lazily(`(?i)\bbearer\s+[\w.~+/=*-]{6,}`)},
	{"JSON web tokens", lazily(`\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}`)},
	{
		"keys, whole or masked",
		lazily(
			`(?i)\b(?:sk|pk|rk|ak|gsk|xai|key|nvapi|hf|r8|fw|tgp|pplx|csk|ghp|gho|glpat|api|sess|esecret)[-_][\w-]*[*\w.-]*[\w*]{4,}|\b(?:AKIA|ASIA|AIza)[\w-]{8,}|<ak-[^>]*>`,
		),
	},
	{"masked texts", lazily(`[\w-]*\*{3,}[\w*-]*|\b[\w-]{4,}…[\w-]{2,}|\b[\w-]{4,}\.\.\.[\w-]{3,}\b`)},
	{
		"ids by their prefix",
		lazily(
			`(?i)\b(?:org|organization|proj|project|acct|account|acc|user|usr|team|tenant|workspace|wrkspc|ws|ep|dep|deployment|req|request|resp|chatcmpl|cmpl|run|trace|gen|sub|cus|file|batch|job|task|msg|key|sess|session)[-_](?:[a-z]+[-_])?[a-z0-9]*\d[a-z0-9_-]{3,}\b`,
		),
	},
	{
		"ids by their label",
		lazily(
			`(?i)\b((?:organi[sz]ation|org|project|account|team|tenant|workspace|user|subscription|request|trace|correlation|activity|api[ _-]?key|key|resource|client|session|endpoint|log|deployment)[ _-]?(?:id|number|uuid)s?\b\s*(?:is\s+|of\s+)?[:=#(]?\s*["'<\x60]?)[A-Za-z0-9_.-]*\d[A-Za-z0-9_.-]{4,}`,
		),
	},
	{
		"accounts without the word id",
		lazily(
			`(?i)\b((?:organi[sz]ation|org|project|account|team|tenant|workspace)\s*[:=#\[(]?\s*["'<\x60]?)[A-Za-z0-9_.-]*\d[A-Za-z0-9_.-]{4,}`,
		),
	},
	{"routing notes of another gateway", routingNotes},
	{"request ids in prose", lazily(`(?i)\b((?:request|trace|correlation|log)[ _-]?id\s*[:=]\s*["'(]?)[\w-]{6,}`)},
	{"UUIDs", lazily(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)},
	{"long random strings", lazily(`\b[A-Za-z_-]*\d[A-Za-z0-9_-]{27,}\b|\b[0-9a-f]{24,}\b`)},
	{"IPv4 addresses with a port", lazily(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b`)},
	{"IPv6 addresses", lazily(`(?i)\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b|\b(?:[0-9a-f]{1,4}:){2,}:[0-9a-f:]*`)},
	{
		"host names",
		lazily(
			`(?i)\b(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:com|net|org|io|ai|dev|cloud|cn|co|app|internal|local|svc|xyz|azure|us|eu|uk|de|fr|jp|sh|so|run|tech|chat)\b(?::\d{1,5})?(?:/[^\s"'<>)]*)?`,
		),
	},
	{"account numbers of clouds", lazily(`\b\d{12}\b`)},
}

// Clean returns text without identifying parts, markup and control characters, cut to
// 2 KiB. Cleaning the result again does not restore any removed part.
func (c Cleaner) Clean(text string) string {
	if len(text) > 4*maxMessage {
		text = text[:4*maxMessage]
	}

	text = strings.ToValidUTF8(text, "")
	if looksLikeHTML(strings.TrimSpace(text)) {
		text = stripHTML(text)
	}

	text = htmlTag.get().ReplaceAllStringFunc(text, keepComparison)
	text = strings.Map(printable, text)
	for _, name := range c.UpstreamModels {
		text = c.hideModel(text, name)
	}

	for _, secret := range c.Hidden {
		text = replaceFold(text, secret, removed)
	}

	for _, p := range identifying {
		if p.re.get().NumSubexp() > 0 {
			text = p.re.get().ReplaceAllString(text, "${1}"+removed)
			continue
		}
		text = p.re.get().ReplaceAllString(text, removed)
	}

	for _, p := range ids {
		text = p.hide(text)
	}

	return shorten(strings.TrimSpace(blanks.get().ReplaceAllString(text, " ")))
}

// snapshotDate matches the end of the name of a model snapshot.
var snapshotDate = lazily(`(?:[-@]\d{4}-?\d{2}-?\d{2}|-\d{3,4}|-latest|:[\w-]+)$`)

// hideModel replaces the name of a model, with or without a vendor before it and a date
// after it.
func (c Cleaner) hideModel(text, name string) string {
	family := snapshotDate.get().ReplaceAllString(name[strings.LastIndexByte(name, '/')+1:], "")
	if len(family) < minSecret || !strings.ContainsAny(family, "-_.0123456789") || strings.EqualFold(family, c.ClientModel) {
		return replaceFold(text, name, c.modelName()) // a plain word
	}
	forms, err := regexp.Compile(
		`(?i)(?:\b[\w.-]+/)*(?:\b` + regexp.QuoteMeta(family) + `(?:[-@:][\w.]*\d[\w.-]*|-latest|:\w+)?\b|` + regexp.QuoteMeta(name) + `)`,
	)
	if err != nil {
		return replaceFold(text, name, c.modelName())
	}
	return forms.ReplaceAllLiteralString(text, c.modelName()) // in one pass, because the client's name may contain the provider's
}

func (c Cleaner) modelName() string {
	if c.ClientModel == "" {
		return "the model"
	}
	return c.ClientModel
}

// markup matches a tag, but not the comparisons in "a < b and c > d".
var markup = lazily(`^</?[A-Za-z!][^<>]*>$`)

func keepComparison(tag string) string {
	if markup.get().MatchString(tag) {
		return " "
	}
	return tag
}

func printable(r rune) rune {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return ' '
	case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		return -1
	default:
		return r
	}
}

// replaceFold replaces every occurrence of old, ignoring case.
func replaceFold(text, old, with string) string {
	if len(old) < minSecret || strings.EqualFold(old, with) {
		return text
	}
	re, err := regexp.Compile(`(?i)` + regexp.QuoteMeta(old))
	if err != nil {
		return text
	}
	return re.ReplaceAllLiteralString(text, with)
}

func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
