package bus_test

import (
	"encoding/json"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
)

// A deleted stream has no backups, and the next backup creates it again.
func TestVideoBackupsReturnsNewestStateOfEachJob(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(leasestore.NewRecovery(p.db))
	js := natstest.JetStream(t, p.server.Connect())
	state := func(id string, rev int64) *event.Video {
		return &event.Video{
			V: event.Version, ID: id, RequestID: ident.Request.New(), AccountID: ident.Account.New(), KeyID: ident.Key.New(), Status: event.VideoQueued, Rev: rev,
		}
	}
	backUp := func(id string, rev int64) {
		t.Helper()
		err := natstest.CreateAgain(t.Context(), func() error { return b.BackUpVideo(t.Context(), state(id, rev)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	const jobs = 1100 // more than one fetch returns
	for range jobs {
		v := state(ident.Video.New(), 1)
		payload, err := json.Marshal(v)
		if err == nil {
			_, err = js.PublishAsync(subject.VideoJob(v.ID), payload)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	stream, err := js.Stream(t.Context(), subject.VideoJobStream)
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.GetMsg(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	busy := ident.Video.New()
	for rev := range int64(20) {
		backUp(busy, rev+1)
	}
	if newest, err := b.NewestVideo(t.Context(), busy); err != nil || newest == nil || newest.Rev != 20 {
		t.Errorf("newest backup: got %+v, %v; want revision 20", newest, err)
	}
	read := func(since time.Time) map[string]int64 {
		t.Helper()
		backups, err := b.VideoBackups(t.Context(), since)
		if err != nil {
			t.Fatal(err)
		}
		revs := map[string]int64{}
		for _, k := range backups {
			if k.Fault != "" || revs[k.Video.ID] != 0 {
				t.Errorf("unexpected backup %+v", k)
				continue
			}
			revs[k.Video.ID] = k.Video.Rev
		}
		return revs
	}
	if got := read(time.Time{}); len(got) != jobs+1 || got[busy] != 20 {
		t.Errorf("all backups: %d jobs, the last one at revision %d; want %d and 20", len(got), got[busy], jobs+1)
	}
	if got := read(last.Time.Add(time.Nanosecond)); len(got) != 1 || got[busy] != 20 {
		t.Errorf("backups since then: %v; want one job at revision 20", got)
	}
	if got := read(time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("backups since a later time: %d jobs; want none", len(got))
	}
	if err := js.DeleteStream(t.Context(), subject.VideoJobStream); err != nil {
		t.Fatal(err)
	}
	if got := read(time.Time{}); len(got) != 0 {
		t.Errorf("backups without a stream: %d jobs; want none", len(got))
	}
	if newest, err := b.NewestVideo(t.Context(), busy); newest != nil || err != nil {
		t.Errorf("newest backup without a stream: got %v, %v; want none", newest, err)
	}
	backUp(busy, 21)
	if got := read(time.Time{}); got[busy] != 21 {
		t.Errorf("backups in a new stream: %v; want revision 21", got)
	}
}

// A proxy that got no response to a creation may have stored that no provider has the job. A late first state does not
// replace that.
func TestFirstStateIsBackedUpOnlyIfTheJobHasNoBackup(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(leasestore.NewRecovery(p.db))
	v := &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: ident.Request.New(), AccountID: ident.Account.New(), KeyID: ident.Key.New(), Status: event.VideoFailed, Rev: 2,
	}
	if newest, err := b.NewestVideo(t.Context(), v.ID); newest != nil || err != nil {
		t.Errorf("before the first backup: got %v, %v; want none", newest, err)
	}
	if err := b.BackUpVideo(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	first := *v
	first.Status, first.Rev = event.VideoQueued, 1
	if err := b.BackUpVideo(t.Context(), &first); err == nil {
		t.Error("a first state was stored after a later one")
	}
	late := *v
	late.Status = event.VideoQueued // of a replica that was slow
	if err := b.BackUpVideo(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	if newest, err := b.NewestVideo(t.Context(), v.ID); err != nil || newest == nil || newest.Status != event.VideoFailed {
		t.Errorf("got %+v, %v; want the failed state", newest, err)
	}
	first.ID = ident.Video.New()
	if err := b.BackUpVideo(t.Context(), &first); err != nil {
		t.Errorf("the first state of another job: %v", err)
	}
}

func TestEnqueuePollsQueuesEachJobOnce(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(leasestore.NewRecovery(p.db))
	js := natstest.JetStream(t, p.server.Connect())
	polls := make([]event.VideoPoll, 600)
	for i := range polls {
		polls[i] = event.VideoPoll{V: event.Version, ID: ident.Video.New()}
	}
	for _, some := range [][]event.VideoPoll{polls[:7], polls, nil, polls[500:]} {
		if err := b.EnqueuePolls(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(t.Context(), subject.VideoPollStream)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != uint64(len(polls)) {
		t.Errorf("%d jobs are queued; want %d", got, len(polls))
	}
	if err := js.DeleteStream(t.Context(), subject.VideoPollStream); err != nil {
		t.Fatal(err)
	}
	if err := b.EnqueuePolls(t.Context(), polls...); err == nil {
		t.Error("no error although the stream was deleted")
	}
}
