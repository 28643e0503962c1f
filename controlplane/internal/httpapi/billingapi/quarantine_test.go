package billingapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// faulty settles one corrupted event of a key, and one message that is not an event.
func faulty(p *servertest.Proxy, accountID, keyID string) {
	p.Server.T.Helper()
	p.N++
	now := time.Now()
	raw, err := json.Marshal(event.Usage{
		V: event.Version, RequestID: ident.Request.New(), Session: p.Session, Seq: p.N, AccountID: accountID, KeyID: keyID,
		Model: "demo-chat", Format: "chat", Status: event.Completed, StartedMS: now.UnixMilli(), FinishedMS: now.UnixMilli(), Rule: event.RuleReported, Cost: 70,
	})
	servertest.Check(p.Server.T, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: p.Session, Events: []json.RawMessage{raw}})
	servertest.Check(p.Server.T, err)
	settler := settle.New(moneystore.NewSettlement(p.Server.DB), nil)
	for _, message := range []string{string(batch), "no batch"} {
		result, err := settler.Settle(p.Server.T.Context(), settle.DecodeBatch([]byte(message)))
		servertest.Check(p.Server.T, err)
		if result.Quarantined != 1 {
			p.Server.T.Fatalf("settled %+v; want it in quarantine", result)
		}
	}
}

func (b *server) number(query string) (n int64) {
	b.T.Helper()
	servertest.Check(b.T, b.DB.Pool().QueryRow(b.T.Context(), query).Scan(&n))
	return n
}

// A quarantined event is shown with its content, settled once when the cause is fixed, and
// dismissed with a reason. Each decision is made once and is in the audit log.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	keyID := ident.Key.New()
	faulty(b.Proxy("proxy-1"), a.ID, keyID)
	list := func(state adminclient.QuarantineState) []adminclient.Quarantined {
		t.Helper()
		r, err := servertest.Answered(b.API.ListQuarantine(t.Context(), &adminclient.ListQuarantineParams{State: &state}))
		servertest.Check(t, err)
		return r.Value.Data
	}
	open := list(adminclient.QuarantineStateOpen)
	if len(open) != 2 || open[1].Reason != "there is no such key" || open[0].Event != nil || open[0].Payload != nil {
		t.Fatalf("open are %+v", open)
	}
	noBatch, noKey := open[0].ID, open[1].ID
	got, err := servertest.Answered(b.API.GetQuarantined(t.Context(), noKey))
	servertest.Check(t, err)
	if e, ok := got.Value.Event.(map[string]any); !ok || e["key_id"] != keyID || *got.Value.RequestID != e["request_id"] {
		t.Errorf("the event is %v", got.Value.Event)
	}
	if got, err = servertest.Answered(b.API.GetQuarantined(t.Context(), noBatch)); err != nil || string(got.Value.Payload) != "no batch" {
		t.Errorf("the payload is %q, %v", got.Value.Payload, err)
	}

	release := func(id int64) *servertest.Answer[adminclient.Quarantined] {
		t.Helper()
		r, err := servertest.Answered(b.API.ReleaseQuarantined(t.Context(), id, nil))
		servertest.Check(t, err)
		return r
	}
	servertest.Problem(t, release(noKey).Problem, http.StatusConflict, "cannot_be_settled")
	servertest.Problem(t, release(noBatch).Problem, http.StatusConflict, "cannot_be_settled")
	servertest.Problem(t, release(4711).Problem, http.StatusNotFound, "not_found")
	b.restore(keyID, a.ID)
	if r := release(noKey).Value; r == nil || r.State != adminclient.QuarantineStateReleased || r.ResolvedAt == nil {
		t.Errorf("released: %+v", r)
	}
	servertest.Problem(t, release(noKey).Problem, http.StatusConflict, "already_resolved")
	if n := b.number("select coalesce(sum(cost), 0) from usage_records"); n != 70 {
		t.Errorf("%d was charged; want 70", n)
	}

	dismiss := func(id int64, why string) *servertest.Answer[adminclient.Quarantined] {
		t.Helper()
		r, err := servertest.Answered(b.API.DismissQuarantined(t.Context(), id, nil, adminclient.QuarantineDismissal{Reason: why}))
		servertest.Check(t, err)
		return r
	}
	servertest.Problem(t, dismiss(noKey, "late").Problem, http.StatusConflict, "already_resolved")
	if r := dismiss(noBatch, "a test").Value; r == nil || r.State != adminclient.QuarantineStateDismissed || *r.Note != "a test" {
		t.Errorf("dismissed: %+v", r)
	}
	if left, released, dismissed := list(adminclient.QuarantineStateOpen), list(adminclient.QuarantineStateReleased), list(adminclient.QuarantineStateDismissed); len(left) != 0 || len(released) != 1 || len(dismissed) != 1 {
		t.Errorf("open %v, released %v, dismissed %v", left, released, dismissed)
	}
	if n := b.number("select count(*) from audit_log where action in ('quarantine.released', 'quarantine.dismissed') and actor = 'bootstrap'"); n != 2 {
		t.Errorf("%d entries in the audit log; want 2", n)
	}
}

