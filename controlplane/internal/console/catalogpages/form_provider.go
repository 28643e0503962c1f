package catalogpages

import (
	"fmt"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// timeouts are the time limits of a provider.
var timeouts = []struct{ name, label string }{
	{"connect_timeout", "Time to connect"},
	{"first_byte_timeout", "Time to the first byte"},
	{"idle_timeout", "Time between bytes"},
	{"total_timeout", "Time in all"},
}

// editProvider is the form that changes a provider, without its credentials.
func editProvider(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetProvider(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	p := now.Value
	back := kit.Path("providers", p.ID)
	addresses, err := addressField("addresses", p.Addresses)
	if err != nil {
		return nil, err
	}

	fields := []kit.Field{
		{Name: "name", Label: "Name", Value: name(p.Name)},
		{Name: "base_url", Label: "Base URL", Mono: true, Required: true, Value: p.BaseURL},
		addresses,
	}

	for i, c := range p.Credentials {
		fields = append(fields, kit.Field{
			Name:  secretOf(i),
			Label: "Secret of " + c.Name,
			Kind:  "password",
			Hint:  "Needed only if the base URL changes to another server. Empty keeps the stored one.",
		})
	}

	fields = append(fields, kit.Field{
		Name:  "enabled",
		Label: "Enabled: routes may use it",
		Kind:  "check",
		Value: checked(isSet(p.Enabled)),
	})

	fields = append(fields, kit.Field{
		Name:  "proxy",
		Label: "Forward proxy",
		Mono:  true,
		Value: name(p.Proxy),
		Hint:  "Such as http://proxy.example.com:3128. Empty means that of the proxies' environment, if there is one.",
	})

	values := []*string{p.ConnectTimeout, p.FirstByteTimeout, p.IdleTimeout, p.TotalTimeout}
	for i, t := range timeouts {
		fields = append(fields, kit.Field{
			Name:  t.name,
			Label: t.label,
			Mono:  true,
			Value: name(values[i]),
			Hint:  "Such as 30s. Empty means the default.",
		})
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
			"A stored secret is never sent to another server than the one it was entered for: with a base URL of another server, " +
				"enter the secret of every credential again.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			change := patch{"enabled": in.Checked("enabled")}
			change.text(in, "name")
			change.text(in, "base_url")
			change.text(in, "proxy")
			if err := change.addresses(in, p.Addresses); err != nil {
				return nil, err
			}

			for _, t := range timeouts {
				change.text(in, t.name)
			}

			change.secrets(in, p.Credentials)
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

// secretOf is the field of a credential's secret, as the API names it in its problems.
func secretOf(i int) string { return fmt.Sprintf("credentials[%d].secret", i) }

// secrets sets the credentials if a secret was entered for one of them. Those without one keep theirs.
func (p patch) secrets(in *kit.Input, credentials []adminclient.CatalogCredential) {
	entered := false
	after := make([]adminclient.CatalogCredential, len(credentials))
	for i, c := range credentials {
		after[i] = adminclient.CatalogCredential{Name: c.Name, Enabled: c.Enabled, Secret: in.Optional(secretOf(i))}
		entered = entered || after[i].Secret != nil
	}
	if entered {
		p["credentials"] = after
	}
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
		Fields: []kit.Field{
			{Name: "name", Label: "Name", Required: true, Hint: "Such as main: it helps to recognize the credential."},
			{
				Name:     "secret",
				Label:    "Secret",
				Kind:     "password",
				Required: true,
				Hint:     "The key of the provider. It is stored encrypted and never shown again.",
			},
		},
		Effects: []string{"The load is spread over all enabled credentials of the provider."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			credential := in.Text("name")
			if credential == "" {
				return nil, kit.Invalid("name", "must be set")
			}
			body := adminclient.CatalogCredential{Name: credential, Secret: in.Optional("secret")}
			done, err := r.API.PutCredential(
				r.Context(),
				id,
				credential,
				&adminclient.PutCredentialParams{Wait: kit.Wait(), IfNoneMatch: new(onlyNew)},
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
		Fields: []kit.Field{
			{Name: "secret", Label: "New secret", Kind: "password", Required: true, Hint: "It is stored encrypted and never shown again."},
		},
		Effects: []string{
			"Requests that begin afterwards use the new secret. If the provider refused the old one, the credential is tried again.",
			"Revoke the old secret at the provider when all proxies have applied the change and running requests have ended.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			patch := adminclient.CatalogCredentialPatch{Secret: in.Optional("secret")}
			if patch.Secret == nil {
				return nil, kit.Invalid("secret", "must be set")
			}
			params := &adminclient.UpdateCredentialParams{Wait: kit.Wait(), IfMatch: in.Match()}
			done, err := r.API.UpdateCredential(r.Context(), id, credential, params, patch)
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
