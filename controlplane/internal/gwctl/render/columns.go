package render

import (
	"slices"
	"strings"

	"modelgateway/shared/platform/apidoc"
)

// UnknownColumns returns the names that no entry of a list, or the object, can have. Where the schema leaves members open, every name is
// known.
func UnknownColumns(doc *apidoc.Document, list *apidoc.Schema, names []string) []string {
	item := list
	if data := doc.Member(list, "data"); data != nil {
		item = doc.Resolve(data).Items
	}

	var unknown []string
	for _, name := range names {
		at := item
		for part := range strings.SplitSeq(name, ".") {
			if len(doc.Members(at)) == 0 {
				break
			}
			if at = doc.Member(at, part); at == nil {
				unknown = append(unknown, name)
				break
			}
		}
	}

	return unknown
}

// columnsOf returns the columns for the entries of a list: the preferred ones, or the scalar members of the schema with
// the id first and times last. With all, the other members follow.
func columnsOf(doc *apidoc.Document, item *apidoc.Schema, preferred []string, all bool) []string {
	var first, middle, last, rest []string
	for _, p := range doc.Members(item) {
		switch kind := doc.Kind(p.Schema); {
		case kind == "object" || (kind == "" && doc.Resolve(p.Schema).Name == ""):
			rest = append(rest, p.Name)
		case kind == "array" && doc.Kind(doc.Resolve(p.Schema).Items) == "object":
			rest = append(rest, p.Name)
		case doc.Resolve(p.Schema).Format == "date-time":
			last = append(last, p.Name)
		case p.Name == "id":
			first = append(first, p.Name)
		default:
			middle = append(middle, p.Name)
		}
	}

	plain := slices.Concat(first, middle, last)
	columns := plain
	if len(preferred) > 0 {
		columns = preferred
	}
	if !all {
		return columns
	}

	for _, name := range append(plain, rest...) {
		if !slices.Contains(columns, name) {
			columns = append(slices.Clone(columns), name)
		}
	}

	return columns
}
