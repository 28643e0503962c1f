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

// disk stands between the spool and its files: when full, it takes the first
// bytes of each write and refuses the rest, as a file system does.
type fakeDisk struct {
	full   bool
	files  []file
	writes int
}

type diskFile struct {
	file
	disk *fakeDisk
}

func (d *fakeDisk) open(path string, flag int) (file, error) {
	if d.full && flag&os.O_CREATE != 0 {
		return nil, syscall.ENOSPC
	}
	f, err := openOS(path, flag)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, f)
	return diskFile{f, d}, nil
}

// close closes what killed processes have left open.
func (d *fakeDisk) close() {
	for _, f := range d.files {
		_ = f.Close() // most are closed by the spool
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

// mustOpen opens a spool that is closed with the test.
func mustOpen(t *testing.T, cfg Config, d *fakeDisk) *Spool {
	t.Helper()
	s, err := open(cfg, slog.New(slog.DiscardHandler), d.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return s
}

func setup(t *testing.T) (*Spool, *fakeDisk, Config) {
	t.Helper()
	d, cfg := &fakeDisk{}, Config{Dir: t.TempDir(), MaxEvents: 100, MaxBytes: 1 << 30, SegmentBytes: 1 << 20}
	s := mustOpen(t, cfg, d)
	if err := s.OpenSession(1, "boot"); err != nil {
		t.Fatal(err)
	}
	return s, d, cfg
}

func start(t *testing.T, s *Spool, session int64, id string) *Unit {
	t.Helper()
	p, err := s.Reserve()
	if err == nil {
		err = p.AppendStarted(usage(session, id))
	}
	if err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
	return p
}

func finish(p *Unit, session int64, id string, cost money.Nano) {
	e := usage(session, id)
	e.Cost = cost
	p.AppendFinished(e)
}

func settle(s *Spool, session, watermark int64, beyond ...[2]int64) {
	s.Acknowledge(event.Settled{V: 1, Session: session, Watermark: watermark, Beyond: beyond})
}

// published is what is due now, by session and number.
func published(t *testing.T, s *Spool, now time.Time) map[[2]int64]event.Usage {
	t.Helper()
	all := map[[2]int64]event.Usage{}
	for b := s.NextBatch(3, now); b != nil; b = s.NextBatch(3, now) {
		for _, raw := range b.Events {
			e := decode(t, raw)
			if e.Session != b.Session {
				t.Fatalf("an event of session %d in a batch of session %d", e.Session, b.Session)
			}
			all[[2]int64{e.Session, e.Seq}] = e
		}
	}
	return all
}

// costs lists what is due now as number to cost, for one session.
func costs(t *testing.T, s *Spool, session int64, now time.Time) map[int64]money.Nano {
	t.Helper()
	byNumber := map[int64]money.Nano{}
	for key, e := range published(t, s, now) {
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

// later is after every pause between two publishings.
func later(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }

func progress(p *Unit, cost money.Nano) { p.AppendProgress(price.Usage{Output: int64(cost)}, cost) }

func decode(t interface{ Fatal(args ...any) }, raw []byte) (e event.Usage) {
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func newReader(data []byte) io.Reader { return bytes.NewReader(data) }

// finishedIn returns the finished event of a segment that holds one record
// behind its header.
func finishedIn(t *testing.T, data []byte) (e event.Usage, ok bool) {
	t.Helper()
	r := newReader(data)
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