// A dismissed event is not settled, even when its cause is fixed.
func TestDismissedEventIsNeverCharged(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	keyID := ident.Key.New()
	faulty(b.Proxy("proxy-1"), a.ID, keyID)
	open, err := servertest.Answered(b.API.ListQuarantine(t.Context(), nil))
	servertest.Check(t, err)
	id := open.Value.Data[1].ID
	dismissed, err := servertest.Answered(b.API.DismissQuarantined(t.Context(), id, nil, adminclient.QuarantineDismissal{Reason: "a test"}))
	servertest.Check(t, err)
	if dismissed.StatusCode != http.StatusOK {
		t.Fatalf("dismiss: %s", dismissed.Body)
	}
	b.restore(keyID, a.ID)
	released, err := servertest.Answered(b.API.ReleaseQuarantined(t.Context(), id, nil))
	servertest.Check(t, err)
	servertest.Problem(t, released.Problem, http.StatusConflict, "already_resolved")
	if n := b.number("select count(*) from usage_records"); n != 0 {
		t.Errorf("%d requests were charged; want none", n)
	}
}

// restore creates the key that the events name.
func (b *server) restore(keyID, accountID string) {
	b.T.Helper()
	key, err := ident.Key.Parse(keyID)
	servertest.Check(b.T, err)
	owner, err := ident.Account.Parse(accountID)
	servertest.Check(b.T, err)
	b.Exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'found again', sha256('x'), 1)", key, owner)
	b.Exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", owner, key)
}

