package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"modelgateway/shared/apidoc"
)

// chosen are the columns of schemas whose order in the document does not make
// a good table. A dotted name is a member of a member.
var chosen = map[string][]string{
	"Account":     {"id", "name", "external_id", "status", "balance.balance", "balance.available", "balance.currency", "max_concurrent_requests", "created_at"},
	"Key":         {"id", "name", "external_id", "status", "hint", "spend_limit", "spent", "reserved", "created_at"},
	"Transaction": {"id", "kind", "amount", "reference", "reason", "actor", "created_at"},
	"UsageRecord": {"request_id", "account_id", "model", "status", "cost", "estimated", "provider", "started_at", "finished_at"},
	"Dataplane": {
		"session", "name", "build", "state", "draining", "applied_revision", "catalog_revision", "running", "spool_used", "spool_capacity", "renewed_at",
	},
	"AuditEntry":    {"id", "at", "actor", "action", "object", "request_id"},
	"Token":         {"id", "name", "scopes", "expires_at", "last_used_at", "revoked_at", "created_at"},
	"CatalogChange": {"action", "kind", "id"},
	"UsageTotal":    {"day", "account_id", "key_id", "model", "requests", "input", "cached_input", "output", "images", "seconds", "cost"},
	"VideoJob":      {"id", "account_id", "model", "provider", "status", "state", "error", "created_at", "ended_at"},
	"ReceiptLine":   {"line", "quantity", "unit_price", "per", "amount"},
}

// mostColumns bounds a table whose schema has no chosen columns.
const mostColumns = 9

// rows shows a list.
func (w *Writer) rows(out *bytes.Buffer, item *apidoc.Schema, list []any) {
	if len(list) == 0 {
		fmt.Fprintln(out, "none")
		return
	}
	columns := w.columns(item, list)
	if len(columns) == 0 { // a list of texts
		for _, v := range list {
			fmt.Fprintln(out, plain(v))
		}
		return
	}
	table := [][]string{make([]string, len(columns))}
	for i, column := range columns {
		table[0][i] = strings.ToUpper(column)
	}
	for _, v := range list {
		row := make([]string, len(columns))
		for i, column := range columns {
			row[i] = plain(lookup(v, column))
		}
		table = append(table, row)
	}
	align(out, table)
}

// columns are those asked for, or those of the schema, or those that the rows
// have. A column in which no row has anything is left out.
func (w *Writer) columns(item *apidoc.Schema, list []any) []string {
	if !slices.ContainsFunc(list, isObject) {
		return nil
	}
	if len(w.Columns) > 0 {
		return w.Columns
	}
	columns := columnsOf(w.Doc, item, chosen[w.Doc.Resolve(item).Name], w.Format == Wide)
	if len(columns) == 0 {
		columns = w.names(nil, list[0].(map[string]any))
	}
	filled := slices.DeleteFunc(slices.Clone(columns), func(column string) bool {
		return !slices.ContainsFunc(list, func(v any) bool { return lookup(v, column) != nil })
	})
	if len(filled) == 0 {
		return columns
	}
	if w.Format != Wide && chosen[w.Doc.Resolve(item).Name] == nil && len(filled) > mostColumns {
		filled = filled[:mostColumns]
	}
	return filled
}

// lookup finds a member by its dotted name.
func lookup(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// align writes rows in columns, without spaces at their ends.
func align(out *bytes.Buffer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}
