package gwctl

import (
	"slices"
	"strings"
	"unicode"

	"modelgateway/shared/apidoc"
)

// commandName is where the command of an operation stands: `gwctl GROUP VERB`.
type commandName struct{ group, verb string }

// names derives the commands of all operations from their ids: createAccount
// is `accounts create`. An id is a verb and what it works on; that is put in the plural
// if the document knows it so, which brings listKeys and revokeKey together.
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
		if taken[name] { // getKey beside getKeys, and the like
			name.group = noun
		}
		taken[name] = true
		found[op.ID] = name
	}
	return found
}

// vocabulary is every noun of the document: tags, parts of paths and of ids.
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

// kebab writes createModelPrice, model_price and X-Model as words with hyphens.
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
