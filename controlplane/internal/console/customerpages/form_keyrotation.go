package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// overlap is how long the present secret of a key stays valid, unless the form says otherwise, in seconds.
const overlap = "86400"

// rotateKey is the form that gives a key a new secret. Its response shows the secret.
func rotateKey(r *kit.Request) (*kit.Form, error) {
	k, a, match, err := keyOf(r)
	if err != nil {
		return nil, err
	}

	form := &kit.Form{
		Title:   "Rotate " + k.Name,
		Crumbs:  keysOf(a),
		Submit:  "Rotate key",
		Back:    kit.Path("keys", k.ID),
		Match:   match,
		Fresh:   true,
		Command: "gwctl keys rotate " + k.ID,
		Fields: []kit.Field{{
			Name:     "overlap_seconds",
			Label:    "Overlap",
			Kind:     "number",
			Unit:     "seconds",
			Value:    overlap,
			Required: true,
			Hint:     "How long the present secret, …" + k.Hint + ", stays valid: at most 2592000, which is 30 days. 0 ends it at once.",
		}},
		Effects: []string{"The next page shows the new secret, once. Spending, limits and rules of the key stay."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			seconds, err := in.Int("overlap_seconds")
			if err != nil {
				return nil, err
			}
			if seconds == nil {
				return nil, kit.Invalid("overlap_seconds", "must be an integer")
			}

			params := &adminclient.RotateKeyParams{IdempotencyKey: in.Key(), Wait: kit.Wait(), IfMatch: in.Match()}
			made, err := r.API.RotateKey(r.Context(), k.ID, params, adminclient.KeyRotation{OverlapSeconds: *seconds})
			if err != nil {
				return nil, err
			}
			if made.Header.Get("Idempotent-Replayed") != "" {
				return kit.Go(
					kit.Path("keys", k.ID),
					&kit.Notice{Kind: "warn", Text: "The key was rotated by this form already. Its secret was shown then."},
				)
			}

			return &kit.Page{
				Template: "key_secret",
				Title:    "Key " + k.Name,
				Crumbs:   keysOf(a),
				Notice:   kit.Applied("The key was rotated.", made.Header),
				Data:     &secretView{k.ID, k.Name, made.Value.Secret, true},
			}, nil
		},
	}
	if previous := k.PreviousSecret; previous != nil {
		form.Effects = append(form.Effects, "The secret before the present one, …"+previous.Hint+", ends at once.")
	}

	return form, nil
}
