package catalogpages

import (
	"fmt"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/shared/catalogkv"
)

// editProvider is the form that changes a provider, without its credentials.
func editProvider(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	p := now.Value
	back := kit.Path("providers", p.ID)
	object, err := objectOf(p)
	if err != nil {
		return nil, err
	}

	fields := fieldsOf(providerMembers, "", object)
	for i := range p.Credentials {
		c := &p.Credentials[i]
		for _, m := range membersOf(secretMembers, kindOf(c)) {
			m.kinds, m.group = nil, "Secrets of "+c.Name
			fields = append(fields, m.field(credentialAt(i), nil))
		}
	}

	return &kit.Form{
		Title:   "Change " + p.ID,
		Crumbs:  belowProvider(p.ID),
		Submit:  "Save",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Fields:  fields,
		Command: "gwctl providers update " + kit.Quote(p.ID),
		Effects: []string{
			"Requests that begin afterwards use the new values. Running requests keep the old ones.",
			"A stored secret is never sent to another server than the one it was entered for: with a base URL of another server, other " +
				"trusted issuers, or another forward proxy without TLS, enter the secrets of every credential again. Empty keeps them.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			change, err := changeMembers(providerMembers, in, object, nil)
			if err != nil {
				return nil, err
			}
			if err := change.secrets(in, p.Credentials); err != nil {
				return nil, err
			}
			body, err := change.body()
			if err != nil {
				return nil, err
			}

			params := &adminclient.UpdateProviderParams{Wait: kit.Wait(), IfMatch: in.Match()}
			done, err := r.API.UpdateProvider(r.Context(), p.ID, params, adminclient.CatalogProviderPatch{}, body)
			if err != nil {
				return nil, err
			}

			return kit.Go(back, kit.Applied("The provider was saved.", done.Header))
		},
	}, nil
}

// credentialAt is the path of a credential in the body of its provider, with a dot.
func credentialAt(i int) string { return fmt.Sprintf("credentials[%d].", i) }

// secrets sets the credentials if a secret was entered for one of them. Those without one keep theirs.
func (p patch) secrets(in *kit.Input, credentials []adminclient.CatalogCredential) error {
	entered := false
	after := make([]map[string]any, len(credentials))
	for i := range credentials {
		c := &credentials[i]
		read, err := readMembers(membersOf(secretMembers, kindOf(c)), in, credentialAt(i))
		if err != nil {
			return err
		}
		entered = entered || len(read) > 0
		read["name"], read[kindMember], read["enabled"] = c.Name, kindOf(c), isSet(c.Enabled)
		after[i] = read
	}
	if entered {
		p["credentials"] = after
	}
	return nil
}

// addCredential is the form that adds a credential to a provider.
func addCredential(r *kit.Request) (*kit.Form, error) {
	id := r.PathValue("id")
	if _, err := r.API.GetProvider(r.Context(), id); err != nil {
		return nil, err
	}

	back := kit.Path("providers", id)
	return &kit.Form{
		Title:   "Add a credential of " + id,
		Crumbs:  belowProvider(id),
		Submit:  "Add credential",
		Back:    back,
		Command: "gwctl credentials put " + kit.Quote(id) + " NAME",
		Fields: append(
			[]kit.Field{{Name: "name", Label: "Name", Required: true, Hint: "Such as main: it helps to recognize the credential."}},
			credentialFields("", catalogkv.SecretCredential)...,
		),
		Effects: []string{"The load is spread over all enabled credentials of the provider."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			credential := in.Text("name")
			if credential == "" {
				return nil, kit.Invalid("name", "must be set")
			}
			read, err := readCredential(in, "")
			if err != nil {
				return nil, err
			}
			read["name"] = credential
			body, err := patch(read).body()
			if err != nil {
				return nil, err
			}
			done, err := r.API.PutCredential(
				r.Context(),
				id,
				credential,
				&adminclient.PutCredentialParams{Wait: kit.Wait(), IfNoneMatch: new(onlyNew)},
				adminclient.CatalogCredential{},
				body,
			)
			if err != nil {
				return nil, inUse("name", err)
			}
			return kit.Go(back, kit.Applied("The credential was added.", done.Header))
		},
	}, nil
}

