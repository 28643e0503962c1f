package console

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// noProject is the filter for what is in no project.
const noProject = "none"

// owners are the filters that take an account, a project or a key.
var owners = []struct {
	field, noun string
	kind        adminclient.SearchResultType
	id          *regexp.Regexp
}{
	{"account_id", "account", adminclient.SearchResultTypeAccount, regexp.MustCompile(`acc_[0-9a-f]{32}`)},
	{"project_id", "project", adminclient.SearchResultTypeProject, regexp.MustCompile(`prj_[0-9a-f]{32}`)},
	{"key_id", "key", adminclient.SearchResultTypeKey, regexp.MustCompile(`key_[0-9a-f]{32}`)},
}

// handle calls the handler of a page, in whose filters accounts and keys may have been given by name or external id. If
// filters are not valid, it returns the page without them and an error that names them.
func (c *Console) handle(at kit.Route, in *kit.Request) (*kit.Page, error) {
	if in.Method != http.MethodGet {
		return at.Handle(in)
	}

	var reasons []string
	page, first := tryFilters(at, in)
	for err := first; err != nil; page, err = tryFilters(at, in) {
		problems := problemsOf(in, err)
		if len(problems) == 0 {
			return nil, first
		}
		for _, e := range problems {
			reasons = append(reasons, "“"+in.Text(e.Field)+"”: "+strings.TrimSuffix(e.Detail, ".")+".")
			in.Form.Del(e.Field)
		}
	}

	if first == nil {
		return page, nil
	}
	if page.Template == "" {
		return nil, first
	}

	page.Status = http.StatusBadRequest
	page.Notice = &kit.Notice{Kind: "bad", Text: strings.Join(reasons, " ") + " The page is shown without this filter."}
	return page, nil
}

func tryFilters(at kit.Route, in *kit.Request) (*kit.Page, error) {
	if err := findOwners(in); err != nil {
		return nil, err
	}
	return at.Handle(in)
}

// problemsOf returns what is wrong with filters of the request; nothing if the error has another cause, too.
func problemsOf(in *kit.Request, err error) []adminclient.FieldError {
	refused, ok := errors.AsType[*adminclient.Error](err)
	if !ok || refused.StatusCode != http.StatusBadRequest {
		return nil
	}
	for _, e := range refused.Problem.Errors {
		if in.Text(e.Field) == "" {
			return nil
		}
	}
	return refused.Problem.Errors
}

// findOwners replaces the names and external ids of accounts and keys in the filters by ids.
func findOwners(in *kit.Request) error {
	for _, owner := range owners {
		text := in.Text(owner.field)
		if text == "" || !in.May(kit.Read) || owner.field == "project_id" && text == noProject {
			continue
		}
		if id := owner.id.FindString(text); id != "" {
			in.Form.Set(owner.field, id)
			continue
		}

		answer, err := in.API.Search(in.Context(), &adminclient.SearchParams{Q: text})
		if err != nil {
			return err
		}
		id, detail := choose(answer.Value.Data, owner.kind, owner.noun, text)
		if detail != "" {
			return kit.Invalid(owner.field, detail)
		}
		in.Form.Set(owner.field, id)
	}
	return nil
}

// choose returns the id of the only object that fits: by its external id, its name, or a part of its name. detail says why
// there is none.
func choose(found []adminclient.SearchResult, kind adminclient.SearchResultType, noun, text string) (id, detail string) {
	var exact, some []adminclient.SearchResult
	for _, f := range found {
		if f.Type != kind {
			continue
		}
		some = append(some, f)
		if f.ExternalID != nil && *f.ExternalID == text {
			return f.ID, ""
		}
		if f.Name != nil && strings.EqualFold(*f.Name, text) {
			exact = append(exact, f)
		}
	}

	if len(exact) > 0 {
		some = exact
	}
	switch len(some) {
	case 0:
		return "", "no " + noun + " has this name, external id or id"
	case 1:
		return some[0].ID, ""
	}

	fit := make([]string, len(some))
	for i := range some {
		fit[i] = label(some[i].Name, some[i].ID)
	}
	return "", "this fits several: " + strings.Join(fit, ", ")
}

// label is how an account or key stands in a filter; its id is found in it again.
func label(name *string, id string) string {
	if name == nil || *name == "" {
		return id
	}
	return *name + " · " + id
}

// ownerLabels returns how the accounts and keys of the filters are shown, by their ids. Those without a label, or all while
// the database does not respond, are shown by their ids.
func ownerLabels(in *kit.Request) map[string]string {
	var ids []string
	if in.Method != http.MethodGet || in.Session.Remembered || !in.May(kit.Read) {
		return nil
	}
	for _, owner := range owners {
		if id := in.Text(owner.field); owner.id.MatchString(id) {
			ids = append(ids, id)
		}
	}

	names, err := kit.Names(in, ids)
	if err != nil {
		return nil
	}

	for id, name := range names {
		names[id] = label(&name, id)
	}
	return names
}