// Jobs are listed by account, status, state and age. Unknown, stuck and given-up jobs are
// recognisable. The provider's object is not shown.
func TestVideoJobs(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(1), b.Account(1)
	store := videostore.New(b.DB)
	insert := func(owner string, age time.Duration, upstream, status, fault string) string {
		t.Helper()
		k := b.Key(owner, "")
		v := &event.Video{
			V: 1, ID: ident.Video.Format(ident.NewAt(time.Now().Add(-age))), RequestID: ident.Request.New(), AccountID: owner, KeyID: k.ID, Model: "demo-video",
			Provider: "prv_1", Route: "rte_1", UpstreamID: upstream, Status: event.VideoQueued, Seconds: 4, PriceVersion: 2, Object: []byte(`{"prompt":"a secret"}`),
		}
		_, err := store.Insert(t.Context(), v)
		servertest.Check(t, err)
		id, err := ident.Video.Parse(v.ID)
		servertest.Check(t, err)
		b.Exec("update video_jobs set created_at = created_at - $2::interval where id = $1", id, age)
		if status != event.VideoQueued {
			v.Rev, v.Status, v.Error = 1, status, fault
			v.Object = []byte(`{"prompt":"a secret","error":{"code":"moderation_blocked","message":"a secret was asked for"}}`)
			_, err := store.Update(t.Context(), v)
			servertest.Check(t, err)
		}
		return v.ID
	}
	jobs := map[adminclient.VideoState]string{
		adminclient.VideoStateStuck:      insert(a.ID, 3*time.Hour, "up-1", event.VideoInProgress, ""),
		adminclient.VideoStateUnknown:    insert(a.ID, 10*time.Minute, "", event.VideoQueued, ""),
		adminclient.VideoStateQueued:     insert(a.ID, time.Minute, "", event.VideoQueued, ""),
		adminclient.VideoStateInProgress: insert(other.ID, 10*time.Minute, "up-2", event.VideoInProgress, ""),
		adminclient.VideoStateCompleted:  insert(other.ID, time.Hour, "up-3", event.VideoCompleted, ""),
		adminclient.VideoStateFailed:     insert(other.ID, time.Hour, "up-4", event.VideoFailed, ""),
		adminclient.VideoStateGivenUp:    insert(other.ID, time.Hour, "", event.VideoFailed, "it was never found"),
	}
	list := func(params adminclient.ListVideoJobsParams) []adminclient.VideoJob {
		t.Helper()
		r, err := servertest.Answered(b.API.ListVideoJobs(t.Context(), &params))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s", r.Body)
		}
		return r.Value.Data
	}
	for state, id := range jobs {
		if found := list(adminclient.ListVideoJobsParams{State: &state}); len(found) != 1 || found[0].ID != id {
			t.Errorf("%s: %+v", state, found)
		}
		r, err := servertest.Answered(b.API.GetVideoJob(t.Context(), id))
		servertest.Check(t, err)
		why := map[adminclient.VideoState]string{
			adminclient.VideoStateFailed: "the provider reports moderation_blocked", adminclient.VideoStateGivenUp: "it was never found",
		}[state]
		if reason := ""; r.StatusCode == http.StatusOK {
			if r.Value.Error != nil {
				reason = *r.Value.Error
			}
			if reason != why {
				t.Errorf("%s: got the reason %q; want %q", state, reason, why)
			}
		}
		if r.StatusCode != http.StatusOK || r.Value.State != state || r.Value.Model != "demo-video" {
			t.Errorf("%s: %s", state, r.Body)
		}
	}
	early := time.Now().Add(-30 * time.Minute)
	failed := adminclient.VideoStatusFailed
	for name, c := range map[string]struct {
		params adminclient.ListVideoJobsParams
		want   int
	}{
		"all": {adminclient.ListVideoJobsParams{}, 7}, "account": {adminclient.ListVideoJobsParams{AccountID: &a.ID}, 3},
		"status": {adminclient.ListVideoJobsParams{Status: &failed}, 2}, "old": {adminclient.ListVideoJobsParams{To: &early}, 4}, "young": {adminclient.ListVideoJobsParams{From: &early}, 3},
	} {
		if got := len(list(c.params)); got != c.want {
			t.Errorf("%s: %d jobs; want %d", name, got, c.want)
		}
	}
	two := 2
	page, err := servertest.Answered(b.API.ListVideoJobs(t.Context(), &adminclient.ListVideoJobsParams{Limit: &two}))
	servertest.Check(t, err)
	rest := list(adminclient.ListVideoJobsParams{Cursor: page.Value.NextCursor})
	if len(page.Value.Data) != 2 || len(rest) != 5 || page.Value.Data[0].ID != jobs[adminclient.VideoStateQueued] {
		t.Errorf("pages of %d and %d jobs; want 2 and 5, the newest first", len(page.Value.Data), len(rest))
	}
	missing, err := servertest.Answered(b.API.GetVideoJob(t.Context(), ident.Video.New()))
	servertest.Check(t, err)
	servertest.Problem(t, missing.Problem, http.StatusNotFound, "not_found")

	sum, err := store.Summary(t.Context())
	servertest.Check(t, err)
	if sum.Jobs["unknown"] != 1 || sum.Jobs["stuck"] != 1 || sum.Jobs["given_up"] != 1 || sum.Jobs["queued"] != 1 || sum.Jobs["in_progress"] != 1 || sum.OldestOpen < 3*time.Hour {
		t.Errorf("summary %+v", sum)
	}
}

// hasty is a store whose events are dismissed as soon as they are read.
type hasty struct{ settle.QuarantineStore }

func (h hasty) GetQuarantined(ctx context.Context, id int64) (settle.Quarantined, error) {
	found, err := h.QuarantineStore.Get(ctx, id)
	if err == nil {
		_, err = h.Resolve(ctx, id, settle.Dismissed, "given up")
	}
	return found, err
}

// An event that was charged is not shown as dismissed.
func TestReleasedEventIsNotShownAsDismissed(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	keyID := ident.Key.New()
	faulty(b.Proxy("proxy-1"), a.ID, keyID)
	key, err := ident.Key.Parse(keyID)
	servertest.Check(t, err)
	owner, err := ident.Account.Parse(a.ID)
	servertest.Check(t, err)
	b.Exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'found again', sha256('x'), 1)", key, owner)
	b.Exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", owner, key)
	store := moneystore.NewQuarantine(b.DB)
	id := b.number("select id from quarantine where reason = 'there is no such key'")
	got, err := settle.NewQuarantine(hasty{store}, settle.New(moneystore.NewSettlement(b.DB), nil)).Release(t.Context(), id)
	if err != nil || got.Resolution != settle.Released || got.Note != "" {
		t.Errorf("released: got %+v, %v", got, err)
	}
	if n := b.number("select coalesce(sum(cost), 0) from usage_records"); n != 70 {
		t.Errorf("%d was charged; want 70", n)
	}
	if _, err := store.Resolve(t.Context(), id, settle.Dismissed, "too late"); !errors.Is(err, settle.ErrAlreadyResolved) {
		t.Errorf("dismissed afterwards: got %v", err)
	}
}
