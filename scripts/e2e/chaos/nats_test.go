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
	long(t)
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

// NATS loses what it has stored of late, as in a power cut: it comes back with
// what its files held earlier, the last record torn. What it had acknowledged
// since, and nobody had settled, comes from the proxies once more.
func TestChaos_nats_powercut_replay(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	letGo := holdSettlement(t, l)
	l.await(t, 20, answered)
	copied := filepath.Join(t.TempDir(), "nats")
	l.r.RestartNATS(t, func(dir string) error { return os.CopyFS(copied, os.DirFS(dir)) })
	l.await(t, 60, answered)
	messages := streamLength(t, l.r)
	l.r.RestartNATS(t, func(dir string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied)), tear(dir))
	})
	if left := streamLength(t, l.r); left >= messages {
		t.Errorf("the stream has %d messages after %d; want some to be lost", left, messages)
	}
	letGo()
	for proxy := range l.r.Proxies {
		l.await(t, 10, on(proxy))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// The usage stream is deleted while there is usage in it that nobody has
// settled. The control plane makes it anew, and the proxies publish again.
func TestChaos_nats_stream_deleted(t *testing.T) {
	long(t)
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	letGo := holdSettlement(t, l)
	l.await(t, 60, answered)
	js, err := jetstream.New(l.r.NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), subject.UsageStream); err != nil {
		t.Fatal(err)
	}
	letGo()
	for proxy := range l.r.Proxies {
		l.await(t, 20, on(proxy))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// holdSettlement keeps everything from being settled until it is let go, or
// the test ends: Postgres takes no usage.
func holdSettlement(t *testing.T, l *load) (letGo func()) {
	t.Helper()
	return lockTable(t, l.r, "usage_records")
}

// streamLength is the number of messages in the usage stream.
func streamLength(t *testing.T, r *rig.Rig) (n uint64) {
	t.Helper()
	js, err := jetstream.New(r.NATS(t))
	if err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the usage stream", func(ctx context.Context) error {
		stream, err := js.Stream(ctx, subject.UsageStream)
		if err == nil {
			n = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	return n
}

// tear cuts the last record of the usage stream in two.
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
