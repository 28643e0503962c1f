package accountstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/signin"
)

func TestAPrincipalEndsWithItsSession(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	const token = "the bootstrap token of tests"
	service := signin.NewService(signin.Config{
		Store: accountstore.NewSessions(db), ByToken: true, Idle: time.Hour, Length: time.Hour,
		Tokens: admin.NewService(accountstore.NewTokens(db), admin.BootstrapTokens{Texts: []string{token}}, nil),
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
		Store: accountstore.NewSessions(db), ByToken: true, Idle: time.Hour, Length: 20 * time.Minute, Now: func() time.Time { return at },
		Tokens: admin.NewService(accountstore.NewTokens(db), admin.BootstrapTokens{Texts: []string{token}}, nil),
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
		cfg.Store, cfg.ByToken, cfg.Now = accountstore.NewSessions(db), true, func() time.Time { return at }
		cfg.Tokens = admin.NewService(accountstore.NewTokens(db), admin.BootstrapTokens{Texts: []string{"the bootstrap token of tests"}}, nil)
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
