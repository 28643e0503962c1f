package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/outbox"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// asPlane has the user of a control plane.
var asPlane = bus.Config{User: natsuser.ControlPlane, Password: natstest.Password}

func noMargin(time.Duration) time.Duration { return 0 }

// appender returns the Appender of a replica.
func (p *env) appender(b *bus.Bus, window time.Duration) *changestream.Appender {
	p.t.Helper()
	a := changestream.New(leasestore.NewLeases(p.db), b, window, noMargin, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err := a.Begin(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return a
}

// change commits a change of the account, or of its key.
func (p *env) change(kind wire.KeyChangeKind) (c wire.KeyChange) {
	p.t.Helper()
	err := pgx.BeginFunc(p.t.Context(), p.sql, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		rev, err := q.TakeRevision(p.t.Context())
		if err != nil {
			return err
		}
		var key *sqlcgen.ApiKey
		if kind == wire.KeyRevoked || kind == wire.KeyUpdated {
			key = &sqlcgen.ApiKey{ID: p.key, LookupHash: p.hash[:]}
		}
		c, err = changestore.InsertKeyChange(p.t.Context(), q, rev, kind, p.account, key)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// awaitStreamed runs rounds of appenders until the stream has had every change
// for the window.
func (p *env) awaitStreamed(revision int64, appenders ...*changestream.Appender) {
	p.t.Helper()
	await.Until(p.t, "the changes to be in the stream for the window", func() bool {
		for _, a := range appenders {
			_ = a.Round(p.t.Context()) // a replica repeats a round that fails
		}
		return p.queryInt("select streamed_revision from cluster_state") >= revision
	})
}

// changesIn returns the changes in the stream by subject.
func changesIn(t *testing.T, nc *nats.Conn) map[string]wire.KeyChange {
	t.Helper()
	js := natstest.JetStream(t, nc)
	stream, err := js.Stream(t.Context(), subject.ChangeStream)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]wire.KeyChange{}
	for seq := uint64(1); ; seq++ {
		m, err := stream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject(subject.ChangeAll))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		seq = m.Sequence
		var c wire.StreamChange
		if err := json.Unmarshal(m.Data, &c); err != nil || !c.Valid() {
			t.Errorf("%s has %q, which is no change: %v", m.Subject, m.Data, err)
		}
		found[m.Subject] = c.Change
	}
}

// pending is the number of messages of a subscription that the server sent
// before it answers a ping behind them.
func pending(t *testing.T, nc *nats.Conn, s *nats.Subscription) int {
	t.Helper()
	natstest.Flush(t, nc)
	n, _, err := s.Pending()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReplicasAppendEachChangeOnceAndTellProxies(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	before := p.change(wire.AccountUpdated)
	told, err := p.proxy.SubscribeSync(subject.ChangedAll)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, p.proxy)
	const window = 30 * time.Millisecond
	first, second := p.appender(p.connect(asPlane), window), p.appender(p.connect(asPlane), window)
	updated, revoked, account := p.change(wire.KeyUpdated), p.change(wire.KeyRevoked), p.change(wire.AccountUpdated)
	p.awaitStreamed(account.Revision, first, second)
	got := changesIn(t, p.server.Connect())
	for _, c := range []wire.KeyChange{updated, revoked, account} {
		if got[c.Subject()] != c {
			t.Errorf("%s: the stream has %+v; want %+v", c.Subject(), got[c.Subject()], c)
		}
		m, err := told.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var sent wire.StreamChange
		if err := json.Unmarshal(m.Data, &sent); err != nil || sent.Change != c {
			t.Errorf("proxies are told %s %s, %v; want %+v", m.Subject, m.Data, err, c)
		}
	}
	if len(got) != 3 || before.Revision >= updated.Revision {
		t.Errorf("the stream has %d changes; want the three that were made after the setting was used", len(got))
	}
	if n := pending(t, p.proxy, told); n != 0 {
		t.Errorf("%d changes were appended twice", n)
	}
	// A replica that starts later appends nothing again.
	third := p.appender(p.connect(asPlane), window)
	if err := third.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := pending(t, p.proxy, told); n != 0 {
		t.Error("a replica that starts appends changes that the stream has had for the window")
	}
}

// Another replica continues with a change whose replica has ended.
func TestChangeThatTheStreamLosesIsAppendedAgain(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connect(asPlane)
	patient := p.appender(b, time.Hour)
	c := p.change(wire.KeyRevoked)
	if err := patient.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc := p.server.Connect()
	js := natstest.JetStream(t, nc)
	incarnation := func() string {
		stream, err := js.Stream(t.Context(), subject.ChangeStream)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config.Metadata[subject.IncarnationKey]
	}
	next := p.appender(p.connect(asPlane), time.Millisecond)
	if len(changesIn(t, nc)) != 1 {
		t.Fatal("the change is not in the stream")
	}
	if err := next.Round(t.Context()); err != nil { // it finds the change of the other replica
		t.Fatal(err)
	}
	before := incarnation()
	if err := js.DeleteStream(t.Context(), subject.ChangeStream); err != nil {
		t.Fatal(err)
	}
	p.awaitStreamed(c.Revision, next)
	if got := changesIn(t, nc); got[c.Subject()] != c {
		t.Errorf("the new stream has %+v; want %+v", got, c)
	}
	if after := incarnation(); before == "" || after == "" || after == before {
		t.Errorf("the incarnation of the stream was %q and is %q; want another", before, after)
	}
	if err := p.connect(asPlane).KeepChanges(t.Context(), time.Second); err != nil || incarnation() == before {
		t.Error(err)
	}
}

// The stream keeps one message per subject, so the older change must not replace
// the newer one, nor what NATS has put there on behalf of a proxy stay.
func TestOlderChangeReplacesNoNewerOne(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connect(asPlane)
	a := p.appender(b, time.Millisecond)
	older, newer := p.change(wire.AccountUpdated), p.change(wire.AccountUpdated)
	nc := p.server.Connect()
	foreign := []byte(`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{}}`)
	if _, err := natstest.JetStream(t, nc).Publish(t.Context(), newer.Subject(), foreign); err != nil {
		t.Fatal(err)
	}
	_, _, sequence, err := b.LastChange(t.Context(), newer.Subject())
	if err != nil || sequence != 1 {
		t.Fatalf("the foreign message is at %d, %v; want 1", sequence, err)
	}
	if _, err := b.AppendChange(t.Context(), &wire.StreamChange{V: 1, ID: "another", Change: newer}, 0); !errors.Is(err, changestream.ErrOvertaken) {
		t.Errorf("appended as the first change of its subject: got %v; want ErrOvertaken", err)
	}
	if _, err := b.AppendChange(t.Context(), &wire.StreamChange{V: 1, ID: "another", Change: newer}, sequence); err != nil {
		t.Fatal(err)
	}
	p.awaitStreamed(newer.Revision, a)
	if got := changesIn(t, nc); got[older.Subject()] != newer || len(got) != 1 {
		t.Errorf("the stream has %+v; want %+v", got, newer)
	}
}

// A tool that only reads does not create the stream.
func TestOnlyAControlPlaneCreatesTheStreamOfChanges(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connect(bus.Config{})
	js := natstest.JetStream(t, p.server.Connect())
	if _, err := b.Window(t.Context()); err == nil {
		t.Error("a stream that is missing says for how long sessions are valid")
	}
	if _, err := js.Stream(t.Context(), subject.ChangeStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("stream of changes: got %v; want none", err)
	}
}

// A change survives the death of the server that leads the stream, and a replica
// on the smaller side of a cut network cannot append one.
func TestChangesOfACluster(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	c := natstest.NewCluster(t, 3)
	replica := func(nodes ...int) *bus.Bus {
		b, err := bus.Connect(bus.Config{URL: c.URL(nodes...), Replicas: 3, Name: "replica"}, leasestore.NewRecovery(p.db), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		t.Cleanup(b.Stop)
		return b
	}
	everywhere := replica()
	if err := everywhere.KeepChanges(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	overtaken(t, everywhere)
	a := p.appender(everywhere, 20*time.Millisecond)
	first := p.change(wire.KeyUpdated)
	if err := a.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := c.StreamLeader(subject.ChangeStream)
	c.Kill(dead)
	second := p.change(wire.KeyRevoked)
	p.awaitStreamed(second.Revision, a)
	c.Node(dead).Start()
	got := changesIn(t, c.Connect(c.StreamLeader(subject.ChangeStream)))
	if got[first.Subject()] != first || got[second.Subject()] != second {
		t.Errorf("the stream has %+v; want both changes", got)
	}

	alone := c.StreamLeader(subject.ChangeStream)
	lonely := replica(alone)
	c.Cut(alone)
	third := wire.KeyChange{V: 1, Revision: 100, Kind: wire.AccountUpdated, Account: "acc"}
	if at, err := lonely.AppendChange(t.Context(), &wire.StreamChange{V: 1, ID: "lonely", Change: third}, 0); err == nil {
		t.Errorf("a server without the others has acknowledged a change at %+v", at)
	}
}

// In a cluster, a stream that another replica is creating has a name and cannot be found.
func TestReplicasDeclareTheStreamsOfAClusterAtOnce(t *testing.T) {
	t.Parallel()
	p, c := newEnv(t), natstest.NewCluster(t, 3)
	var replicas []*bus.Bus
	for range 6 {
		b, err := bus.Connect(bus.Config{URL: c.URL(), Replicas: c.Len(), Name: "replica"}, leasestore.NewRecovery(p.db), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		t.Cleanup(b.Stop)
		replicas = append(replicas, b)
	}
	js := natstest.JetStream(t, c.Connect())
	for range 3 {
		var all sync.WaitGroup
		for _, b := range replicas {
			all.Go(func() {
				if err := errors.Join(b.KeepChanges(t.Context(), time.Second), b.Declare(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, name := range []string{subject.ChangeStream, subject.VideoPollStream, subject.VideoJobStream} {
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
	}
}

// overtaken checks that a replica finds out that another one was faster: a cluster
// has an error code of its own for it.
func overtaken(t *testing.T, b *bus.Bus) {
	t.Helper()
	c := wire.KeyChange{V: 1, Revision: 50, Kind: wire.AccountUpdated, Account: "other"}
	if _, err := b.AppendChange(t.Context(), &wire.StreamChange{V: 1, ID: "late", Change: c}, 1); !errors.Is(err, changestream.ErrOvertaken) {
		t.Errorf("append behind a message that is not the last of its subject: got %v; want ErrOvertaken", err)
	}
	if _, err := b.Put(t.Context(), catalog.Entry{Subject: "model.x", Payload: []byte("0")}, 70); !errors.Is(err, outbox.ErrOvertaken) {
		t.Errorf("write a catalog entry at an outdated position: got %v; want ErrOvertaken", err)
	}
	members := rollback.Membership{Members: map[string]rollback.Member{}}
	if ok, err := b.PutMembership(t.Context(), members, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := b.PutMembership(t.Context(), members, 70); ok || err != nil {
		t.Errorf("write the membership over another one: got %t, %v; want that it is refused", ok, err)
	}
}

// Nobody acknowledges the revocation: the session's proxy is cut off.
func TestRevocationIsEffectiveByTheStream(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	const window = 50 * time.Millisecond
	b := p.connect(asPlane)
	a := p.appender(b, window)
	p.exec("update proxy_sessions set state = 3")
	s := leasing.New(leasing.Config{Window: window, Changes: b, Append: a.Append}, leasestore.NewLeases(p.db), b,
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	registered, err := s.Register(t.Context(), &wire.RegisterRequest{V: 1, Name: "proxy", BootID: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	c := p.change(wire.KeyRevoked)
	p.exec("update api_keys set revoked_at = now(), revision = $2 where id = $1", p.key, c.Revision)
	confirmed, err := s.Announce(t.Context(), c)
	stop()
	running.Wait()
	if err != nil || !confirmed.Effective || len(confirmed.ConfirmedBy()) != 0 {
		t.Errorf("got %+v, %v; want it effective, by no acknowledgement", confirmed, err)
	}
	if state := p.queryInt("select state from proxy_sessions where id = $1", int64(registered.Session)); state != 1 {
		t.Errorf("the session has state %d; want it active: its proxy may only be slow", state)
	}
}

// An operator revokes a key while no control plane runs. The next one takes it in,
// and nothing else that lies there.
func TestDirectRevocationIsTakenIn(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	plane := p.connect(asPlane)
	const window = 30 * time.Millisecond
	a := p.appender(plane, window)
	operator := p.connectOperator()
	told, err := p.proxy.SubscribeSync(subject.ChangedAll)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, p.proxy)
	// A stolen proxy cannot hold up a revocation, whatever it sends as a heartbeat.
	js := natstest.JetStream(t, p.proxy) // an acknowledged message is stored; one that the server has received need not be
	if _, err := js.Publish(t.Context(), subject.From(subject.FreshBeat, "proxy"), []byte(`{"window_ms":9000000000}`)); err != nil {
		t.Fatal(err)
	}
	var notes []string
	began := time.Now()
	second := apikey.Hash{5}
	err = changestream.Revoke(t.Context(), operator, []apikey.Hash{p.hash, second}, noMargin, func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) })
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "2 revocations") || !strings.Contains(notes[0], "30ms") || time.Since(began) < window {
		t.Errorf("after %v: %q, %v; want it confirmed after the window", time.Since(began), notes, err)
	}
	for _, hash := range []apikey.Hash{p.hash, second} {
		m, err := told.NextMsgWithContext(t.Context())
		if err != nil || m.Subject != subject.ChangedPrefix+"direct."+hash.String() {
			t.Fatalf("proxies are told %v, %v; want the revocation of %s", m, err, hash)
		}
	}
	// The window of the stream becomes longer with that of any replica, and never shorter.
	for _, of := range []time.Duration{time.Minute, time.Second} {
		p.appender(p.connect(asPlane), of)
		if longest, err := operator.Window(t.Context()); err != nil || longest != time.Minute {
			t.Errorf("after a replica with the window %v: %v, %v; want %v", of, longest, err, time.Minute)
		}
	}
	unknown := apikey.Hash{9}
	for name, text := range map[string]string{
		subject.ChangeDirect + unknown.String():        `{"v":1,"id":"x","change":{"kind":"key_revoked","key_hash":"` + unknown.String() + `"}}`,
		subject.ChangeDirect + apikey.Hash{8}.String(): `{"v":1,"id":"x","change":{"kind":"key_revoked","key_hash":"` + unknown.String() + `"}}`,
		subject.ChangeDirect + "x":                     "nothing",
		subject.ChangeDirect + apikey.Hash{7}.String(): `{"v":1,"id":"x","change":{"revision":5,"kind":"key_revoked","key_hash":"` + apikey.Hash{7}.String() + `"}}`,
	} {
		if err := p.server.Connect().Publish(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	keys := key.NewService(key.Config{Store: accountstore.NewKeys(p.db), Announcer: nobody{}, Log: slog.New(slog.DiscardHandler), RevokeTimeout: time.Second})
	recorded := &recordedKeys{Service: keys}
	intake := changestream.NewIntake(plane, recorded, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	await.Until(t, "three revocations", func() bool { // the messages above were not acknowledged
		if err := intake.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(recorded.asked) >= 3
	})
	if diff := cmp.Diff([]apikey.Hash{p.hash, second, unknown}, recorded.asked); diff != "" {
		t.Errorf("revoked keys (-want +got):\n%s", diff)
	}
	if n := p.queryInt("select count(*) from api_keys where id = $1 and revoked_at is not null", p.key); n != 1 {
		t.Error("the key is not revoked in Postgres")
	}
	if n := p.queryInt("select count(*) from audit_log where action = 'key.revoke' and actor = 'operator of NATS'"); n != 1 {
		t.Errorf("%d audit entries of the revocation; want one", n)
	}
	p.awaitStreamed(p.queryInt("select max(revision) from key_changes"), a)
}

// A leaked list may have a secret that a rotation has ended: whoever has it can do nothing with it, and the key with its new secret
// did not leak. A secret in its overlap when the operator revoked it revokes its key, also if the overlap has ended since.
func TestDirectRevocationOfAnEndedSecretRevokesNoKey(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	plane, operator := p.connect(asPlane), p.connectOperator()
	p.appender(plane, time.Millisecond)
	ended, previous := apikey.Hash{5}, apikey.Hash{6}
	for hash, secret := range map[apikey.Hash]string{ended: "ended", previous: "previous"} {
		p.exec("insert into key_hashes (hash, key_id, secret, revision) values ($1, $2, $3, 1)", hash[:], p.key, secret)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	keys := key.NewService(key.Config{Store: accountstore.NewKeys(p.db), Announcer: nobody{}, Log: logger, RevokeTimeout: time.Second})
	intake := changestream.NewIntake(plane, keys, logger, prometheus.NewRegistry())
	for _, test := range []struct {
		what     string
		hash     apikey.Hash
		until    string
		revoked  int64
		isLogged bool
	}{
		{"ended by the next rotation", ended, "null", 0, true},
		{"ended by time", previous, "now() - interval '1 hour'", 0, true},
		{"in its overlap when it was revoked", previous, "now()", 1, false},
	} {
		log.Reset()
		if err := changestream.Revoke(t.Context(), operator, []apikey.Hash{test.hash}, noMargin, func(string, ...any) {}); err != nil {
			t.Fatal(err)
		}
		p.exec("update api_keys set previous_until = "+test.until+" where id = $1", p.key)
		if err := intake.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := p.queryInt("select count(*) from api_keys where id = $1 and revoked_at is not null", p.key); n != test.revoked {
			t.Errorf("%s: %d keys are revoked; want %d", test.what, n, test.revoked)
		}
		if got := strings.Contains(log.String(), "its key stays valid"); got != test.isLogged {
			t.Errorf("%s: the log says it: %t; want %t\n%s", test.what, got, test.isLogged, &log)
		}
	}
}

// recordedKeys records which keys it was asked to revoke.
type recordedKeys struct {
	*key.Service
	asked []apikey.Hash
}

func (k *recordedKeys) RevokeByHash(ctx context.Context, hash apikey.Hash, moment time.Time) (key.Revocation, error) {
	k.asked = append(k.asked, hash)
	return k.Service.RevokeByHash(ctx, hash, moment)
}

// nobody announces changes to no proxy.
type nobody struct{}

func (nobody) Announce(context.Context, wire.KeyChange) (propagation.Confirmation, error) {
	return propagation.Confirmation{}, nil
}

// connectOperator connects with the user of operators, which can do nothing else.
func (p *env) connectOperator() *bus.Bus {
	p.t.Helper()
	b, err := bus.Connect(bus.Config{URL: p.server.URL(), User: natsuser.Operator, Password: natstest.Password, Inbox: subject.OperatorInbox}, nil,
		slog.New(violations{slog.DiscardHandler, p.t}))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(b.Close)
	return b
}
