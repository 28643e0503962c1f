package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// fakeDisk makes the spool's files. While it is full, each write stores the first
// bytes and then fails, as on a real file system.
type fakeDisk struct {
	full   bool
	buffer int  // size of the write buffer; if it is zero, files cannot be mapped
	faulty bool // what is stored in the buffer is stored in part, and fails
	files  []io.Closer
	writes int
	closed int // files of segments
}

type diskFile struct {
	file
	disk *fakeDisk
}

type diskMapping struct {
	mapping
	disk *fakeDisk
}

func (d *fakeDisk) open(path string, flag int) (file, error) {
	if d.full && flag&os.O_CREATE != 0 {
		return nil, syscall.ENOSPC
	}
	f, err := osDisk{}.open(path, flag)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, f)
	return diskFile{f, d}, nil
}

func (d *fakeDisk) mapNew(path string) (mapping, error) {
	switch {
	case d.full:
		return nil, syscall.ENOSPC
	case d.buffer == 0:
		return nil, errors.ErrUnsupported
	}
	m, err := mapNewFile(path, d.buffer)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, m)
	return diskMapping{m, d}, nil
}

func (m diskMapping) WriteAt(p []byte, offset int64) (int, error) {
	if !m.disk.faulty {
		return m.mapping.WriteAt(p, offset)
	}
	n, err := m.mapping.WriteAt(p[:len(p)/2], offset)
	return n, errors.Join(err, errors.New("fault"))
}

func (f diskFile) Close() error {
	f.disk.closed++
	return f.file.Close()
}

// fill makes the disk full, which the spool notices with its next write.
func (d *fakeDisk) fill(s *Spool) {
	d.full = true
	s.FlushBuffer()
}

// close closes the files that killed processes have left open.
func (d *fakeDisk) close() {
	for _, f := range d.files {
		_ = f.Close() // most are closed already
	}
}

// onEachDisk runs a test with and without a write buffer.
func onEachDisk(t *testing.T, test func(t *testing.T, d *fakeDisk)) {
	t.Helper()
	for name, size := range map[string]int{"without a buffer": 0, "with a small buffer": 500, "with a buffer": 8 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &fakeDisk{buffer: size})
		})
	}
}

func (f diskFile) WriteAt(p []byte, offset int64) (int, error) {
	f.disk.writes++
	if !f.disk.full {
		return f.file.WriteAt(p, offset)
	}
	n, err := f.file.WriteAt(p[:len(p)/2], offset)
	if err != nil {
		return n, err
	}
	return n, syscall.ENOSPC
}

func usage(session int64, id string) *event.Usage {
	return &event.Usage{V: 1, RequestID: id, Session: session, Status: event.Completed, Rule: event.RuleReported, FinishedMS: 1}
}

// mustOpen opens a spool whose files are closed at the end of the test.
func mustOpen(t *testing.T, cfg Config, d *fakeDisk) *Spool {
	t.Helper()
	s, err := open(cfg, slog.New(slog.DiscardHandler), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return s
}

func setup(t *testing.T) (*Spool, *fakeDisk, Config) {
	t.Helper()
	d := &fakeDisk{}
	s, cfg := setupOn(t, d)
	return s, d, cfg
}

func setupOn(t *testing.T, d *fakeDisk) (*Spool, Config) {
	t.Helper()
	cfg := Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	return s, cfg
}

func start(t testing.TB, s *Spool, session int64, id string) *Unit {
	t.Helper()
	u, err := s.Reserve()
	if err == nil {
		err = u.AppendStarted(usage(session, id))
	}
	if err != nil {
		t.Fatalf("start of request %s: %v", id, err)
	}
	return u
}

func finish(u *Unit, session int64, id string, cost money.Nano) (stored bool) {
	e := usage(session, id)
	e.Cost = cost
	return u.AppendFinished(e)
}

func settle(s *Spool, session, watermark int64, beyond ...[2]int64) {
	s.Acknowledge(event.Settled{V: 1, Session: session, Watermark: watermark, Beyond: beyond})
}

// publishDue takes every event that is due and returns them by session and
// sequence number.
func publishDue(t *testing.T, s *Spool, now time.Time) map[[2]int64]event.Usage {
	t.Helper()
	all := map[[2]int64]event.Usage{}
	for b := s.NextBatch(3, now); b != nil; b = s.NextBatch(3, now) {
		for _, raw := range b.Events {
			e := decode(t, raw)
			if e.Session != b.Session {
				t.Fatalf("a batch of session %d has an event of session %d", b.Session, e.Session)
			}
			all[[2]int64{e.Session, e.Seq}] = e
		}
	}
	return all
}

// costs takes every event that is due and returns the costs of those of one
// session by sequence number.
func costs(t *testing.T, s *Spool, session int64, now time.Time) map[int64]money.Nano {
	t.Helper()
	byNumber := map[int64]money.Nano{}
	for key, e := range publishDue(t, s, now) {
		if key[0] == session {
			byNumber[key[1]] = e.Cost
		}
	}
	return byNumber
}

func segmentFiles(t interface {
	Helper()
	Fatal(args ...any)
}, dir string,
) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// later returns a time n days from now. One day is longer than every pause
// between two publications of an event.
func later(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }

func progress(u *Unit, cost money.Nano) { u.AppendProgress(price.Usage{Output: int64(cost)}, cost) }

func decode(t interface{ Fatal(args ...any) }, raw []byte) (e event.Usage) {
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// lastFinished returns the event of the last finished record of a segment.
func lastFinished(t *testing.T, data []byte) (e event.Usage, ok bool) {
	t.Helper()
	r := bytes.NewReader(data)
	for {
		k, body, err := readRecord(r)
		if errors.Is(err, io.EOF) {
			return e, ok
		}
		if err != nil {
			t.Fatal(err)
		}
		if k == kindFinished {
			e, ok = decode(t, body), true
		}
	}
}
