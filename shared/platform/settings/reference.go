package settings

import (
	"fmt"
	"reflect"
	"strings"
)

// Reference returns a Markdown table of all settings of defaults, which is a
// struct: key, environment variable, default, meaning and when to touch it. A secret has two keys.
func Reference(defaults any) string {
	var b strings.Builder
	b.WriteString("| setting | environment variable | default | meaning | touch it when |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range list(reflect.ValueOf(defaults)) {
		text := s.defaultText()
		usage, further, required := strings.Cut(s.usage, " Required.")
		switch {
		case required:
			text = "**required**"
		case text != "":
			text = "`" + text + "`"
		}
		keys := "`" + s.key + "`"
		if s.isSecret() {
			keys += ", `" + s.key + fileSuffix + "`"
		}
		meaning := strings.ReplaceAll(usage+further, "|", `\|`)
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", keys, variable(s.key), text, meaning, s.when)
	}
	return b.String()
}

// ReplaceSection returns document with the text between the lines
// "<!-- begin name -->" and "<!-- end name -->" replaced by section.
func ReplaceSection(document, name, section string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, hasBegin := strings.Cut(document, begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("settings: the document has no section %q", name)
	}
	return before + begin + section + end + after, nil
}

// WithoutReason returns the keys that are neither required nor say when to touch them.
func WithoutReason(defaults any) (keys []string) {
	for _, s := range list(reflect.ValueOf(defaults)) {
		if _, _, required := strings.Cut(s.usage, " Required."); required == (s.when != "") {
			keys = append(keys, s.key)
		}
	}
	return keys
}
