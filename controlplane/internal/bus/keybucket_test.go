package bus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/keybucket"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// keyWriter returns the writer of a replica.
func (p *env) keyWriter(b *bus.Bus) *keybucket.Writer {
	return keybucket.New(leasestore.NewLeases(p.db), b, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// writeKeys lets a writer write until the bucket is complete.
func (p *env) writeKeys(w *keybucket.Writer) {
	p.t.Helper()
	complete, err := w.Round(p.t.Context())
	if err != nil || !complete {
		p.t.Fatalf("the bucket is complete: %t, %v", complete, err)
	}
}

// addKeys adds keys to the account, in a revision of their own, and returns their hashes.
func (p *env) addKeys(n int) (hashes []apikey.Hash) {
	p.t.Helper()
	rev := p.queryInt("update cluster_state set revision = revision + 1 returning revision")
	for range n {
		id := ident.New()
		hashes = append(hashes, apikey.Hash(append(id[:], p.account[:]...)))
	}
	p.exec(`
		with added as (
			insert into api_keys (id, account_id, name, lookup_hash, revision)
			select encode(substring(hash for 16), 'hex')::uuid, $1, 'key ' || encode(hash, 'hex'), hash, $2 from unnest($3::bytea[]) hash
			returning id, account_id
		)
		insert into pools (account_id, kind, key_id, unlimited) select account_id, 2, id, true from added`, p.account, rev, bytesOf(hashes))
	return hashes
}

// bytesOf returns hashes as Postgres takes them.
func bytesOf(hashes []apikey.Hash) [][]byte {
	all := make([][]byte, len(hashes))
	for i := range hashes {
		all[i] = hashes[i][:]
	}
	return all
}

// keysIn returns what the bucket of key records has.
func (p *env) keysIn() (entries map[apikey.Hash]wire.KeyEntry, mark wire.KeyMark) {
	p.t.Helper()
	js := natstest.JetStream(p.t, p.server.Connect())
	stream, err := js.Stream(p.t.Context(), subject.KeyStream)
	if err != nil {
		p.t.Fatal(err)
	}
	entries = map[apikey.Hash]wire.KeyEntry{}
	info, err := stream.Info(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(p.t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		p.t.Fatal(err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(int(info.State.Msgs) + 1))
	if err != nil {
		p.t.Fatal(err)
	}
	defer messages.Stop()
	for range info.State.Msgs {
		m, err := messages.Next()
		if err != nil {
			p.t.Fatal(err)
		}
		var entry wire.KeyEntry
		into := any(&entry)
		if m.Subject() == subject.KeyPrefix+subject.KeyMark {
			into = &mark
		}
		if err := json.Unmarshal(m.Data(), into); err != nil {
			p.t.Errorf("%s: %s: %v", m.Subject(), m.Data(), err)
		}
		if entry.Record.KeyID != "" {
			if m.Subject() != subject.KeyPrefix+entry.Hash.String() {
				p.t.Errorf("%s has the entry of %s", m.Subject(), entry.Hash)
			}
			entries[entry.Hash] = entry
		}
	}
	return entries, mark
}

// checkKeys compares the bucket with Postgres.
func (p *env) checkKeys() {
	p.t.Helper()
	entries, mark := p.keysIn()
	store := leasestore.NewLeases(p.db)
	head, err := store.Head(p.t.Context())
	if err != nil || mark != head {
		p.t.Errorf("the bucket has the mark %+v; want %+v, %v", mark, head, err)
	}
	page, err := store.Keys(p.t.Context(), 0, ident.UUID{}, 1<<20)
	if err != nil {
		p.t.Fatal(err)
	}
	wanted, err := store.KeyEntries(p.t.Context(), page.Hashes)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, want := range wanted {
		got := entries[want.Hash]
		delete(entries, want.Hash)
		if got.Revision > mark.Revision || got.Epoch != mark.Epoch {
			p.t.Errorf("%s was read at epoch %d and revision %d; want at most %+v", want.Hash, got.Epoch, got.Revision, mark)
		}
		got.Revision = want.Revision
		if diff := cmp.Diff(want, got); diff != "" {
			p.t.Errorf("%s differs: %s", want.Hash, diff)
		}
	}
	if len(entries) > 0 {
		p.t.Errorf("the bucket has %d entries that no key has", len(entries))
	}
}

func TestBucketFollowsKeysAndAccounts(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	hashes := append(p.addKeys(600), p.hash) // more than are appended at once
	w := p.keyWriter(p.connect(asPlane))
	p.writeKeys(w)
	p.checkKeys()
	next := "with head as (update cluster_state set revision = revision + 1 returning revision) "
	further := apikey.Hash{1, 2, 3}
	for name, change := range map[string]string{
		"revoked key":       next + fmt.Sprintf("update api_keys set revoked_at = now(), revision = head.revision from head where lookup_hash = '\\x%s'", hashes[7]),
		"suspended account": next + "update accounts set status = 'suspended', revision = head.revision from head",
		"further hash":      next + fmt.Sprintf("insert into key_hashes (hash, key_id, pepper_id, revision) select '\\x%s', '%s', 'p', revision from head", further, uuid(p.key)),
		"other change":      "update cluster_state set revision = revision + 1",
	} {
		p.exec(change)
		if entries, mark := p.keysIn(); mark.Revision == 0 || len(entries) < 601 {
			t.Fatalf("%s: the bucket has %d entries, mark %+v", name, len(entries), mark)
		}
		p.writeKeys(w)
		p.checkKeys()
	}
	p.addKeys(3)
	p.writeKeys(w)
	p.checkKeys()
	entries, _ := p.keysIn()
	if got := entries[hashes[7]]; got.Record.Active {
		t.Errorf("a revoked key of a suspended account is active: %+v", got)
	}
	if got := entries[further].Record.KeyID; got != ident.Key.Format(p.key) {
		t.Errorf("the further hash is of key %q; want %s", got, ident.Key.Format(p.key))
	}
}

// uuid returns an id as Postgres reads it.
func uuid(id ident.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func TestOnlyChangedKeysAreWrittenAgain(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	hashes := p.addKeys(20)
	b := p.connect(asPlane)
	p.writeKeys(p.keyWriter(b))
	before, _ := b.KeyState(t.Context()) // that the bucket is complete was checked
	p.exec("with head as (update cluster_state set revision = revision + 1 returning revision) update api_keys set revision = head.revision from head where lookup_hash = $1", hashes[3][:])
	p.writeKeys(p.keyWriter(b))
	p.writeKeys(p.keyWriter(b))
	if after, err := b.KeyState(t.Context()); err != nil || after.Last != before.Last+2 {
		t.Errorf("%d messages were written by two new writers, %v; want the entry of the changed key and the mark", after.Last-before.Last, err)
	}
}

func TestBucketIsWrittenAgainAfterALoss(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	p.addKeys(5)
	w := p.keyWriter(p.connect(asPlane))
	p.writeKeys(w)
	if err := natstest.JetStream(t, p.server.Connect()).DeleteStream(t.Context(), subject.KeyStream); err != nil {
		t.Fatal(err)
	}
	p.writeKeys(w)
	p.checkKeys()
	p.exec("update cluster_state set cluster_epoch = cluster_epoch + 1, revision = revision + 1000")
	p.writeKeys(w)
	p.checkKeys()
}

// A stolen proxy can make NATS send a reply to a subject of the bucket. It does not
// count as an entry, and the entry is written again.
func TestReplyInTheBucketIsNoKeyRecord(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	p.addKeys(5)
	b := p.connect(asPlane)
	w := p.keyWriter(b)
	p.writeKeys(w)
	for _, name := range []string{p.hash.String(), "x", subject.KeyMark} {
		before, err := b.KeyState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		request := fmt.Appendf(nil, `{"last_by_subj":%q}`, subject.KeyPrefix+p.hash.String())
		if err := p.proxy.PublishRequest("$JS.API.STREAM.MSG.GET."+subject.KeyStream, subject.KeyPrefix+name, request); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the reply in the bucket", func() bool {
			after, err := b.KeyState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return after.Last > before.Last
		})
		found, _, err := b.NextKeyEntry(t.Context(), before.Last)
		if err != nil || !found.Foreign {
			t.Errorf("%s: the reply is taken for one of a control plane: %+v, %v", name, found, err)
		}
		p.writeKeys(w)
		entries, mark := p.keysIn()
		if got := entries[p.hash]; got.Record.KeyID == "" || mark.Revision == 0 {
			t.Errorf("%s: the bucket has %+v, mark %+v; want the key's record", name, got, mark)
		}
	}
}

func TestReplicasWriteOneBucket(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	p.addKeys(1100)
	first, second := p.connect(asPlane), p.connect(asPlane)
	state, err := first.KeyState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.writeKeys(p.keyWriter(second))
	late := []wire.KeyEntry{{V: wire.Version, Hash: p.hash, Epoch: 1, Revision: 1}}
	if _, err := first.AppendKeys(t.Context(), state.Last, late, nil); !errors.Is(err, keybucket.ErrOvertaken) {
		t.Errorf("an entry behind a message that is not the last: got %v; want %v", err, keybucket.ErrOvertaken)
	}
	p.addKeys(3)
	p.writeKeys(p.keyWriter(first))
	p.writeKeys(p.keyWriter(second))
	p.checkKeys()
}

func TestBucketInACluster(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	p := newEnv(t)
	p.addKeys(1100)
	b, err := bus.Connect(bus.Config{URL: c.URL(), Name: "replica", Replicas: c.Len()}, new(streamCounter), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w := p.keyWriter(b)
	complete := func() {
		t.Helper()
		await.Until(t, "the bucket to be complete", func() bool {
			done, err := w.Round(t.Context())
			return done && err == nil
		})
	}
	complete()
	p.addKeys(600)
	c.Kill(c.StreamLeader(subject.KeyStream))
	complete()
	state, err := b.KeyState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head, err := leasestore.NewLeases(p.db).Head(t.Context())
	if err != nil || state.Mark != head || state.At != state.Last {
		t.Errorf("the bucket has %+v; want the mark %+v at its end, %v", state, head, err)
	}
	found, _, err := b.NextKeyEntry(t.Context(), state.Last-2)
	if err != nil || found.Foreign || found.Hash == (apikey.Hash{}) {
		t.Errorf("%+v lies before the mark, %v; want the entry of a key", found, err)
	}
}
