package e2e

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// secretInUse is a secret with the requests that were begun with it.
type secretInUse struct {
	text    string
	running sync.WaitGroup
}

// client sends requests with the newest secret of a key, to each proxy in turn.
type client struct {
	*rig.Rig
	model string

	mu      sync.Mutex
	newest  *secretInUse
	served  int
	refused []string
}

// use makes a secret the newest one, and returns the one before.
func (c *client) use(text string) (before *secretInUse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.newest = c.newest, &secretInUse{text: text}
	return before
}

func (c *client) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		c.mu.Lock()
		secret := c.newest
		secret.running.Add(1)
		c.mu.Unlock()

		answer, err := c.ask(context.WithoutCancel(ctx), i%len(c.Proxies), secret.text)
		c.mu.Lock()
		switch {
		case err != nil:
			c.refused = append(c.refused, err.Error())
		case answer.Status != http.StatusOK:
			c.refused = append(c.refused, answer.String())
		default:
			c.served++
		}
		c.mu.Unlock()
		secret.running.Done()
	}
}

func (c *client) ask(ctx context.Context, proxy int, secret string) (*rig.Answer, error) {
	return c.Ask(ctx, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: secret, Body: chatBody(c.model, "hello", false)})
}

// everywhere asks every proxy with a secret.
func (c *client) everywhere(t *testing.T, what, secret string, want int) {
	t.Helper()
	for proxy := range c.Proxies {
		if answer, err := c.ask(t.Context(), proxy, secret); err != nil || answer.Status != want {
			t.Errorf("%s, proxy %d: %v, %v; want %d", what, proxy, answer, err, want)
		}
	}
}

// A client that takes each new secret when it gets it has no request refused, however often its key is rotated. When a rotation
// returns, every proxy has it: the secret before is valid if there is an overlap, and the one before that is not.
func TestRotationUnderLoadRefusesNoRequest(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	a := r.Account(t, rig.AccountSpec{})
	c := &client{Rig: r, model: r.Model(t, rig.Model{Formats: []string{"chat"}})}
	c.use(a.Key)

	loading, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() { c.run(loading) })
	}

	secrets := []string{a.Key}
	var took []time.Duration
	rotate := func(overlap int64) {
		t.Helper()
		wait, longest := adminclient.WaitForApplied, "60s"
		began := time.Now()
		made, err := r.Admin.RotateKey(
			t.Context(), a.KeyID, &adminclient.RotateKeyParams{Wait: &wait, Timeout: &longest}, adminclient.KeyRotation{OverlapSeconds: overlap},
		)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		if made.Header.Get("Applied") != "true" {
			t.Fatalf("applied %q", made.Header.Get("Applied"))
		}
		secrets = append(secrets, made.Value.Secret)
	}

	const rotations = 21
	for range rotations {
		rotate(3600)
		n := len(secrets)
		c.everywhere(t, "the previous secret", secrets[n-2], http.StatusOK)
		c.everywhere(t, "the new secret", secrets[n-1], http.StatusOK)
		if n > 2 {
			c.everywhere(t, "the secret before the previous one", secrets[n-3], http.StatusUnauthorized)
		}
		c.use(secrets[n-1]).running.Wait()
	}

	stop()
	load.Wait()
	if len(c.refused) > 0 || c.served < rotations {
		t.Errorf("%d requests served, %d refused: %v", c.served, len(c.refused), c.refused[:min(len(c.refused), 3)])
	}
	slices.Sort(took)
	t.Logf("%d requests served; %d rotations were confirmed by %d proxies, p50 %v, longest %v",
		c.served, rotations, len(r.Proxies), took[len(took)/2], took[len(took)-1])

	rotate(0)
	n := len(secrets)
	c.everywhere(t, "the previous secret without an overlap", secrets[n-2], http.StatusUnauthorized)
	rotate(3600)
	a.Revoke(t, a.KeyID)
	for _, secret := range secrets[n-1:] {
		c.everywhere(t, "a secret of a revoked key", secret, http.StatusUnauthorized)
	}
}
