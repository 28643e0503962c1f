package console

import (
	"modelgateway/controlplane/internal/console/kit"
)

// parts is a page that shows the parts of pages in all their states.
func parts(r *kit.Request) (*kit.Page, error) {
	fields := []kit.Field{
		{Name: "name", Label: "Name", Required: true, Value: "Example Ltd", Hint: "A hint."},
		{Name: "amount", Label: "Amount", Mono: true, Unit: "USD", Value: "12,34", Error: "must be a decimal"},
		{Name: "kind", Label: "Kind", Kind: "select", Options: []kit.Option{{Value: "top_up", Text: "Top-up"}, {Value: "correction"}}},
		{Name: "note", Label: "Note", Kind: "area", Now: "another text"},
		{Name: "sure", Label: "A choice", Kind: "check", Value: "yes"},
	}
	return &kit.Page{Template: "parts", Title: "Parts", Data: map[string]any{
		"States": []string{"active", "suspended", "failed", "running", "revoked"},
		"Pages":  kit.Pages{First: "/console/parts", Next: "/console/parts"},
		"Form": &kit.FormView{
			Form:   kit.Form{Fields: fields, Submit: "Save", Back: "/console/parts", Effects: []string{"It does this."}, Confirm: "Example Ltd"},
			Action: r.URL.Path, Problem: "The request is not valid", Typed: "Type Example Ltd to confirm.",
		},
	}}, nil
}
