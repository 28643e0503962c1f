package webhookstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/shared/wire"
)

// A refused credential causes one event, however many proxies and heartbeats report
// it, and one when none reports it any more.
func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, hooks := leasestore.NewLeases(db), webhookstore.New(db)
	w.Exec(`insert into providers (id, name, spec, revision) values ('openai', 'OpenAI', '{}', 1)`)
	w.Exec(`insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id) values ('crd_1', 'openai', 'main', '', 'm1'), ('crd_2', 'openai', 'spare', '', 'm1')`)
	first, second := w.Session(store, "proxy-1"), w.Session(store, "proxy-2")
	rev := storetest.Scalar[int64](w, "select revision from cluster_state")
	renew := func(s wire.SessionID, boot string, refused ...wire.RefusedCredential) {
		t.Helper()
		r, err := store.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s, BootID: boot, AppliedRevision: rev, Refused: refused}, storetest.Window, 10)
		if err != nil || r.Status != wire.Done {
			t.Fatal(r, err)
		}
		storetest.Check(t, hooks.UpdateRefusedCredentials(t.Context()))
	}
	rejected := wire.RefusedCredential{Credential: "crd_1", Reason: wire.KeyRejected}
	facts := `{"reason": "key_rejected", "provider": "openai", "credential": "main", "credential_id": "crd_1"}`

	renew(first, "proxy-1", rejected)
	w.wantEvents("the first report", "operator.credential_refused "+facts)
	renew(first, "proxy-1", rejected)
	renew(second, "proxy-2", rejected, wire.RefusedCredential{Credential: "unknown", Reason: wire.KeyRejected})
	w.wantEvents("further reports")

	f, err := leasestore.NewFleet(db).Fleet(t.Context())
	storetest.Check(t, err)
	want := []fleet.RefusedCredential{{Provider: "openai", Credential: "main", CredentialID: "crd_1", Reason: wire.KeyRejected, Proxies: []string{"proxy-1", "proxy-2"}}}
	if diff := cmp.Diff(want, f.RefusedCredentials, cmpopts.IgnoreFields(fleet.RefusedCredential{}, "Since")); diff != "" || time.Since(f.RefusedCredentials[0].Since) > time.Hour {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}

	renew(first, "proxy-1")
	w.wantEvents("one proxy still finds it refused")
	w.Expire(second, 1) // and is gone
	storetest.Check(t, hooks.UpdateRefusedCredentials(t.Context()))
	w.wantEvents("nobody does", `operator.credential_accepted {"provider": "openai", "credential": "main", "credential_id": "crd_1"}`)
	if f, err = leasestore.NewFleet(db).Fleet(t.Context()); err != nil || len(f.RefusedCredentials) != 0 {
		t.Errorf("fleet: %v, %v; want none refused", f.RefusedCredentials, err)
	}
}

// A credential that cannot be renewed gets the worse reason when a proxy has no valid token left.
func TestReasonOfACredentialThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, hooks := leasestore.NewLeases(db), webhookstore.New(db)
	w.Exec(`insert into providers (id, name, spec, revision) values ('bedrock', 'Bedrock', '{}', 1)`)
	w.Exec(`insert into provider_credentials (id, provider_id, name, kind, sealed, cipher_key_id) values ('crd_1', 'bedrock', 'main', 'aws', '', 'm1')`)
	first, second := w.Session(store, "proxy-1"), w.Session(store, "proxy-2")
	for _, step := range []struct {
		session      wire.SessionID
		boot, reason string
		want         string
	}{
		{first, "proxy-1", wire.SourceFailing, wire.SourceFailing},
		{second, "proxy-2", wire.SourceFailed, wire.SourceFailed},
		{first, "proxy-1", wire.SourceFailing, wire.SourceFailed},
	} {
		r := &wire.HeartbeatRequest{Session: step.session, BootID: step.boot, AppliedRevision: storetest.Scalar[int64](w, "select revision from cluster_state")}
		r.Refused = []wire.RefusedCredential{{Credential: "crd_1", Reason: step.reason}}
		_, err := store.Heartbeat(t.Context(), r, storetest.Window, 10)
		storetest.Check(t, err)
		storetest.Check(t, hooks.UpdateRefusedCredentials(t.Context()))
		f, err := leasestore.NewFleet(db).Fleet(t.Context())
		if err != nil || len(f.RefusedCredentials) != 1 || f.RefusedCredentials[0].Reason != step.want {
			t.Errorf("after %s of %s: got %+v, %v; want %s", step.reason, step.boot, f.RefusedCredentials, err, step.want)
		}
	}
}

// A credential that is refused and accepted in turns causes one event of each type in
// an hour.
func TestCredentialEventsAreOncePerHour(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, hooks := leasestore.NewLeases(db), webhookstore.New(db)
	w.Exec(`insert into providers (id, name, spec, revision) values ('openai', 'OpenAI', '{}', 1)`)
	w.Exec(`insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id) values ('crd_1', 'openai', 'main', '', 'm1')`)
	s := w.Session(store, "proxy")
	for i := range 10 {
		r := &wire.HeartbeatRequest{Session: s, BootID: "proxy", AppliedRevision: storetest.Scalar[int64](w, "select revision from cluster_state")}
		if i%2 == 0 {
			r.Refused = []wire.RefusedCredential{{Credential: "crd_1", Reason: wire.QuotaExhausted}}
		}
		_, err := store.Heartbeat(t.Context(), r, storetest.Window, 10)
		storetest.Check(t, err)
		storetest.Check(t, hooks.UpdateRefusedCredentials(t.Context()))
	}
	// The hour may change meanwhile.
	if n := storetest.Scalar[int64](w, "select count(*) from webhook_events"); n < 2 || n > 4 {
		t.Errorf("%d events; want one of each type in an hour", n)
	}
}
