package console

import (
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// maxFound bounds the results of each kind.
const maxFound = 8

type searchView struct {
	Query  string
	Groups []found
}

// found are the results of a kind.
type found struct {
	Name  string
	Links []kit.Link
}

// search finds pages, accounts, models and requests. It is a POST, because somebody may paste a secret, which must not be in
// an address.
func (c *Console) search(r *kit.Request) (*kit.Page, error) {
	query := r.Text("q")
	if to := view.Object(query); to != "" {
		return kit.Go(to, nil)
	}
	v := &searchView{Query: query}
	for _, part := range []func(*kit.Request, string) (found, error){c.findPages, findAccounts, findModels, findRequests} {
		links, err := part(r, query)
		if err != nil {
			return nil, err
		}
		if len(links.Links) > 0 {
			v.Groups = append(v.Groups, links)
		}
	}
	return &kit.Page{Template: "search", Title: "Search", Data: v}, nil
}

func (c *Console) findPages(r *kit.Request, query string) (found, error) {
	f := found{Name: "Pages"}
	for _, section := range navigation(c.sections, r.Session, "") {
		for _, item := range section.Items {
			if strings.Contains(strings.ToLower(item.Text+" "+section.Name), strings.ToLower(query)) {
				f.Links = append(f.Links, item.Link)
			}
		}
	}
	return f, nil
}

func findAccounts(r *kit.Request, query string) (found, error) {
	f := found{Name: "Accounts"}
	if query == "" || !r.May(kit.Read) {
		return f, nil
	}
	answer, err := r.API.ListAccounts(r.Context(), &adminclient.ListAccountsParams{Query: &query, Limit: new(maxFound)})
	if err != nil {
		return f, err
	}
	for _, a := range answer.Value.Data {
		text := a.Name
		if a.ExternalID != nil {
			text += " · " + *a.ExternalID
		}
		f.Links = append(f.Links, kit.Link{Text: text, URL: kit.Path("accounts", a.ID)})
	}
	return f, nil
}

func findModels(r *kit.Request, query string) (found, error) {
	f := found{Name: "Models"}
	if query == "" || !r.May(kit.Read) {
		return f, nil
	}
	answer, err := r.API.ListModels(r.Context(), &adminclient.ListModelsParams{Limit: new(500)})
	if err != nil {
		return f, err
	}
	for _, m := range answer.Value.Data {
		if strings.Contains(strings.ToLower(m.ID), strings.ToLower(query)) && len(f.Links) < maxFound {
			f.Links = append(f.Links, kit.Link{Text: m.ID, URL: kit.Path("models", m.ID)})
		}
	}
	return f, nil
}

func findRequests(r *kit.Request, query string) (found, error) {
	f := found{Name: "Requests"}
	if !strings.HasPrefix(query, "req_") || !r.May(kit.Read) {
		return f, nil
	}
	answer, err := r.API.ListUsage(r.Context(), &adminclient.ListUsageParams{RequestIDPrefix: &query, Limit: new(maxFound)})
	if adminclient.Code(err) == "invalid_input" {
		return f, nil // the rest is not that of an id
	} else if err != nil {
		return f, err
	}
	for _, u := range answer.Value.Data {
		f.Links = append(f.Links, kit.Link{Text: u.RequestID, URL: kit.Path("requests", u.RequestID)})
	}
	return f, nil
}
