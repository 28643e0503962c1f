package gwctl

import (
	"slices"
	"strings"
	"unicode"

	"modelgateway/shared/platform/apidoc"
)

// commandName is the name of a command: `gwctl GROUP VERB`.
type commandName struct{ group, verb string }

// betterNames has the names of operations whose ids give a group of their own beside the group of the same objects.
var betterNames = map[string]commandName{
	"getQuarantined":         {"quarantine", "get"},
	"releaseQuarantined":     {"quarantine", "release"},
	"dismissQuarantined":     {"quarantine", "dismiss"},
	"markUsageMonthExported": {"usage-months", "mark-exported"},
	"rotateWebhookSecret":    {"webhooks", "rotate-secret"},
	"redeliverFailed":        {"webhooks", "redeliver-failed"},
	"previewPrices":          {"prices", "preview"},
	"proposePriceList":       {"prices", "propose"},
	"getTrafficSeries":       {"traffic", "series"},
	"getRoutesHealth":        {"routes", "health"},
	"listBillDifferences":    {"bills", "differences"},
	"getBillDifference":      {"bills", "difference"},
	"search":                 {"search", "find"},
}

// names derives the names of all commands from operation ids: createAccount becomes `accounts create`. An id consists of
// a verb and a noun. If the document has the plural of the noun, the plural names the group, so that listKeys and
// revokeKey are in one group.
func names(doc *apidoc.Document) map[string]commandName {
	known := vocabulary(doc)
	found := map[string]commandName{}
	taken := map[commandName]bool{}
	for _, op := range doc.Operations {
		verb, noun, _ := strings.Cut(kebab(op.ID), "-")
		if noun == "" {
			noun = op.Tag
		}
		name := commandName{plural(noun, known), verb}
		if better, found := betterNames[op.ID]; found {
			name = better
		}
		if taken[name] { // for example getKey beside getKeys
			name.group = noun
		}
		taken[name] = true
		found[op.ID] = name
	}

	return found
}

// vocabulary returns all nouns of the document: tags, parts of paths and of ids.
func vocabulary(doc *apidoc.Document) map[string]bool {
	known := map[string]bool{}
	for tag := range doc.Tags {
		known[kebab(tag)] = true
	}
	for _, op := range doc.Operations {
		for _, part := range strings.FieldsFunc(op.Path, func(r rune) bool { return r == '/' || r == ':' }) {
			if !strings.HasPrefix(part, "{") {
				known[kebab(part)] = true
			}
		}
		_, noun, _ := strings.Cut(kebab(op.ID), "-")
		known[noun] = true
	}
	return known
}

func plural(noun string, known map[string]bool) string {
	forms := []string{noun + "s", noun + "es"}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		forms = append(forms, stem+"ies")
	}
	if i := slices.IndexFunc(forms, func(form string) bool { return known[form] }); i >= 0 {
		return forms[i]
	}
	return noun
}

// kebab converts createModelPrice, model_price and X-Model to words with hyphens.
func kebab(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_' || r == '-' || r == '.' || r == ' ':
			b.WriteByte('-')
			continue
		case unicode.IsUpper(r) && i > 0 && unicode.IsLetter(runes[i-1]) &&
			(unicode.IsLower(runes[i-1]) || (i+1 < len(runes) && unicode.IsLower(runes[i+1]))):
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
