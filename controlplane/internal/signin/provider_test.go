package signin_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/shared/seal"
)

// store opens sessions and counts audit entries of failures. It has no place for sign-ins that have begun.
type store struct {
	signin.Store // nothing else is used

	failures int
}

func (*store) Create(context.Context, *signin.Session, signin.Hash, time.Duration) error { return nil }

func (s *store) Failed(context.Context, string) error {
	s.failures++
	return nil
}

// provider knows one code for each state.
type provider struct{ states []string }

func (p *provider) URL(_ context.Context, state, _, _ string) (string, error) {
	p.states = append(p.states, state)
	return "https://id.example.com/?state=" + state, nil
}

func (*provider) Exchange(_ context.Context, code, nonce, verifier string) (admin.Principal, error) {
	if code != "good" || nonce == "" || verifier == "" || nonce == verifier {
		return admin.Principal{}, admin.ErrUnauthenticated
	}
	return admin.Principal{Name: "ada", Scopes: []admin.Scope{admin.Read}, Method: admin.ByOIDC}, nil
}

func (*provider) Claim() string { return "groups" }

// Nobody needs a credential to begin a sign-in at a provider, or to come back from it with nonsense: behind an ingress that is not
// trusted, all people have one address. One who does so a thousand times keeps nobody out and fills nothing.
func TestOneWhoBeginsManySignInsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	s, p := &store{}, &provider{}
	at := time.Now()
	service := signin.NewService(signin.Config{Store: s, Provider: p, Key: newKey(t), Now: func() time.Time { return at }})
	from := signin.Client{Address: netip.MustParseAddr("192.0.2.1"), Agent: "browser"}
	for range 1000 {
		_, sealed, err := service.Begin(t.Context(), "/console/")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := service.Finish(t.Context(), sealed, p.states[len(p.states)-1], "bad", from); !errors.Is(err, admin.ErrUnauthenticated) {
			t.Fatalf("with a code that the provider does not know: %v; want ErrUnauthenticated", err)
		}
	}
	_, sealed, err := service.Begin(t.Context(), "/console/accounts?q=a")
	if err != nil {
		t.Fatal(err)
	}
	session, secret, to, err := service.Finish(t.Context(), sealed, p.states[len(p.states)-1], "good", from)
	if err != nil || secret == "" || to != "/console/accounts?q=a" || session.Name != "ada" {
		t.Errorf("after them: %v, %q, %q", err, to, secret)
	}
	if s.failures != 0 {
		t.Errorf("%d audit entries were written; want none, since nobody was known", s.failures)
	}
}

func TestASignInIsFinishedOnlyWhereAndWhenItHasBegun(t *testing.T) {
	t.Parallel()
	p := &provider{}
	at := time.Now()
	key := newKey(t)
	service := signin.NewService(signin.Config{Store: &store{}, Provider: p, Key: key, Now: func() time.Time { return at }})
	another := signin.NewService(signin.Config{Store: &store{}, Provider: p, Key: newKey(t)})
	_, sealed, _ := service.Begin(t.Context(), "/console/") // the fake never fails
	_, other, _ := service.Begin(t.Context(), "/console/")
	_, foreign, _ := another.Begin(t.Context(), "/console/")
	for name, test := range map[string]struct {
		sealed, state string
		later         time.Duration
	}{
		"no cookie":                  {"", p.states[0], 0},
		"no base64":                  {"%", p.states[0], 0},
		"a changed cookie":           {strings.ToUpper(sealed), p.states[0], 0},
		"a cut cookie":               {sealed[:40], p.states[0], 0},
		"the state of another":       {sealed, p.states[1], 0},
		"the cookie of another":      {other, p.states[0], 0},
		"no state":                   {sealed, "", 0},
		"of another key":             {foreign, p.states[2], 0},
		"too late":                   {sealed, p.states[0], signin.PendingFor + time.Second},
		"long before it has begun":   {sealed, p.states[0], -signin.PendingFor - time.Second},
		"an empty sign-in, no state": {"AAAA", "", 0},
	} {
		begun := at
		at = begun.Add(test.later)
		if _, _, _, err := service.Finish(t.Context(), test.sealed, test.state, "good", signin.Client{}); !errors.Is(err, signin.ErrNotBegun) {
			t.Errorf("%s: %v; want ErrNotBegun", name, err)
		}
		at = begun
	}
	replica := signin.NewService(signin.Config{Store: &store{}, Provider: p, Key: key})
	if _, _, _, err := replica.Finish(t.Context(), sealed, p.states[0], "good", signin.Client{}); err != nil {
		t.Errorf("at another replica: %v", err)
	}
}

func newKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return key
}
