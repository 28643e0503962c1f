package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"modelgateway/shared/platform/apidoc"
)

// defaultColumns has the columns of the schemas whose order of members is not suitable for a table. A dotted name is a
// member of a member.
var defaultColumns = map[string][]string{
	"Account": {
		"id", "name", "external_id", "status", "balance.balance", "balance.available", "balance.currency", "max_concurrent_requests",
		"max_open_video_jobs", "created_at",
	},
	"Key": {
		"id", "name", "external_id", "status", "project_id", "hint", "spend_limit", "spent", "reserved", "expires_at", "last_used_at",
		"created_at",
	},
	"Transaction": {"id", "kind", "amount", "reference", "reason", "actor", "created_at"},
	"UsageRecord": {
		"request_id", "account_id", "model", "status", "cost", "estimated", "provider", "failed_calls", "started_at", "finished_at",
	},
	"Proxy": {
		"session",
		"name",
		"build",
		"state",
		"draining",
		"applied_revision",
		"catalog_revision",
		"running",
		"spool_used",
		"spool_capacity",
		"renewed_at",
	},
	"AuditEntry":    {"id", "at", "actor", "action", "object", "request_id"},
	"Token":         {"id", "name", "scopes", "expires_at", "last_used_at", "revoked_at", "created_at"},
	"CatalogChange": {"action", "kind", "id"},
	"UsageTotal": {
		"day", "account_id", "project_id", "key_id", "model", "service_tier", "requests", "input", "cached_input", "output", "images",
		"seconds", "cost",
	},
	"MarginLine": {"by", "label", "name", "requests", "charged", "provider_cost", "loss", "unknown_calls", "margin", "margin_percent"},
	"SpendLimit": {
		"id", "name", "project_id", "key_id", "window.period", "amount",
		"current.spent", "current.reserved", "current.left", "current.ends_at",
		"raised_until", "removed_at",
	},
	"VideoJob": {"id", "account_id", "model", "provider", "status", "state", "error", "created_at", "ended_at"},
	"PriceVersion": {
		"version",
		"status",
		"effective_from",
		"price.input",
		"price.cached_input",
		"price.cache_write_5m",
		"price.cache_write_1h",
		"price.output",
		"price.images",
		"price.seconds",
		"created_at",
	},
	"ReceiptLine": {"line", "quantity", "unit_price", "per", "amount"},
}

// maxColumns bounds a table whose schema has no default columns.
const maxColumns = 9

// rows writes a list as a table.
func (w *Writer) rows(out *bytes.Buffer, item *apidoc.Schema, list []any) {
	if len(list) == 0 {
		fmt.Fprintln(out, "none")
		return
	}

	columns := w.columns(item, list)
	if len(columns) == 0 { // a list of strings
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

// columns returns the columns that the user chose, or those of the schema, or those of the first row. A column without
// any value is left out.
func (w *Writer) columns(item *apidoc.Schema, list []any) []string {
	if !slices.ContainsFunc(list, isObject) {
		return nil
	}
	if len(w.Columns) > 0 {
		return w.Columns
	}

	columns := columnsOf(w.Doc, item, defaultColumns[w.Doc.Resolve(item).Name], w.Format == Wide)
	if len(columns) == 0 {
		columns = w.names(nil, list[0].(map[string]any))
	}

	filled := slices.DeleteFunc(slices.Clone(columns), func(column string) bool {
		return !slices.ContainsFunc(list, func(v any) bool { return lookup(v, column) != nil })
	})
	if len(filled) == 0 {
		return columns
	}
	if w.Format != Wide && defaultColumns[w.Doc.Resolve(item).Name] == nil && len(filled) > maxColumns {
		filled = filled[:maxColumns]
	}

	return filled
}

// lookup returns a member by its dotted name, nil if there is none.
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

// align writes rows in columns.
func align(out *bytes.Buffer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a bytes.Buffer takes everything
}
