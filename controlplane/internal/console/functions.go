package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"reflect"
	"strings"
	"time"

	"modelgateway/controlplane/internal/console/view"
)

// functions are those of the templates.
func functions(prefix string) template.FuncMap {
	return template.FuncMap{
		"static": func(name string) string { return prefix + name },
		"ago":    func(at time.Time) string { return view.Ago(at, time.Now()) },
		"utc":    view.UTC,
		"rfc":    func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
		"state":  func(s any) view.Badge { return view.State(text(s)) },
		"status": func(code *int) view.Badge {
			if code == nil {
				return view.Badge{Kind: "idle", Word: "none"}
			}
			return view.HTTPStatus(*code)
		},
		"ms":     view.Milliseconds,
		"hours":  view.Hours,
		"count":  view.Count,
		"short":  view.ShortID,
		"amount": func(m any) view.Amount { return view.Money(text(m)) },
		"deref":  deref,
		"print":  pointed,

		"segments": view.Segments,

		"diff":    view.Diff,
		"json":    view.JSON,
		"add":     view.Add,
		"sub":     view.Sub,
		"share":   view.Share,
		"scopes":  func(scopes any) string { return strings.Trim(text(scopes), "[]") },
		"plus":    func(a, b int) int { return a + b },
		"minus":   func(a, b int) int { return a - b },
		"at":      func(texts []string, i int) string { return texts[i] },
		"between": func(from, to time.Time) int64 { return to.Sub(from).Milliseconds() },
		"words":   func(name string) string { return strings.ReplaceAll(name, "_", " ") },
		"signed":  func(method any) string { return view.Method(text(method)) },
		"book":    func(name any) string { return view.Book(text(name)) },
		"past":    func(at time.Time) bool { return at.Before(time.Now()) },
		"rule":    view.Rule,
		"doubt":   view.Doubt,
		"skipped": view.Skipped,
		"reason":  view.Reason,
		"refused": func(code, reason *string) string { return view.Refused(deref(code), deref(reason)) },
		"failure": view.Failure,

		"prose":   view.Prose,
		"browser": view.Browser,
		"yes":     func(b *bool) bool { return b != nil && *b },
		"object":  view.Object,
		"above":   func(a, b string) bool { return view.Compare(a, b) > 0 },
		"failed":  func(code *int) bool { return code != nil && *code >= 400 },
		"path":    url.PathEscape,
		"query":   url.QueryEscape,
		"dict":    dict,
		"list":    func(values ...any) []any { return values },
	}
}

// text returns the text of a value whose type is a kind of string.
func text(v any) string { return template.HTMLEscaper(v) }

// deref returns the text that a pointer points to; "" for nil.
func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// pointed is fmt.Sprint of the values that pointers point to, because values of the API that are optional are pointers.
func pointed(values ...any) string {
	for i, v := range values {
		if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && !p.IsNil() {
			values[i] = p.Elem().Interface()
		}
	}
	return fmt.Sprint(values...)
}

// dict makes a map of names and values, for the data of a part.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errors.New("dict needs names with values")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errors.New("dict needs names that are texts")
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
