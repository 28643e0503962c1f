package systempages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type secretsView struct {
	MasterKey *adminclient.MasterKeyState
	Pepper    *adminclient.PepperState
	HashOnly  *adminclient.HashOnlyKeyList
	Pages     kit.Pages
}

// showSecrets shows the master key and the pepper with their rotations, and the keys that a rotation cannot hash again.
func showSecrets(r *kit.Request) (*kit.Page, error) {
	data := &secretsView{}
	master, err := r.API.GetMasterKey(r.Context())
	if err != nil {
		return nil, err
	}

	pepper, err := r.API.GetPepper(r.Context())
	if err != nil {
		return nil, err
	}

	keys, err := r.API.ListHashOnlyKeys(r.Context(), &adminclient.ListHashOnlyKeysParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	data.MasterKey, data.Pepper, data.HashOnly, data.Pages = master.Value, pepper.Value, keys.Value, kit.PagesOf(r, keys.Value.NextCursor)
	return &kit.Page{
		Template: "secrets",
		Title:    "Secrets",
		Command:  "gwctl master-key get\ngwctl pepper get\ngwctl hash-only-keys list",
		Data:     data,
	}, nil
}

// rotateMasterKey is the form that encrypts all stored secrets with the current master key.
func rotateMasterKey(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetMasterKey(r.Context())
	if err != nil {
		return nil, err
	}
	return rotation("master key", now.Value.Current, "gwctl master-key rotate", func(r *kit.Request, key *string) error {
		_, err := r.API.RotateMasterKey(r.Context(), &adminclient.RotateMasterKeyParams{IdempotencyKey: key})
		return err
	},
		"All stored secrets are encrypted with the master key "+now.Value.Current+", in the background. Requests are served meanwhile.",
		"Keep the earlier keys in the configuration until this page says that they can be removed.",
	), nil
}

// rotatePepper is the form that hashes all API keys with the current pepper.
func rotatePepper(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetPepper(r.Context())
	if err != nil {
		return nil, err
	}
	return rotation("pepper", now.Value.Current, "gwctl pepper rotate", func(r *kit.Request, key *string) error {
		_, err := r.API.RotatePepper(r.Context(), &adminclient.RotatePepperParams{IdempotencyKey: key})
		return err
	},
		"All API keys whose secrets are stored are hashed with the pepper "+now.Value.Current+", in the background. They work meanwhile.",
		"Keys of which only the hash is known keep their pepper: it must stay in the configuration until they are revoked.",
	), nil
}

// rotation is the form that starts a rotation to the current key or pepper.
func rotation(name, current, command string, start func(r *kit.Request, key *string) error, effects ...string) *kit.Form {
	return &kit.Form{
		Title:   "Rotate to the " + name + " " + current,
		Crumbs:  []kit.Link{{Text: "Secrets", URL: "/console/secrets"}},
		Submit:  "Start the rotation",
		Back:    "/console/secrets",
		Fresh:   true,
		Command: command,
		Effects: effects,
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			if err := start(r, in.Key()); err != nil {
				return nil, err
			}
			return kit.Go("/console/secrets", kit.Done("The rotation of the "+name+" has started."))
		},
	}
}
