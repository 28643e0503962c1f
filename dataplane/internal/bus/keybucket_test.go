package bus

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/apikey"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// put writes a value to the bucket of key records as the control plane.
func (b *fixture) put(t *testing.T, name string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err == nil {
		_, err = b.js.Publish(t.Context(), subject.KeyPrefix+name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestProxyReadsTheBucketOfKeyRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if mark, _, err := b.KeyMark(await.Context(t)); err == nil {
		t.Errorf("without a bucket: got %+v; want an error", mark)
	}
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.KeyStream, Subjects: []string{subject.KeyPrefix + ">"}, MaxMsgsPerSubject: 1})
	if err != nil {
		t.Fatal(err)
	}
	hash, other := apikey.Hash{1}, apikey.Hash{2}
	if mark, sequence, err := b.KeyMark(await.Context(t)); err != nil || mark.Valid() || sequence != 0 {
		t.Errorf("empty bucket: got the mark %+v at %d, %v; want none", mark, sequence, err)
	}
	if entry, err := b.KeyEntry(await.Context(t), hash); err != nil || entry.Valid(hash) {
		t.Errorf("empty bucket: got the entry %+v, %v; want none", entry, err)
	}
	want := wire.KeyEntry{V: wire.Version, Hash: hash, Epoch: 1, Revision: 7, Record: wire.KeyRecord{KeyID: "key_1", AccountID: "acc_1", Active: true, BalancePool: 3}}
	head := wire.KeyMark{V: wire.Version, Epoch: 1, Revision: 9}
	b.put(t, hash.String(), want)
	b.put(t, subject.KeyMark, head)
	if mark, sequence, err := b.KeyMark(await.Context(t)); err != nil || mark != head || !mark.Valid() || sequence != 2 {
		t.Errorf("got the mark %+v at %d, %v; want %+v at 2", mark, sequence, err, head)
	}
	got, err := b.KeyEntry(await.Context(t), hash)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !got.Valid(hash) {
		t.Errorf("got the entry %+v, %v; difference: %s", got, err, diff)
	}
	if entry, err := b.KeyEntry(await.Context(t), other); err != nil || entry.Valid(other) {
		t.Errorf("key without an entry: got %+v, %v; want none", entry, err)
	}
}

// A stolen proxy can make NATS send a reply to a subject of the bucket.
func TestReplyInTheBucketOfKeyRecordsIsNoEntry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.KeyStream, Subjects: []string{subject.KeyPrefix + ">"}, MaxMsgsPerSubject: 1})
	if err != nil {
		t.Fatal(err)
	}
	hash := apikey.Hash{1}
	for _, value := range []any{"text", map[string]any{"type": "io.nats.jetstream.api.v1.stream_msg_get_response", "message": map[string]any{"seq": 1}}} {
		b.put(t, hash.String(), value)
		b.put(t, subject.KeyMark, value)
		if mark, _, err := b.KeyMark(await.Context(t)); err != nil || mark.Valid() {
			t.Errorf("%v: got the mark %+v, %v; want none", value, mark, err)
		}
		if entry, err := b.KeyEntry(await.Context(t), hash); err != nil || entry.Valid(hash) {
			t.Errorf("%v: got the entry %+v, %v; want none", value, entry, err)
		}
	}
}
