package postgres_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/signinstore"
	"modelgateway/controlplane/internal/postgres/tokenstore"
	"modelgateway/controlplane/internal/signin"
)

// refusing is an identity provider that knows nobody.
type refusing struct{}

func (refusing) URL(context.Context, string, string, string) (string, error) {
	return "https://id.example.com/", nil
}

func (refusing) Exchange(context.Context, string, string, string) (admin.Principal, error) {
	return admin.Principal{}, admin.ErrUnauthenticated
}

func (refusing) Claim() string { return "groups" }

// Nobody needs a credential to begin a sign-in at a provider, or to come back from it with nonsense. The audit log is kept
// for ever, and has nothing of it.
func TestAnAddressCanStoreFewSignIns(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	service := signin.NewService(signin.Config{Store: signinstore.New(postgres.Wrap(pool)), Provider: refusing{}})
	count := func(query string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	flood, other := signin.Client{Address: netip.MustParseAddr("192.0.2.1")}, signin.Client{Address: netip.MustParseAddr("192.0.2.2")}
	const pending, failures = "select count(*) from console_sign_ins", "select count(*) from audit_log"
	var begun, finished error
	for range 200 {
		var state string
		if _, state, begun = service.Begin(t.Context(), flood, "/console/"); begun != nil {
			state = "unknown"
		}
		_, _, _, finished = service.Finish(t.Context(), state, "code", flood)
	}
	for range 200 {
		_, _, begun = service.Begin(t.Context(), flood, "/console/")
	}
	if !errors.Is(begun, admin.ErrLocked) || !errors.Is(finished, signin.ErrUsed) {
		t.Errorf("after many sign-ins: got %v and %v; want ErrLocked and ErrUsed", begun, finished)
	}
	if n, m := count(pending), count(failures); n >= 100 || m != 0 {
		t.Errorf("400 sign-ins of one address stored %d rows and %d audit entries; want few and none", n, m)
	}
	before := count(pending)
	if _, _, err := service.Begin(t.Context(), other, "/console/"); err != nil || count(pending) != before+1 {
		t.Errorf("another address: %v", err)
	}
}

func TestAPrincipalEndsWithItsSession(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	const token = "the bootstrap token of tests"
	service := signin.NewService(signin.Config{
		Store: signinstore.New(db), ByToken: true, Idle: time.Hour, Length: time.Hour,
		Tokens: admin.NewService(tokenstore.New(db), admin.BootstrapTokens{Texts: []string{token}}, nil),
	})
	session, secret, err := service.WithToken(t.Context(), token, signin.Client{})
	if err != nil {
		t.Fatal(err)
	}
	resumed, err := service.Resume(t.Context(), secret)
	if err != nil || resumed.Principal.Ended(t.Context()) {
		t.Fatalf("an open session has ended: %v", err)
	}
	if err := service.Revoke(t.Context(), session.ID); err != nil || !resumed.Principal.Ended(t.Context()) {
		t.Errorf("a revoked session has not ended: %v", err)
	}
	_, secret, err = service.WithToken(t.Context(), token, signin.Client{})
	if err != nil {
		t.Fatal(err)
	}
	if resumed, err = service.Resume(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if resumed.Principal.Ended(canceled) {
		t.Error("a session that cannot be looked up has ended")
	}
}

// A session may outlive its end by as much as it is remembered, so what is remembered can only look, and not for long.
func TestASessionIsRememberedForLiveDataOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	db := postgres.Wrap(pool)
	const token = "the bootstrap token of tests"
	at := time.Now()
	service := signin.NewService(signin.Config{
		Store: signinstore.New(db), ByToken: true, Idle: time.Hour, Length: 20 * time.Minute, Now: func() time.Time { return at },
		Tokens: admin.NewService(tokenstore.New(db), admin.BootstrapTokens{Texts: []string{token}}, nil),
	})
	opened := func() (signin.ID, string) {
		t.Helper()
		session, secret, err := service.WithToken(t.Context(), token, signin.Client{})
		if err == nil {
			_, err = service.Resume(t.Context(), secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		return session.ID, secret
	}
	_, secret := opened()
	_, signedOut := opened()
	ended, endedHere := opened()
	service.Forget(signedOut)
	if err := service.Revoke(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	start := pgtest.Stop(t, pool)
	defer start()
	if _, err := service.Resume(t.Context(), secret); err == nil || errors.Is(err, signin.ErrNoSession) {
		t.Fatalf("without the database: got %v", err)
	}
	session, err := service.Remembered(secret)
	if err != nil || !session.Remembered || !session.May("observe") || !session.May("read") {
		t.Fatalf("a session that was checked: got %+v, %v", session, err)
	}
	for _, scope := range []admin.Scope{admin.Operator, admin.Cabinet, admin.Credits, admin.RevealKeys} {
		if session.May(string(scope)) {
			t.Errorf("what is remembered has the scope %s", scope)
		}
	}
	if end := session.Principal.ExpiresAt; end == nil || !end.Equal(at.Add(signin.RememberedFor)) {
		t.Errorf("streams end at %v; want %v after the check", end, signin.RememberedFor)
	}
	for name, unknown := range map[string]string{"signed out": signedOut, "ended": endedHere, "never seen": "x", "empty": ""} {
		if _, err := service.Remembered(unknown); !errors.Is(err, signin.ErrNoSession) {
			t.Errorf("a session %s: got %v; want ErrNoSession", name, err)
		}
	}
	at = at.Add(signin.RememberedFor - time.Second)
	if _, err := service.Remembered(secret); err != nil {
		t.Errorf("just before the bound: %v", err)
	}
	at = at.Add(time.Second)
	if _, err := service.Remembered(secret); !errors.Is(err, signin.ErrNoSession) {
		t.Errorf("at the bound: got %v; want ErrNoSession", err)
	}
}

// Neither the length of a session nor the time without use is exceeded.
func TestARememberedSessionEndsByItsTimes(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]signin.Config{
		"length": {Idle: time.Hour, Length: time.Minute}, "idle": {Idle: time.Minute, Length: time.Hour},
	} {
		db := postgres.Wrap(pgtest.New(t))
		at := time.Now()
		cfg.Store, cfg.ByToken, cfg.Now = signinstore.New(db), true, func() time.Time { return at }
		cfg.Tokens = admin.NewService(tokenstore.New(db), admin.BootstrapTokens{Texts: []string{"the bootstrap token of tests"}}, nil)
		service := signin.NewService(cfg)
		_, secret, err := service.WithToken(t.Context(), "the bootstrap token of tests", signin.Client{})
		if err == nil {
			_, err = service.Resume(t.Context(), secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := service.Remembered(secret); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		at = at.Add(2 * time.Minute)
		if _, err := service.Remembered(secret); !errors.Is(err, signin.ErrNoSession) {
			t.Errorf("%s: after: got %v; want ErrNoSession", name, err)
		}
	}
}
