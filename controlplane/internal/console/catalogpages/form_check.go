package catalogpages

import (
	"fmt"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// checkResults are the results of a call that checks a provider, with what they mean.
var checkResults = map[adminclient.CheckedCallResult]struct {
	kind, word, text string
}{
	adminclient.CheckedCallResultWorks:          {"good", "works", "It answered in the format."},
	adminclient.CheckedCallResultRefusedRequest: {"warn", "refused request", "It understood the call and refuses a part of it."},
	adminclient.CheckedCallResultRefusedSecret:  {"bad", "refused secret", "It refuses the credential."},
	adminclient.CheckedCallResultNotFound:       {"bad", "not found", "It has nothing at the address, or does not know the model."},
	adminclient.CheckedCallResultOtherFormat:    {"bad", "other format", "The answer is none of the format, such as a web page."},
	adminclient.CheckedCallResultBusy:           {"warn", "busy", "It limits the rate, or is overloaded."},
	adminclient.CheckedCallResultFailed:         {"bad", "failed", "It reports a failure of its own."},
	adminclient.CheckedCallResultNoAnswer:       {"bad", "no answer", "A wrong host, certificate or forward proxy, or the network."},
}

type checkedRow struct {
	*adminclient.CheckedCall
	State   view.Badge
	Meaning string
	// Credential is the name of the credential, its id if it has none any more.
	Credential string
}

type checkView struct {
	*adminclient.ProviderCheck
	Rows []checkedRow
}

// checkProvider is the form that calls a provider. The page after it has what came, which is stored nowhere.
func checkProvider(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	p := now.Value
	return &kit.Form{
		Title:   "Check " + p.ID,
		Crumbs:  belowProvider(p.ID),
		Submit:  "Call the provider",
		Back:    kit.Path("providers", p.ID),
		Command: "gwctl providers check " + kit.Quote(p.ID),
		Effects: []string{
			"A proxy calls the provider once in each format, and on each route with an address of its own. It takes up to 25 seconds.",
			"A call asks for one token of text, or for a picture or video without a prompt, which is refused. The provider may charge it.",
			"No customer is charged. The audit log has who checked.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			params := &adminclient.CheckProviderParams{IdempotencyKey: in.Key()}
			checked, err := r.API.CheckProvider(r.Context(), p.ID, params)
			if err != nil {
				return nil, err
			}
			return &kit.Page{
				Template: "check",
				Title:    "Check of " + p.ID,
				Crumbs:   belowProvider(p.ID),
				Command:  "gwctl providers check " + kit.Quote(p.ID),
				Data:     newCheckView(p, checked.Value),
			}, nil
		},
	}, nil
}

func newCheckView(p *adminclient.CatalogProvider, checked *adminclient.ProviderCheck) *checkView {
	names := map[string]string{}
	for _, c := range p.Credentials {
		names[name(c.ID)] = c.Name
	}

	v := &checkView{ProviderCheck: checked}
	for i := range checked.Calls {
		c := &checked.Calls[i]
		result := checkResults[c.Result]
		row := checkedRow{c, view.Badge{Kind: result.kind, Word: result.word}, result.text, names[c.CredentialID]}
		if row.Credential == "" {
			row.Credential = c.CredentialID
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// Summary tells in one sentence what came.
func (v *checkView) Summary() string {
	works := 0
	for i := range v.Rows {
		if v.Rows[i].Result == adminclient.CheckedCallResultWorks {
			works++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s", works, number(int64(len(v.Rows)), "call"))
	if works == 1 {
		b.WriteString(" works.")
	} else {
		b.WriteString(" work.")
	}
	return b.String()
}
