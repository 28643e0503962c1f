package console

import (
	"strings"

	"modelgateway/controlplane/internal/signin"
)

// The scopes of the admin API that decide which pages and controls a person sees.
const (
	read     = "read"
	observe  = "observe"
	operator = "operator"
)

// routes are all pages and actions that need a session.
func (c *Console) routes() []route {
	return []route{
		{"GET /console/{$}", read, false, overview},
		{"GET /console/requests", read, false, listRequests},
		{"GET /console/requests/{id}", read, false, showRequest},
		{"GET /console/accounts", read, false, listAccounts},
		{"GET /console/accounts/{id}", read, false, showAccount},
	}
}

// navigation returns the sections and pages that the person may see.
func navigation(s *signin.Session, path string) []group {
	all := []group{
		{"Now", []item{{link{"Overview", "/console/"}, read, false}, {link{"Requests", "/console/requests"}, read, false}}},
		{"Customers", []item{{link{"Accounts", "/console/accounts"}, read, false}}},
	}
	var shown []group
	for _, g := range all {
		visible := group{Name: g.Name}
		for _, i := range g.Items {
			if !s.May(i.Scope) {
				continue
			}
			i.Current = path == i.URL || i.URL != "/console/" && strings.HasPrefix(path, i.URL+"/")
			visible.Items = append(visible.Items, i)
		}
		if len(visible.Items) > 0 {
			shown = append(shown, visible)
		}
	}
	return shown
}
