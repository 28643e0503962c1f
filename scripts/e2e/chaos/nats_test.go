package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/subject"
)

func TestNATSIsRestartedUnderLoad(t *testing.T) {
	rig.Long(t)
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for range 2 {
		l.r.RestartNATS(t, nil)
		l.await(t, 20, on(0))
		l.await(t, 20, on(1))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// NATS loses recent writes, as in a power cut: it restarts with an earlier state of its files
// and a truncated last record. The lost events were acknowledged but not settled. The proxies
// publish them again.
func TestChaos_nats_powercut_replay(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	release := holdSettlement(t, l)
	l.await(t, 20, answered)
	copied := filepath.Join(t.TempDir(), "nats")
	l.r.RestartNATS(t, func(dir string) error { return os.CopyFS(copied, os.DirFS(dir)) })
	kept := lastMessage(t, l.r, 0)
	l.await(t, 60, answered)
	lost := lastMessage(t, l.r, kept.Sequence)
	l.r.RestartNATS(t, func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied)), tear(dir))
	})
	// The proxies publish again at once, so that the sequence number may belong to another message.
	switch again, err := usageStream(t, l.r).GetMsg(t.Context(), lost.Sequence); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		t.Fatal(err)
	case again.Time.Equal(lost.Time):
		t.Errorf("message %d is still there; want it to be lost", lost.Sequence)
	}
	release()
	for proxy := range l.r.Proxies {
		l.await(t, 10, on(proxy))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// The usage stream is full: nothing is settled, and the proxies serve on from their spools.
// When it has room again, every request is charged once.
func TestChaos_usage_stream_full(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 40, answered)
	js := l.r.JetStream(t)
	resize := func(limit func(s jetstream.StreamState) int64) {
		t.Helper()
		info := usageStream(t, l.r).CachedInfo()
		config := info.Config
		config.MaxBytes = limit(info.State)
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	resize(func(s jetstream.StreamState) int64 { return int64(s.Bytes) })
	l.await(t, 60, answered)
	if _, err := js.Publish(t.Context(), subject.Usage("nobody", 1<<40), make([]byte, 10_000)); err == nil {
		t.Error("the stream takes messages; want it to be full")
	}
	resize(func(jetstream.StreamState) int64 { return -1 })
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// The usage stream is deleted while it has unsettled events. The control plane creates it
// again, and the proxies publish again.
func TestChaos_nats_stream_deleted(t *testing.T) {
	rig.Long(t)
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	release := holdSettlement(t, l)
	l.await(t, 60, answered)
	js := l.r.JetStream(t)
	if err := js.DeleteStream(t.Context(), subject.UsageStream); err != nil {
		t.Fatal(err)
	}
	release()
	for proxy := range l.r.Proxies {
		l.await(t, 20, on(proxy))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// holdSettlement blocks settlement by a lock in Postgres, until it is released or the test
// ends.
func holdSettlement(t *testing.T, l *load) (release func()) {
	t.Helper()
	return lockTable(t, l.r, "usage_records")
}

// usageStream waits for the usage stream.
func usageStream(t *testing.T, r *rig.Rig) (stream jetstream.Stream) {
	t.Helper()
	js := r.JetStream(t)
	rig.Await(t, "the usage stream", func(ctx context.Context) (err error) {
		stream, err = js.Stream(ctx, subject.UsageStream)
		return err
	})
	return stream
}

// lastMessage waits for a message of the usage stream after a sequence number, and returns the
// last one.
func lastMessage(t *testing.T, r *rig.Rig, after uint64) (last *jetstream.RawStreamMsg) {
	t.Helper()
	stream := usageStream(t, r)
	rig.Await(t, "a message of the usage stream", func(ctx context.Context) error {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.LastSeq <= after {
			return fmt.Errorf("the last message has number %d; want one after %d", info.State.LastSeq, after)
		}
		last, err = stream.GetMsg(ctx, info.State.LastSeq)
		return err
	})
	return last
}

// tear truncates the last record of the usage stream.
func tear(dir string) error {
	blocks, err := fs.Glob(os.DirFS(dir), filepath.Join("jetstream", "*", "streams", subject.UsageStream, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		return fmt.Errorf("the usage stream has no files: %w", err)
	}
	const lost = 7
	last := filepath.Join(dir, blocks[len(blocks)-1])
	info, err := os.Stat(last)
	if err != nil {
		return err
	}
	return os.Truncate(last, max(info.Size()-lost, 0))
}
