package systempages

import (
	"net/http"
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

var accessCrumbs = []kit.Link{{Text: "Access", URL: "/console/access"}}

// tokenView is a token with its state: active, expired or revoked.
type tokenView struct {
	adminclient.Token
	State string
}

func stateOf(t adminclient.Token, now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case t.ExpiresAt != nil && !now.Before(*t.ExpiresAt):
		return "expired"
	default:
		return "active"
	}
}

type accessView struct {
	Tokens []tokenView
	Pages  kit.Pages
	// Sessions are those of people in the console, newest first; nil for those who may not see them. Own is the id of the one
	// that reads the page.
	Sessions []adminclient.ConsoleSession
	Own      string
}

// listTokens shows the admin tokens, and who has signed in to the console.
func listTokens(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.ListTokens(r.Context(), &adminclient.ListTokensParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}

	data := &accessView{Pages: kit.PagesOf(r, answer.Value.NextCursor)}
	for _, t := range answer.Value.Data {
		data.Tokens = append(data.Tokens, tokenView{t, stateOf(t, time.Now())})
	}

	command := "gwctl tokens list"
	if r.May(kit.Operator) {
		sessions, err := r.API.ListConsoleSessions(r.Context(), &adminclient.ListConsoleSessionsParams{Limit: new(maxPage)})
		if err != nil {
			return nil, err
		}
		slices.Reverse(sessions.Value.Data)
		data.Sessions, data.Own, command = sessions.Value.Data, r.Session.ID.String(), command+"\ngwctl console-sessions list"
	}

	return &kit.Page{
		Template: "access",
		Title:    "Access",
		Command:  command,
		Data:     data,
	}, nil
}

var scopes = []kit.Option{
	{Value: kit.Read, Text: "read: accounts, usage, catalog"},
	{Value: kit.Observe, Text: "observe: everything that changes nothing"},
	{Value: kit.Cabinet, Text: "cabinet: accounts with their keys and models, webhooks"},
	{Value: kit.Credits, Text: "credits: credits, refunds and corrections"},
	{Value: kit.KeysReveal, Text: "keys.reveal: secrets of API keys"},
	{Value: kit.Operator, Text: "operator: everything, also credits and secrets of keys"},
}

// secretView is the page that shows a new secret once.
type secretView struct {
	Title, Secret, Text, Back string
}

func (v *secretView) page(crumbs []kit.Link, done string) *kit.Page {
	return &kit.Page{
		Template: "secret",
		Title:    v.Title,
		Crumbs:   crumbs,
		Notice:   kit.Done(done),
		Data:     v,
	}
}

// issueToken is the form that issues an admin token. Its response shows the secret.
func issueToken(*kit.Request) (*kit.Form, error) {
	return &kit.Form{
		Title:   "Issue an admin token",
		Crumbs:  accessCrumbs,
		Submit:  "Issue token",
		Back:    "/console/access",
		Fresh:   true,
		Command: "gwctl tokens create",
		Fields: []kit.Field{
			{Name: "name", Label: "Name", Required: true, Hint: "Who or which program uses it: the audit log names it."},
			{Name: "scopes", Label: "Scopes", Kind: "checks", Options: scopes},
			{Name: "expires_at", Label: "Valid until (UTC)", Kind: "datetime-local", Hint: "Empty means until it is revoked."},
			{
				Name:  "credits_per_day",
				Label: "Credits a day",
				Mono:  true,
				Hint:  "The sum of credits, refunds and corrections that it may book in a day of UTC. Empty means no limit.",
			},
			{
				Name:  "reveals_per_day",
				Label: "Reveals a day",
				Kind:  "number",
				Hint:  "How often it may show secrets of API keys in a day of UTC. Empty means no limit.",
			},
		},
		Effects: []string{"The next page shows the token, once. Whoever has it acts with its scopes."},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body := adminclient.TokenCreate{Name: in.Text("name"), CreditsPerDay: in.Optional("credits_per_day")}
			for _, s := range in.All("scopes") {
				body.Scopes = append(body.Scopes, adminclient.Scope(s))
			}

			var err error
			if body.ExpiresAt, err = kit.Moment("expires_at", in.Text("expires_at")); err != nil {
				return nil, err
			}
			if body.RevealsPerDay, err = in.Int("reveals_per_day"); err != nil {
				return nil, err
			}

			made, err := r.API.CreateToken(r.Context(), &adminclient.CreateTokenParams{IdempotencyKey: in.Key()}, body)
			if err != nil {
				return nil, err
			}
			if replayed(made.Header) {
				return kit.Go(
					"/console/access",
					&kit.Notice{Kind: "warn", Text: "The token was issued by this form already. It was shown then."},
				)
			}

			page := &secretView{
				"Token " + made.Value.Name,
				made.Value.Secret,
				"It is not stored and cannot be shown again.",
				"/console/access",
			}
			return page.page(accessCrumbs, "The token was issued."), nil
		},
	}, nil
}

// replayed reports whether a response is that of an earlier request with the same Idempotency-Key.
func replayed(header http.Header) bool { return header.Get("Idempotent-Replayed") != "" }

// revokeToken is the form that revokes an admin token.
func revokeToken(r *kit.Request) (*kit.Form, error) {
	t, err := findToken(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Revoke the token " + t.Name,
		Crumbs:  accessCrumbs,
		Submit:  "Revoke token",
		Danger:  true,
		Confirm: t.Name,
		Back:    "/console/access",
		Command: "gwctl tokens revoke " + t.ID,
		Effects: []string{
			"Programs that use the token are refused with 401, and sessions of the console that were signed in with it end. It never " +
				"works again.",
		},
		Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
			if _, err := r.API.RevokeToken(r.Context(), t.ID); err != nil {
				return nil, err
			}
			return kit.Go("/console/access", kit.Done("The token "+t.Name+" is revoked."))
		},
	}, nil
}

// findToken reads the list of tokens up to one.
func findToken(r *kit.Request, id string) (*adminclient.Token, error) {
	params := &adminclient.ListTokensParams{Limit: new(maxPage)}
	for {
		answer, err := r.API.ListTokens(r.Context(), params)
		if err != nil {
			return nil, err
		}
		for _, t := range answer.Value.Data {
			if t.ID == id {
				return &t, nil
			}
		}
		if params.Cursor = answer.Value.NextCursor; params.Cursor == nil {
			return nil, kit.NotFound()
		}
	}
}

// endSession is the form that signs somebody out of the console.
func endSession(r *kit.Request) (*kit.Form, error) {
	answer, err := r.API.ListConsoleSessions(r.Context(), &adminclient.ListConsoleSessionsParams{Limit: new(maxPage)})
	if err != nil {
		return nil, err
	}

	for _, s := range answer.Value.Data {
		if s.ID != r.PathValue("id") {
			continue
		}
		return &kit.Form{
			Title:   "End the session of " + s.Name,
			Crumbs:  accessCrumbs,
			Submit:  "End session",
			Danger:  true,
			Back:    "/console/access",
			Command: "gwctl console-sessions end " + s.ID,
			Effects: []string{
				"The next page that it asks for is the one to sign in. Whoever it is may sign in again, unless the token is revoked " +
					"or the provider refuses.",
			},
			Do: func(r *kit.Request, _ *kit.Input) (*kit.Page, error) {
				if _, err := r.API.EndConsoleSession(r.Context(), s.ID); err != nil {
					return nil, err
				}
				return kit.Go("/console/access", kit.Done("The session of "+s.Name+" has ended."))
			},
		}, nil
	}

	return nil, kit.NotFound()
}

// maxPage is the largest page of a list of the API.
const maxPage = 500
