package console

import (
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

type searchView struct {
	Query  string
	Groups []found
}

// found are the results of a kind.
type found struct {
	Name  string
	Links []kit.Link
}

// search finds pages and objects. It is a POST, because somebody may paste a secret, which must not be in an address.
func (c *Console) search(r *kit.Request) (*kit.Page, error) {
	query := r.Text("q")
	if to := view.Object(query); to != "" {
		return kit.Go(to, nil)
	}

	v := &searchView{Query: query}
	if pages := c.findPages(r, query); len(pages.Links) > 0 {
		v.Groups = append(v.Groups, pages)
	}

	if query != "" && r.May(kit.Read) {
		answer, err := r.API.Search(r.Context(), &adminclient.SearchParams{Q: query})
		if err != nil {
			return nil, err
		}
		v.Groups = append(v.Groups, group(answer.Value.Data)...)
	}

	return &kit.Page{Template: "search", Title: "Search", Data: v}, nil
}

// commands are what people come to do, with the page on which it is done. Words find them, too.
var commands = []struct{ text, words, page string }{
	{"Suspend or resume an account", "block close", "/console/accounts"},
	{"Book money", "payment refund correction credit pay ledger balance", "/console/accounts"},
	{"Issue, limit or revoke a key", "api key secret rotate spend_limit_exceeded raise", "/console/accounts"},
	{"See a statement", "bill invoice month", "/console/accounts"},
	{"Change a price", "pricing cost multiplier", "/console/models"},
	{"Add a model or a route", "new", "/console/models"},
	{"Add a provider or a credential", "new key rotate", "/console/providers"},
	{"Close or open a model or provider", "maintenance", "/console/maintenance"},
	{"Compare or apply a catalog file", "export import diff", "/console/catalog"},
	{"Issue an admin token", "access scope", "/console/access"},
	{"Rotate the master key or the pepper", "secrets", "/console/secrets"},
}

// findPages returns the pages of the navigation whose name contains the text, and the commands that fit it.
func (c *Console) findPages(r *kit.Request, query string) found {
	f := found{Name: "Pages"}
	for _, section := range navigation(c.sections, r.Session, "") {
		for _, item := range section.Items {
			if strings.Contains(strings.ToLower(item.Text), strings.ToLower(query)) {
				f.Links = append(f.Links, item.Link)
			}
			for _, c := range commands {
				if c.page == item.URL && query != "" && strings.Contains(strings.ToLower(c.text+" "+c.words), strings.ToLower(query)) {
					f.Links = append(f.Links, kit.Link{Text: item.Text + ": " + c.text, URL: c.page})
				}
			}
		}
	}
	return f
}

// types are the kinds of results, in the order in which they are shown, with the first part of the address of their pages.
var types = []struct {
	Type       adminclient.SearchResultType
	Name, Page string
}{
	{adminclient.SearchResultTypeAccount, "Accounts", "accounts"},
	{adminclient.SearchResultTypeKey, "Keys", "keys"},
	{adminclient.SearchResultTypeProject, "Projects", "projects"},
	{adminclient.SearchResultTypeRequest, "Requests", "requests"},
	{adminclient.SearchResultTypeVideoJob, "Video jobs", "video-jobs"},
	{adminclient.SearchResultTypeModel, "Models", "models"},
	{adminclient.SearchResultTypeProvider, "Providers", "providers"},
}

// group returns the results by kind.
func group(results []adminclient.SearchResult) []found {
	var all []found
	for _, t := range types {
		f := found{Name: t.Name}
		for _, result := range results {
			if result.Type != t.Type {
				continue
			}
			text := result.ID
			if result.Name != nil {
				text = *result.Name + " · " + view.ShortID(result.ID)
			}
			if result.ExternalID != nil {
				text += " · " + *result.ExternalID
			}
			f.Links = append(f.Links, kit.Link{Text: text, URL: kit.Path(t.Page, result.ID)})
		}

		if len(f.Links) > 0 {
			all = append(all, f)
		}
	}

	return all
}