// replaceCredential is the form that sets another secret.
func replaceCredential(r *kit.Request) (*kit.Form, error) {
	id, credential := r.PathValue("id"), r.PathValue("credential")
	now, err := r.API.GetCredential(r.Context(), id, credential)
	if err != nil {
		return nil, err
	}

	back := kit.Path("providers", id)
	return &kit.Form{
		Title:   "Replace the secret of " + credential,
		Crumbs:  belowProvider(id),
		Submit:  "Replace secret",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Command: "gwctl credentials update " + kit.Quote(id) + " " + kit.Quote(credential),
		Fields:  credentialFields("", kindOf(now.Value)),
		Effects: []string{
			"Requests that begin afterwards use the new secret. If the provider refused the old one, the credential is tried again.",
			"What is entered here takes the place of all that is stored: also of secret headers and of the client certificate.",
			"Revoke the old secret at the provider when all proxies have applied the change and running requests have ended.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			read, err := readCredential(in, "")
			if err != nil {
				return nil, err
			}
			if len(read) == 1 { // only the kind
				return nil, kit.Invalid("secret", "must be set")
			}
			body, err := patch(read).body()
			if err != nil {
				return nil, err
			}
			params := &adminclient.UpdateCredentialParams{Wait: kit.Wait(), IfMatch: in.Match()}
			done, err := r.API.UpdateCredential(r.Context(), id, credential, params, adminclient.CatalogCredentialPatch{}, body)
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Applied("The secret was replaced.", done.Header))
		},
	}, nil
}

// enableCredential is the form that disables a credential, or enables one that is disabled.
func enableCredential(r *kit.Request) (*kit.Form, error) {
	id, credential := r.PathValue("id"), r.PathValue("credential")
	now, err := r.API.GetCredential(r.Context(), id, credential)
	if err != nil {
		return nil, err
	}

	all, err := r.API.GetProvider(r.Context(), id)
	if err != nil {
		return nil, err
	}

	others := 0
	for _, c := range all.Value.Credentials {
		if c.Name != credential && isSet(c.Enabled) {
			others++
		}
	}

	on := isSet(now.Value.Enabled)
	back := kit.Path("providers", id)
	form := &kit.Form{
		Title:   "Enable " + credential,
		Crumbs:  belowProvider(id),
		Submit:  "Enable credential",
		Back:    back,
		Match:   now.Header.Get("ETag"),
		Command: "gwctl credentials update " + kit.Quote(id) + " " + kit.Quote(credential) + " --enabled=true",
		Effects: []string{"Requests that begin afterwards may use it."},
	}

	done := "The credential was enabled."
	if on {
		form.Title, form.Submit, form.Danger, done = "Disable "+credential, "Disable credential", true, "The credential was disabled."
		form.Command = "gwctl credentials update " + kit.Quote(id) + " " + kit.Quote(credential) + " --enabled=false"
		form.Effects = []string{"Requests that begin afterwards do not use it. The stored secret is kept."}
		if others == 0 {
			form.Confirm = credential
			form.Effects = append(form.Effects, "It is the last enabled credential: "+id+" can then serve no request.")
		}
	}

	form.Do = func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
		params := &adminclient.UpdateCredentialParams{Wait: kit.Wait(), IfMatch: in.Match()}
		answer, err := r.API.UpdateCredential(r.Context(), id, credential, params, adminclient.CatalogCredentialPatch{Enabled: new(!on)})
		if err != nil {
			return nil, err
		}
		return kit.Go(back, kit.Applied(done, answer.Header))
	}
	return form, nil
}
