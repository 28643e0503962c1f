package customerpages

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

func itoa(n int) string { return strconv.Itoa(n) }

// secretView is the one page that shows the secret of a key.
type secretView struct {
	ID, Name, Secret string
	// Issued is set if the key is new.
	Issued bool
}

const limitHint = "Requests are refused with 403 when the key has spent it. Empty means no limit."

// issueKey is the form that issues a key. Its response shows the secret.
func issueKey(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	fields := settingsFields(&adminclient.Key{})
	project, hasProjects, err := projectField(r, a.ID, kit.Optional(r.Text("project_id")))
	if err != nil {
		return nil, err
	}
	if hasProjects {
		fields = slices.Insert(fields, 0, project)
	}

	return &kit.Form{
		Title:   "Issue a key for " + a.Name,
		Crumbs:  keysOf(a),
		Submit:  "Issue key",
		Back:    kit.Path("accounts", a.ID, "keys"),
		Command: "gwctl keys create " + a.ID,
		Fields: append([]kit.Field{
			{Name: "name", Label: "Name", Required: true, Hint: "Such as production: it helps to recognize the key."},
			{Name: "external_id", Label: "External id", Mono: true, Hint: "The key's id in your own systems, unique in the account."},
			{Name: "spend_limit", Label: "Spend limit", Mono: true, Unit: a.Balance.Currency, Hint: limitHint},
		}, fields...),
		Effects: []string{"The next page shows the secret, once. It works at every proxy at once."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body, err := newKey(in)
			if err != nil {
				return nil, err
			}
			made, err := r.API.CreateKey(r.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: in.Key(), Wait: kit.Wait()}, body)
			if err != nil {
				return nil, err
			}

			k := made.Value
			if made.Header.Get("Idempotent-Replayed") != "" {
				return kit.Go(
					kit.Path("keys", k.ID),
					&kit.Notice{Kind: "warn", Text: "The key was issued by this form already. Its secret was shown then."},
				)
			}

			return &kit.Page{
				Template: "key_secret",
				Title:    "Key " + k.Name,
				Crumbs:   keysOf(a),
				Notice:   kit.Applied("The key was issued.", made.Header),
				Data:     &secretView{k.ID, k.Name, k.Secret, true},
			}, nil
		},
	}, nil
}

// newKey reads the fields of issueKey.
func newKey(in *kit.Input) (adminclient.KeyCreate, error) {
	expires, err := kit.Moment("expires_at", in.Text("expires_at"))
	slots, wrong := small(in, "max_concurrent_requests")
	metadata, unread := parseMetadata(in.Text("metadata"))
	return adminclient.KeyCreate{
		Name:                  in.Text("name"),
		ExternalID:            in.Optional("external_id"),
		SpendLimit:            in.Optional("spend_limit"),
		ProjectID:             in.Optional("project_id"),
		Description:           in.Optional("description"),
		Metadata:              metadata,
		ExpiresAt:             expires,
		Paused:                new(in.Checked("paused")),
		MaxConcurrentRequests: slots,
		Models:                strings.Fields(in.Text("models")),
		Networks:              strings.Fields(in.Text("networks")),
	}, errors.Join(err, wrong, unread)
}

// revealKey is the form that shows the secret of a key.
func revealKey(r *kit.Request) (*kit.Form, error) {
	k, a, _, err := keyOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Reveal the secret of " + k.Name,
		Crumbs:  keysOf(a),
		Submit:  "Reveal secret",
		Back:    kit.Path("keys", k.ID),
		Fresh:   true,
		Command: "gwctl keys reveal " + k.ID,
		Effects: []string{"The secret of the key is shown on the next page. That you have seen it is written to the audit log."},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			shown, err := r.API.RevealKey(r.Context(), k.ID)
			if err != nil {
				return nil, err
			}
			return &kit.Page{
				Template: "key_secret",
				Title:    "Key " + k.Name,
				Crumbs:   keysOf(a),
				Data:     &secretView{k.ID, k.Name, shown.Value.Secret, false},
			}, nil
		},
	}, nil
}

func keyOf(r *kit.Request) (k *adminclient.Key, a *adminclient.Account, match string, err error) {
	now, err := r.API.GetKey(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, nil, "", err
	}
	owner, err := r.API.GetAccount(r.Context(), now.Value.AccountID)
	if err != nil {
		return nil, nil, "", err
	}
	return now.Value, owner.Value, now.Header.Get("ETag"), nil
}

