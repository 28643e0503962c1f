package devstack

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The demo account has a fixed external id, and its credit a fixed reference, so that a
// second run does not create them again.
const (
	demoID     = "demo"
	demoCredit = "1000.00"
)

// demo is the account, key and catalog for requests to the stack.
type demo struct {
	AccountID string
	APIKey    string
	Catalog   catalog
}

// seed sets up the demo account. It applies the catalog file unless an earlier run has applied the same one, or the catalog
// has objects that the file would remove: the user may have changed the catalog since.
func (s *Stack) seed(ctx context.Context, admin caller) (demo, error) {
	account, err := seedDemo(ctx, admin)
	if err != nil {
		return account, err
	}
	if err := s.applyCatalog(ctx, admin); err != nil {
		return account, err
	}
	return account, admin.get(ctx, "/admin/v1/catalog", &account.Catalog)
}

// applyCatalog applies the catalog file, or says how the catalog differs from it.
func (s *Stack) applyCatalog(ctx context.Context, admin caller) error {
	applied, err := recorded(s.Layout.catalog())
	if err != nil {
		return err
	}

	var plan struct {
		Changes []catalogChange `json:"changes"`
	}
	if err := admin.call(ctx, http.MethodPut, "/admin/v1/catalog?dry_run=true", s.mediaType, s.document, &plan); err != nil {
		return err
	}

	now, removed := digest([]byte(s.document)), removedBy(plan.Changes)
	if s.ApplyCatalog || applied == "" || applied != now && len(removed) == 0 {
		if err := admin.call(ctx, http.MethodPut, "/admin/v1/catalog", s.mediaType, s.document, nil); err != nil {
			return err
		}
		if len(removed) > 0 {
			s.progress.sayf("  the catalog file is applied, which removes %s", strings.Join(removed, ", "))
		}
		return writeFile(s.Layout.catalog(), []byte(now))
	}

	if applied != now {
		s.progress.sayf("  the catalog is kept, because its file would remove %s; to apply the file nevertheless: make run CATALOG=apply",
			strings.Join(removed, ", "))
	} else if n := len(plan.Changes); n > 0 {
		s.progress.sayf("  the catalog differs from its file in %d objects and is kept; to apply the file: make run CATALOG=apply", n)
	}

	return nil
}

// catalogChange is a difference between the catalog and its file.
type catalogChange struct {
	Action string `json:"action"`
	Kind   string `json:"kind"`
	ID     string `json:"id"`
}

// removedBy returns the providers and models that changes remove; what belongs to them goes with them.
func removedBy(changes []catalogChange) []string {
	var removed []string
	for _, c := range changes {
		if c.Action == "remove" && (c.Kind == "provider" || c.Kind == "model") {
			removed = append(removed, "the "+c.Kind+" "+c.ID)
		}
	}
	return removed
}

// seedDemo creates a demo account with credit and a key without a limit, unless they exist.
func seedDemo(ctx context.Context, admin caller) (demo, error) {
	var s demo
	var err error
	if s.AccountID, err = seedAccount(ctx, admin); err != nil {
		return s, err
	}
	credit := map[string]string{"amount": demoCredit, "kind": "payment", "reference": "devstack-demo"}
	if err := admin.post(ctx, "/admin/v1/accounts/"+s.AccountID+"/credits", credit, nil); err != nil {
		return s, err
	}
	s.APIKey, err = seedKey(ctx, admin, s.AccountID)
	return s, err
}

func seedAccount(ctx context.Context, admin caller) (string, error) {
	type account struct {
		ID string `json:"id"`
	}
	var found struct {
		Data []account `json:"data"`
	}
	if err := admin.get(ctx, "/admin/v1/accounts?external_id="+demoID, &found); err != nil {
		return "", err
	}
	if len(found.Data) > 0 {
		return found.Data[0].ID, nil
	}
	var created account
	err := admin.post(ctx, "/admin/v1/accounts", map[string]string{"name": "Demo", "external_id": demoID}, &created)
	return created.ID, err
}

// seedKey returns the secret of the active demo key. It creates a key if there is none or
// if it was revoked.
func seedKey(ctx context.Context, admin caller, accountID string) (string, error) {
	type key struct {
		ID         string  `json:"id"`
		Name       string  `json:"name"`
		Status     string  `json:"status"`
		SpendLimit *string `json:"spend_limit"`
		Revealable bool    `json:"revealable"`
		Secret     string  `json:"secret"`
	}

	keys := "/admin/v1/accounts/" + accountID + "/keys"
	for cursor := ""; ; {
		var page struct {
			Data       []key  `json:"data"`
			NextCursor string `json:"next_cursor"`
		}

		if err := admin.get(ctx, keys+"?cursor="+url.QueryEscape(cursor), &page); err != nil {
			return "", err
		}

		for _, k := range page.Data {
			if k.Name == demoID && k.Status == "active" && k.SpendLimit == nil && k.Revealable {
				err := admin.post(ctx, "/admin/v1/keys/"+k.ID+"/reveal", nil, &k)
				return k.Secret, err
			}
		}

		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}

	var created key
	err := admin.post(ctx, keys, map[string]string{"name": demoID, "external_id": demoID + "-" + rand.Text()}, &created)
	return created.Secret, err
}

// catalog holds the members of an exported catalog that the stack reads.
type catalog struct {
	Models []model `json:"models"`
}

type model struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Enabled *bool   `json:"enabled"`
	Public  *bool   `json:"public"`
	Routes  []route `json:"routes"`
}

type route struct {
	Enabled *bool    `json:"enabled"`
	Formats []string `json:"formats"`
}

// unlessFalse returns the value of a member whose default is true.
func unlessFalse(b *bool) bool { return b == nil || *b }

// example returns a public model with a route for a text format, and the format. It
// prefers chat to responses and responses to messages.
func (c catalog) example() (id, format string) {
	for _, format := range []string{"chat", "responses", "messages"} {
		for _, m := range c.Models {
			if !unlessFalse(m.Enabled) || !unlessFalse(m.Public) {
				continue
			}
			for _, r := range m.Routes {
				if unlessFalse(r.Enabled) && slices.Contains(r.Formats, format) {
					return m.ID, format
				}
			}
		}
	}
	return "", ""
}
