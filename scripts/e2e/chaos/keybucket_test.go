package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// awaitKeyBucket waits until the bucket of key records has every committed change.
func awaitKeyBucket(t *testing.T, r *rig.Rig) {
	t.Helper()
	revision, err := r.Number(t.Context(), "select revision from cluster_state")
	if err != nil {
		t.Fatal(err)
	}
	js := r.JetStream(t)
	rig.Await(t, "the key records in their bucket", func(ctx context.Context) error {
		stream, err := js.Stream(ctx, subject.KeyStream)
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(ctx, subject.KeyPrefix+subject.KeyMark)
		if err != nil {
			return err
		}
		var mark wire.KeyMark
		if err := json.Unmarshal(m.Data, &mark); err != nil || mark.Revision < revision {
			return fmt.Errorf("it has revision %d of %d, %w", mark.Revision, revision, err)
		}
		return nil
	})
}

// A proxy serves keys that it has not seen while every control plane, or Postgres, is unavailable. It refuses
// those that were revoked or suspended before, and decides nothing about keys that the bucket does not have.
func TestKeysThatTheProxyHasNotSeenComeFromTheBucket(t *testing.T) {
	r := rig.Start(t, rig.Options{ControlPlanes: 2, ControlSettings: []string{"MGW_SESSION_WINDOW=3s"}})
	account, suspended := r.Account(t, rig.AccountSpec{}), r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	ask := func(key string) rig.Request {
		return rig.Request{Path: "/v1/chat/completions", Key: key, Body: question(model)}
	}
	suspended.Suspend(t)
	for name, parts := range map[string][]string{"control planes": r.ControlPlanes(), "Postgres": {rig.Postgres}} {
		collectIdleUnits(t, r, account.Key, model, 0, rig.DataPlane(0))
		_, unseen := account.NewKey(t, "")
		_, lost := account.NewKey(t, "")
		revokedID, revoked := account.NewKey(t, "")
		account.Revoke(t, revokedID)
		awaitKeyBucket(t, r)
		for _, part := range parts {
			r.Halt(t, part)
		}
		for what, test := range map[string]struct {
			key  string
			want int
		}{
			"a key":                        {unseen, http.StatusOK},
			"a revoked key":                {revoked, http.StatusUnauthorized},
			"a key of a suspended account": {suspended.Key, http.StatusUnauthorized},
			"a key that does not exist":    {r.Hasher(t).Generate(), http.StatusServiceUnavailable},
		} {
			if answer := r.Do(t, ask(test.key)); answer.Status != test.want {
				t.Errorf("without %s, %s: got %s; want %d", name, what, answer, test.want)
			}
		}
		if err := r.JetStream(t).DeleteStream(t.Context(), subject.KeyStream); err != nil {
			t.Fatal(err)
		}
		if answer := r.Do(t, ask(lost)); answer.Status != http.StatusServiceUnavailable {
			t.Errorf("without %s and the bucket, a key: got %s; want 503", name, answer)
		}
		r.Resume(t, parts...)
		r.AwaitStatus(t, ask(lost), http.StatusOK)
		awaitKeyBucket(t, r)
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// An administrator takes slots and money away from an account right before all control planes end. It is served by every proxy at
// which it has had a request since.
func TestChangedAccountIsServedWithoutControlPlanes(t *testing.T) {
	r := rig.Start(t, rig.Options{DataPlanes: 2, ControlPlanes: 2})
	account, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	ask := func(proxy int) rig.Request {
		return rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: account.Key, Body: question(model)}
	}
	for proxy := range r.Proxies {
		collectIdleUnits(t, r, account.Key, model, proxy, rig.DataPlane(proxy))
	}
	slots := 900
	_, err := r.Admin.UpdateAccount(t.Context(), account.ID, nil, adminclient.AccountPatch{MaxConcurrentRequests: &slots})
	if err == nil {
		_, err = r.Admin.CreateCredit(t.Context(), account.ID, nil, adminclient.CreditCreate{
			Amount: "-5", Kind: adminclient.CreditKindCorrection, Reference: rig.Unique(), Reason: new("a test"),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for proxy := range r.Proxies {
		r.AwaitStatus(t, ask(proxy), http.StatusOK)
	}
	for _, part := range r.ControlPlanes() {
		r.Halt(t, part)
	}
	for range 10 {
		for proxy := range r.Proxies {
			if answer := r.Do(t, ask(proxy)); answer.Status != http.StatusOK {
				t.Errorf("proxy %d without control planes: got %s; want 200", proxy, answer)
			}
		}
	}
	r.Resume(t, r.ControlPlanes()...)
	r.AwaitSettled(t)
	checkInvariants(t, r)
}