// editKey is the form that changes a key, pauses it and resumes it.
func editKey(r *kit.Request) (*kit.Form, error) {
	k, a, match, err := keyOf(r)
	if err != nil {
		return nil, err
	}

	limit := ""
	if k.SpendLimit != nil {
		limit = *k.SpendLimit
	}

	fields := settingsFields(k)
	project, hasProjects, err := projectField(r, a.ID, k.ProjectID)
	if err != nil {
		return nil, err
	}
	if hasProjects {
		fields = slices.Insert(fields, 0, project)
	}

	back := kit.Path("keys", k.ID)
	return &kit.Form{
		Title:   "Change " + k.Name,
		Crumbs:  keysOf(a),
		Submit:  "Save",
		Back:    back,
		Match:   match,
		Command: "gwctl keys update " + k.ID,
		Fields: append([]kit.Field{
			{Name: "name", Label: "Name", Required: true, Value: k.Name},
			{
				Name:  "spend_limit",
				Label: "Spend limit",
				Mono:  true,
				Unit:  a.Balance.Currency,
				Value: limit,
				Hint:  limitHint + " Spent so far: " + k.Spent + " " + a.Balance.Currency + ".",
			},
		}, fields...),
		Effects: []string{"Running requests end as they began: the change concerns requests that begin afterwards."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			patch := adminclient.KeyPatch{Name: in.Optional("name"), SpendLimit: optional.Null[string]()}
			if to := in.Text("spend_limit"); to != "" {
				patch.SpendLimit = optional.Of(to)
			}
			if hasProjects {
				readProject(in, &patch)
			}
			if err := readSettings(in, k, &patch); err != nil {
				return nil, err
			}
			done, err := r.API.UpdateKey(r.Context(), k.ID, &adminclient.UpdateKeyParams{Wait: kit.Wait(), IfMatch: in.Match()}, patch)
			if err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Applied("The key was saved.", done.Header))
		},
	}, nil
}

// revokeKey is the form that revokes a key.
func revokeKey(r *kit.Request) (*kit.Form, error) {
	k, a, _, err := keyOf(r)
	if err != nil {
		return nil, err
	}

	back := kit.Path("keys", k.ID)
	form := &kit.Form{
		Title:   "Revoke " + k.Name,
		Crumbs:  keysOf(a),
		Submit:  "Revoke key",
		Danger:  true,
		Confirm: k.Name,
		Back:    back,
		Command: "gwctl keys revoke " + k.ID,
		Effects: []string{
			"Every proxy refuses the key with 401, and ends its running requests. The key …" + k.Hint + " never works again.",
			"The key has spent " + k.Spent + " " + a.Balance.Currency + ". What it has used stays charged.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			done, err := r.API.RevokeKey(r.Context(), k.ID, &adminclient.RevokeKeyParams{IdempotencyKey: in.Key()})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, revoked(done.Value))
		},
	}
	if k.Status == adminclient.KeyStatusRevoked {
		form.Title, form.Submit, form.Confirm = "Wait for the revocation of "+k.Name, "Wait again", ""
		form.Effects = []string{"The key is revoked. This asks again which proxies have confirmed it."}
	}
	if k.Status == adminclient.KeyStatusActive && k.LastUsedAt != nil {
		form.Effects = slices.Insert(form.Effects, 1, "Its last request began at "+view.UTC(*k.LastUsedAt)+".")
	}

	return form, nil
}

// revoked tells which proxies have confirmed a revocation.
func revoked(r *adminclient.Revocation) *kit.Notice {
	n := kit.Done("The key is revoked, and no proxy accepts it any more.")
	n.Applied, n.Pending = r.ConfirmedBy, r.WaitingFor
	if !r.Effective {
		n.Kind, n.Text = "warn", "The key is revoked, but not every proxy has confirmed it yet."
		if r.Bound != nil {
			n.Text += fmt.Sprintf(" It is effective at %s at the latest.", view.UTC(*r.Bound))
		} else {
			n.Text += " It is not known when it is effective: revoke the key again to see whether it is."
		}
	}
	return n
}

// importKeys is the form that imports keys by their hashes.
func importKeys(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	back := kit.Path("accounts", a.ID, "keys")
	return &kit.Form{
		Title:   "Import keys for " + a.Name,
		Crumbs:  keysOf(a),
		Submit:  "Import keys",
		Back:    back,
		Command: "gwctl keys import --keys @keys.json",
		Fields: []kit.Field{{
			Name:     "keys",
			Label:    "Keys",
			Kind:     "area",
			Rows:     8,
			Mono:     true,
			Required: true,
			Hint:     "One in a line: name, hash, and if they are known the last characters and the pepper, separated by commas.",
		}},
		Effects: []string{
			"The keys work at once with the secrets that the customer already has. All are imported or none; a hash that the account " +
				"has is not changed.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			keys, err := parseKeys(a.ID, in.Text("keys"))
			if err != nil {
				return nil, err
			}
			done, err := r.API.ImportKeys(
				r.Context(),
				&adminclient.ImportKeysParams{Wait: kit.Wait(), IdempotencyKey: in.Key()},
				adminclient.KeyImport{Keys: keys},
			)
			if err != nil {
				return nil, importProblem(err)
			}
			return kit.Go(back, kit.Applied(fmt.Sprintf("%d keys were imported.", len(done.Value.Data)), done.Header))
		},
	}, nil
}

// importProblem names lines instead of the entries of a list.
func importProblem(err error) error {
	if e, ok := errors.AsType[*adminclient.Error](err); ok {
		for i := range e.Problem.Errors {
			var n int
			if _, err := fmt.Sscanf(e.Problem.Errors[i].Field, "keys[%d]", &n); err == nil {
				e.Problem.Errors[i].Detail = fmt.Sprintf("line %d: %s", n+1, e.Problem.Errors[i].Detail)
			}
		}
	}
	return err
}
