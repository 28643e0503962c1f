package bus_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// rogue is a connection with the password of a proxy, in the hands of an attacker.
type rogue struct {
	*nats.Conn
	t       *testing.T
	refused chan error
}

// connectRogue connects as a user of the data plane.
func (p *env) connectRogue(user string) *rogue {
	p.t.Helper()
	r := &rogue{t: p.t, refused: make(chan error, 100)}
	r.Conn = p.server.Connect(nats.UserInfo(user, natstest.Password), nats.CustomInboxPrefix(subject.Inbox("rogue")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { r.refused <- err }))
	return r
}

// wantRefused checks that NATS has refused the last message or subscription.
func (r *rogue) wantRefused(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	natstest.Flush(r.t, r.Conn)
	select { // NATS answers a ping after the refusal of what came before
	case err := <-r.refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), what) {
			r.t.Errorf("%s: got %v; want a permissions violation", what, err)
		}
	case <-r.t.Context().Done():
		r.t.Errorf("%s was not refused", what)
	}
}

func TestPasswordOfOneProxyOpensNothingOfOthers(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy", "rogue")
	p.connectReplica(new(streamCounter))
	r := p.connectRogue(natsuser.NameOf("rogue"))
	for _, what := range []string{
		subject.Usage("proxy", int64(p.session)), subject.From(subject.Register, "proxy"), subject.From(subject.LeaseRequest, "proxy"),
		subject.From(subject.NewAnswer("x"), "proxy"), subject.Inbox("proxy") + ".x", subject.ControlInbox + ".x",
	} {
		r.wantRefused(what, r.Publish(what, nil))
	}
	for _, what := range []string{subject.Inbox("proxy") + ".>", subject.ProxyInbox + ".>", subject.FromAll(subject.NewAnswer("*"))} {
		_, err := r.SubscribeSync(what)
		r.wantRefused(what, err)
	}
}

func TestPasswordsOfTheDataPlaneOpenNothingOfTheControlPlane(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "rogue")
	p.connectReplica(new(streamCounter))
	for _, user := range []string{natsuser.NameOf("rogue"), natsuser.DataPlane} {
		r := p.connectRogue(user)
		for _, what := range []string{
			subject.KeyChange, subject.Recall(7), subject.Settled(7), subject.VideoPoll("vid_1"),
			"$KV." + subject.CatalogBucket + ".head", "$KV." + subject.RecoveryBucket + "." + subject.RecoveryMembership,
			"$JS.API.STREAM.DELETE." + subject.UsageStream, "$JS.API.STREAM.PURGE." + subject.UsageStream,
			"$JS.API.STREAM.UPDATE." + subject.UsageStream, "$JS.API.STREAM.MSG.GET." + subject.UsageStream,
			"$JS.API.CONSUMER.CREATE." + subject.UsageStream + ".x", "$JS.API.CONSUMER.DELETE." + subject.UsageStream + ".settler",
			"$JS.API.CONSUMER.MSG.NEXT." + subject.UsageStream + ".settler",
			"$JS.API.DIRECT.GET.KV_" + subject.RecoveryBucket, "$JS.API.CONSUMER.CREATE.KV_" + subject.RecoveryBucket + ".x",
			subject.KeyPrefix + subject.KeyMark, "$JS.API.DIRECT.GET." + subject.KeyStream, "$JS.API.CONSUMER.CREATE." + subject.KeyStream + ".x",
			"$JS.API.STREAM.CREATE.X",
		} {
			r.wantRefused(what, r.Publish(what, nil))
		}
		for _, what := range []string{
			">", "_INBOX.>", subject.ControlInbox + ".>", subject.UsageAll, subject.FromAll(subject.LoadKey), subject.VideoJobAll,
			"$KV." + subject.RecoveryBucket + ".>", "$JS.>",
		} {
			_, err := r.SubscribeSync(what)
			r.wantRefused(what, err)
		}
	}
}

func TestControlPlaneMayNotDeleteStreamsNorSpeakForProxies(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	r := p.connectRogue(natsuser.ControlPlane)
	for _, what := range []string{
		"$JS.API.STREAM.DELETE." + subject.UsageStream, "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.PURGE.KV_" + subject.RecoveryBucket,
		subject.Usage("proxy", 1), subject.From(subject.Register, "proxy"), subject.From(subject.NewAnswer("x"), "proxy"),
	} {
		r.wantRefused(what, r.Publish(what, nil))
	}
}

func TestUsageOfASessionOfAnotherProxyIsQuarantined(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy", "rogue")
	marks := p.subscribeWatermarks()
	store := moneystore.NewSettlement(p.db)
	p.connectReplica(new(streamCounter)).ConsumeUsage(settle.New(store, store), prometheus.NewRegistry(), nil)
	js := natstest.JetStream(t, p.connectRogue(natsuser.NameOf("rogue")).Conn)
	if _, err := js.Publish(t.Context(), subject.Usage("rogue", int64(p.session)), p.freeUsage(1, 2), jetstream.WithMsgID(rand.Text())); err != nil {
		t.Fatal(err)
	}
	p.publish(p.freeUsage(1))
	p.awaitWatermark(marks, 1)
	if got := p.queryInt(`select count(*) from quarantine where seq = 0 and session_id = $1 and reason like '%by the proxy "rogue"%'`, p.session); got != 2 {
		t.Errorf("%d forged events in quarantine; want 2", got)
	}
	if got := p.queryInt("select count(*) from usage_records"); got != 1 {
		t.Errorf("%d events are settled; want that of the session's own proxy", got)
	}
}

// freeUsage returns a message with events without a cost, of a model that it makes if there is none.
func (p *env) freeUsage(seqs ...int64) []byte {
	p.t.Helper()
	version := p.queryInt(`with made as (
			insert into models (id, enabled, type, public, spec, revision) values ('model', true, 'text', true, '{}', 1) on conflict do nothing returning id
		), priced as (insert into model_prices (model_id, sheet, effective_from) select id, '{}', now() from made returning version)
		select coalesce((select version from priced), (select version from model_prices where model_id = 'model'))`)
	var batch event.Batch
	if err := json.Unmarshal(p.usage(seqs...), &batch); err != nil {
		p.t.Fatal(err)
	}
	for i, raw := range batch.Events {
		var e event.Usage
		err := json.Unmarshal(raw, &e)
		if err == nil {
			e.Cost, e.Model, e.PriceVersion = 0, "model", version
			batch.Events[i], err = json.Marshal(e)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	payload, err := json.Marshal(batch)
	if err != nil {
		p.t.Fatal(err)
	}
	return payload
}

func TestRegistrationUnderAnotherNameIsDropped(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy", "rogue")
	p.serve()
	r := p.connectRogue(natsuser.NameOf("rogue"))
	register := func(name string) {
		data, err := json.Marshal(wire.RegisterRequest{V: wire.Version, Name: name, BootID: "rogue"})
		if err == nil {
			err = r.PublishRequest(subject.From(subject.Register, "rogue"), subject.Inbox("rogue")+"."+name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	answers, err := r.SubscribeSync(subject.Inbox("rogue") + ".>")
	if err != nil {
		t.Fatal(err)
	}
	register("proxy")
	register("rogue") // handled after the first one
	if m, err := answers.NextMsgWithContext(t.Context()); err != nil || m.Subject != subject.Inbox("rogue")+".rogue" {
		t.Errorf("got %+v, %v; want a response to the registration under the own name only", m, err)
	}
	if got := p.queryInt("select count(*) from proxy_sessions where boot_id = 'rogue' and name = 'proxy'"); got != 0 {
		t.Errorf("%d sessions were opened under the name of another proxy", got)
	}
}

// The control plane may publish where proxies may not, so a request must not choose
// where its response goes.
func TestResponsesGoOnlyToTheInboxOfTheirProxy(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy", "rogue")
	p.serve()
	r := p.connectRogue(natsuser.NameOf("rogue"))
	listener := p.server.Connect()
	heard, err := listener.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, listener)
	data, err := json.Marshal(wire.LoadKeyRequest{KeyHash: p.hash})
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{subject.KeyChange, subject.Settled(1), subject.Inbox("proxy") + ".x", "$KV." + subject.CatalogBucket + ".head", subject.Inbox("rogue") + ".last"} {
		if err := r.PublishRequest(subject.From(subject.LoadKey, "rogue"), reply, data); err != nil {
			t.Fatal(err)
		}
	}
	for {
		m, err := heard.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == subject.Inbox("rogue")+".last" {
			return
		}
		if strings.Contains(string(m.Data), ident.Account.Format(p.account)) {
			t.Errorf("a response was sent to %s", m.Subject)
		}
	}
}

func TestMessagesWithoutTheBootIDOfTheirSessionHaveNoEffect(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	p.serve()
	account := ident.Account.Format(p.account)
	needs := [][]wire.Need{{{Pool: p.balance, Kind: wire.Balance, Amount: 30}}}
	ask := func(boot string, number int64) wire.Status {
		return request[wire.LeaseResponse](p, subject.LeaseRequest, &wire.LeaseRequest{
			V: wire.Version, Session: p.session, BootID: boot, Account: account, Number: number, Needs: needs,
		}).Status
	}
	if got := ask("guessed", 5); got != wire.Fenced {
		t.Errorf("lease request of another proxy: %s; want it refused", got)
	}
	if got := ask("boot", 1); got != wire.Done {
		t.Errorf("lease request of the session: %s", got)
	}
	giveBack := &wire.Return{V: wire.Version, Session: p.session, BootID: "guessed", Account: account, Reports: []wire.LeaseReport{{Pool: p.balance, GrantedSeen: 30, Returned: 30}}}
	if got := request[wire.ReturnResponse](p, subject.Return, giveBack); got.Status != wire.Fenced {
		t.Errorf("return of another proxy: %+v; want it refused", got)
	}
	if got := p.queryInt("select granted - returned from leases where session_id = $1 and pool_id = $2", p.session, p.balance); got < 30 {
		t.Errorf("%d units are left in the lease; want those of the running request", got)
	}
}

// NATS does not check where a request wants its reply, so a proxy can let it write
// the acknowledgement of a stream to the recovery bucket.
func TestAcknowledgementInTheRecoveryBucketIsNoMembership(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "rogue")
	b := p.connectReplica(new(streamCounter))
	members := rollback.Membership{Members: map[string]rollback.Member{"one": {Incarnation: "i", Heartbeat: 3}}}
	if ok, err := b.PutMembership(t.Context(), members, 0); err != nil || !ok {
		t.Fatal(ok, err)
	}
	js := natstest.JetStream(t, p.server.Connect())
	bucket, err := js.KeyValue(t.Context(), subject.RecoveryBucket)
	if err != nil {
		t.Fatal(err)
	}
	r := p.connectRogue(natsuser.NameOf("rogue"))
	if err := r.PublishRequest(subject.Usage("rogue", 1), "$KV."+subject.RecoveryBucket+"."+subject.RecoveryMembership, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	// Whoever is subscribed to the bucket's subjects receives the acknowledgement before the bucket has it.
	await.Until(t, "the acknowledgement of the usage stream in the bucket", func() bool {
		entry, err := bucket.Get(t.Context(), subject.RecoveryMembership)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(entry.Value()), subject.UsageStream)
	})
	if got, _, err := b.Membership(t.Context()); err == nil {
		t.Errorf("the acknowledgement was read as the membership %+v", got)
	}
	// An operator removes the entry. Then the control planes write it again.
	if err := bucket.Delete(t.Context(), subject.RecoveryMembership); err != nil {
		t.Fatal(err)
	}
	none, revision, err := b.Membership(t.Context())
	if err != nil || len(none.Members) != 0 {
		t.Fatalf("got %+v, %v; want no membership", none, err)
	}
	for i, want := range []bool{true, false} {
		if ok, err := b.PutMembership(t.Context(), members, revision); err != nil || ok != want {
			t.Errorf("write %d of the removed membership: got %v, %v; want %v", i+1, ok, err, want)
		}
	}
	if got, _, err := b.Membership(t.Context()); err != nil || len(got.Members) != 1 {
		t.Errorf("got %+v, %v; want the membership", got, err)
	}
}

// A name that is no hash must not keep control planes from the revocations beside it when Postgres has lost commits.
func TestForeignEntryInTheRecoveryBucketHidesNoRevocation(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "rogue")
	b := p.connectReplica(new(streamCounter))
	hash := apikey.Hash{1, 2, 3}
	await.Until(t, "the record of a revocation, for which a control plane waits half a second", func() bool {
		return b.RecordRevocation(t.Context(), wire.KeyChange{KeyHash: hash}) == nil
	})
	js := natstest.JetStream(t, p.server.Connect())
	r := p.connectRogue(natsuser.NameOf("rogue"))
	if err := r.PublishRequest(subject.Usage("rogue", 1), "$KV."+subject.RecoveryBucket+"."+subject.RecoveryRevoked+"x", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the acknowledgement in the bucket", func() bool {
		bucket, err := js.KeyValue(t.Context(), subject.RecoveryBucket)
		if err == nil {
			_, err = bucket.Get(t.Context(), subject.RecoveryRevoked+"x")
		}
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	if got, err := b.RevokedKeys(t.Context()); err != nil || !slices.Equal(got, []apikey.Hash{hash}) {
		t.Errorf("got %v, %v; want the revoked key", got, err)
	}
}
