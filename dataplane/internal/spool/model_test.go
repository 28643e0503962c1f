package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// modelSession is the expected state of a session.
type modelSession struct {
	boot string
	// costs of the events, by sequence number less one.
	costs []money.Nano
	// ids of their requests.
	ids      []string
	settled  []bool
	finished bool
	closed   bool
}

func (m *modelSession) watermark() int64 {
	for i, settled := range m.settled {
		if !settled {
			return int64(i)
		}
	}
	return int64(len(m.settled))
}

func (m *modelSession) finish(id string, cost money.Nano) {
	m.ids, m.costs, m.settled = append(m.ids, id), append(m.costs, cost), append(m.settled, false)
}

func (m *modelSession) mark(low, high int64) {
	for n := max(low, 1); n <= min(high, int64(len(m.settled))); n++ {
		m.settled[n-1] = true
	}
}

type modelRequest struct {
	session int64
	cost    money.Nano
	unit    *Unit
}

// model is the expected state of the spool.
type model struct {
	sessions map[int64]*modelSession
	running  map[string]*modelRequest
	reserved []*Unit
}

func (m *model) clone() *model {
	c := &model{sessions: map[int64]*modelSession{}, running: map[string]*modelRequest{}, reserved: slices.Clone(m.reserved)}
	for id, s := range m.sessions {
		copied := *s
		copied.costs, copied.ids, copied.settled = slices.Clone(s.costs), slices.Clone(s.ids), slices.Clone(s.settled)
		c.sessions[id] = &copied
	}
	for id, r := range m.running {
		copied := *r
		c.running[id] = &copied
	}
	return c
}

func (m *model) used() int64 {
	used := int64(len(m.reserved) + len(m.running))
	for _, s := range m.sessions {
		for _, settled := range s.settled {
			if !settled {
				used++
			}
		}
	}
	return used
}

func (m *model) runs(session int64) bool {
	for _, r := range m.running {
		if r.session == session {
			return true
		}
	}
	return false
}

// kill is the effect of a killed process: running requests are aborted, and
// settled events above the watermark count as unsettled again.
func (m *model) kill() {
	m.reserved = nil
	for _, id := range slices.Sorted(maps.Keys(m.running)) {
		m.sessions[m.running[id].session].finish(id, m.running[id].cost)
	}
	clear(m.running)
	for _, s := range m.sessions {
		s.finished, s.closed = false, false
		for n := s.watermark(); n < int64(len(s.settled)); n++ {
			s.settled[n] = false
		}
	}
}

// dropClosed drops the sessions that are closed and settled.
func (m *model) dropClosed() {
	for id, s := range m.sessions {
		if s.closed && s.watermark() == int64(len(s.settled)) {
			delete(m.sessions, id)
		}
	}
}

// machine applies the same random steps to a Spool and to its model.
type machine struct {
	cfg   Config
	disk  *fakeDisk
	spool *Spool
	model *model
	now   time.Time
	// requests is how many requests have been started.
	requests int
	// published has every event that was ever published, by session and sequence number.
	published map[[2]int64]event.Usage
	current   int64  // the current session
	first     string // the file of the first segment; its number never decreases
}

func (m *machine) reopen(t *rapid.T) {
	m.disk.buffer = rapid.SampledFrom([]int{0, 400, 2000, 9000}).Draw(t, "buffer") // 0: a version without a write buffer
	s, err := open(m.cfg, slog.New(slog.DiscardHandler), m.disk)
	if err != nil {
		t.Fatal(err)
	}
	m.spool = s
	m.now = time.Now()
}

func (m *machine) openSession(t *rapid.T) {
	m.current++
	boot := fmt.Sprint("boot ", m.current)
	if err := m.spool.OpenSession(wire.SessionID(m.current), boot); err != nil {
		t.Fatal(err)
	}
	m.model.sessions[m.current] = &modelSession{boot: boot}
}

func (m *machine) reserve(t *rapid.T) {
	u, err := m.spool.Reserve()
	switch full := m.model.used() >= m.cfg.MaxEvents/10*9; {
	case full && !errors.Is(err, ErrFull):
		t.Fatalf("Reserve with %d of %d units in use: got %v; want ErrFull", m.model.used(), m.cfg.MaxEvents, err)
	case !full && err != nil:
		t.Fatalf("Reserve with %d of %d units in use: %v", m.model.used(), m.cfg.MaxEvents, err)
	case err == nil:
		m.model.reserved = append(m.model.reserved, u)
	}
}

func (m *machine) takeReserved(t *rapid.T) *Unit {
	if len(m.model.reserved) == 0 {
		t.Skip("no unit is reserved")
	}
	i := rapid.IntRange(0, len(m.model.reserved)-1).Draw(t, "reserved")
	u := m.model.reserved[i]
	m.model.reserved = slices.Delete(m.model.reserved, i, i+1)
	return u
}

func (m *machine) release(t *rapid.T) {
	u := m.takeReserved(t)
	u.Release()
	u.Release() // has no effect
}

func (m *machine) start(t *rapid.T) {
	u := m.takeReserved(t)
	m.requests++
	id := fmt.Sprintf("r%04d", m.requests)
	err := u.AppendStarted(usage(m.current, id))
	if refused := m.model.sessions[m.current] == nil || m.model.sessions[m.current].finished; refused != (err != nil) {
		t.Fatalf("AppendStarted in session %d: got %v; want an error: %v", m.current, err, refused)
	}
	if err != nil {
		u.Release()
		return
	}
	m.model.running[id] = &modelRequest{session: m.current, unit: u}
}

func (m *machine) takeRunning(t *rapid.T) (string, *modelRequest) {
	if len(m.model.running) == 0 {
		t.Skip("no request runs")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.model.running))).Draw(t, "running")
	return id, m.model.running[id]
}

func (m *machine) progress(t *rapid.T) {
	_, r := m.takeRunning(t)
	r.cost = money.Nano(rapid.IntRange(1, 9).Draw(t, "cost"))
	progress(r.unit, r.cost)
}

func (m *machine) finish(t *rapid.T) {
	id, r := m.takeRunning(t)
	cost := money.Nano(rapid.IntRange(10, 99).Draw(t, "cost"))
	finish(r.unit, r.session, id, cost)
	finish(r.unit, r.session, id, cost+1) // has no effect
	delete(m.model.running, id)
	m.model.sessions[r.session].finish(id, cost)
}

func (m *machine) settle(t *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.model.sessions))).Draw(t, "session")
	s := m.model.sessions[id]
	mark := event.Settled{V: 1, Session: id, Watermark: int64(rapid.IntRange(0, len(s.settled)).Draw(t, "watermark"))}
	for range rapid.IntRange(0, 2).Draw(t, "spans") {
		low := int64(rapid.IntRange(1, len(s.settled)+1).Draw(t, "low"))
		mark.Beyond = append(mark.Beyond, [2]int64{low, low + int64(rapid.IntRange(0, 3).Draw(t, "more"))})
	}
	// Numbers that are not assigned yet are never reported.
	for i := range mark.Beyond {
		mark.Beyond[i][1] = min(mark.Beyond[i][1], int64(len(s.settled)))
	}
	s.mark(1, mark.Watermark)
	for _, span := range mark.Beyond {
		s.mark(span[0], span[1])
	}
	m.spool.Acknowledge(mark)
	if rapid.Bool().Draw(t, "twice") {
		m.spool.Acknowledge(mark)
	}
	m.model.dropClosed()
	if files := segmentFiles(t, m.cfg.Dir); m.model.used() == int64(len(m.model.reserved)) && len(files) > 1 {
		t.Fatalf("%d segments are left without a live record; want 1", len(files))
	}
}

func (m *machine) listFinished(t *rapid.T) {
	current := m.current
	if rapid.Bool().Draw(t, "no current") {
		current = 0
	}
	var want []wire.CloseRequest
	for _, id := range slices.Sorted(maps.Keys(m.model.sessions)) {
		s := m.model.sessions[id]
		if id != current && !s.closed {
			s.finished = true
			r := wire.CloseRequest{V: wire.Version, Session: wire.SessionID(id), BootID: s.boot, FinalCount: int64(len(s.costs))}
			if m.model.runs(id) {
				r.FinalCount = wire.NotFinal
			}
			want = append(want, r)
		}
	}
	got := m.spool.FinishedSessions(wire.SessionID(current))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("finished sessions (-want +got):\n%s", diff)
	}
	for _, f := range got {
		if rapid.Bool().Draw(t, "closed") {
			m.spool.MarkClosed(f.Session) // has no effect while requests run
			m.model.sessions[int64(f.Session)].closed = f.FinalCount != wire.NotFinal
		}
	}
	m.model.dropClosed()
}

// publish takes one batch, and sometimes puts it back.
func (m *machine) publish(t *rapid.T) {
	b := m.spool.NextBatch(rapid.IntRange(1, 5).Draw(t, "limit"), m.now)
	if b != nil && rapid.Bool().Draw(t, "fails") {
		m.spool.Requeue(b)
	}
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
}

// publishAll waits until every unsettled event is due and compares the events with
// the model.
func (m *machine) publishAll(t *rapid.T) {
	m.now = m.now.Add(time.Hour)
	due := map[[2]int64]bool{}
	for b := m.spool.NextBatch(3, m.now); b != nil; b = m.spool.NextBatch(3, m.now) {
		for _, raw := range b.Events {
			e := decode(t, raw)
			key := [2]int64{e.Session, e.Seq}
			if due[key] {
				t.Fatalf("event %v is in two batches at once", key)
			}
			due[key] = true
			m.checkContent(t, e)
		}
	}
	want := map[[2]int64]bool{}
	for id, s := range m.model.sessions {
		for i, settled := range s.settled {
			if !settled {
				want[[2]int64{id, int64(i + 1)}] = true
			}
		}
	}
	if diff := cmp.Diff(want, due); diff != "" {
		t.Fatalf("events due (-want +got):\n%s", diff)
	}
}

func (m *machine) checkContent(t *rapid.T, e event.Usage) {
	key := [2]int64{e.Session, e.Seq}
	s := m.model.sessions[e.Session]
	if s == nil || e.Seq < 1 || e.Seq > int64(len(s.costs)) || s.ids[e.Seq-1] != e.RequestID || s.costs[e.Seq-1] != e.Cost {
		t.Fatalf("published %+v, which is not in the model", e)
	}
	if before, known := m.published[key]; known {
		if diff := cmp.Diff(before, e); diff != "" {
			t.Fatalf("event %v changed:\n%s", key, diff)
		}
	}
	m.published[key] = e
}

func (m *machine) republish(*rapid.T) { m.spool.Republish() }

func (m *machine) flushBuffer(*rapid.T) { m.spool.FlushBuffer() }

// fault makes the memory of the write buffer fail once.
func (m *machine) fault(t *rapid.T) {
	m.disk.faulty = true
	defer func() { m.disk.faulty = false }()
	m.progress(t)
}

// stop ends the process in order. Its running requests are aborted, too.
func (m *machine) stop(t *rapid.T) {
	if err := m.spool.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bufferPath(m.cfg)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the file of the write buffer after a stop: %v; want none", err)
	}
	m.kill(t)
}

// fillDisk restarts the process on a full disk, on which it loses nothing either.
func (m *machine) fillDisk(t *rapid.T) {
	m.disk.full = true
	m.kill(t)
	m.publishAll(t)
	m.disk.full = false
	m.spool.NextBatch(1, m.now) // probes the disk
	if err := m.spool.WriteError(); err != nil {
		t.Fatalf("after the disk has room: %v", err)
	}
}

func (m *machine) kill(t *rapid.T) {
	m.model.kill()
	m.reopen(t)
}

// tear kills the process in the middle of a write to the write buffer or a segment:
// the last record is cut at any byte and must have no effect.
func (m *machine) tear(t *rapid.T) {
	step := rapid.SampledFrom([]func(*rapid.T){m.start, m.progress, m.finish}).Draw(t, "step")
	before, files := m.model.clone(), segmentFiles(t, m.cfg.Dir)
	info, err := os.Stat(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}
	buffer, mapped := readFile(t, bufferPath(m.cfg)), m.spool.buffer.info
	step(t)
	if m.spool.buffer.info != mapped {
		buffer = make([]byte, m.disk.buffer) // a new file of zeros
	}
	after := segmentFiles(t, m.cfg.Dir)
	if len(after) < len(files) || after[0] != files[0] {
		t.Skip("the step removed a segment, so its write was complete")
	}
	if m.tearBuffer(t, buffer) {
		m.model = before
		m.kill(t)
		return
	}
	whole, from := int64(0), info.Size()
	last := after[len(after)-1]
	if last != files[len(files)-1] {
		from = 0
	}
	if info, err = os.Stat(last); err == nil {
		whole = info.Size()
	}
	if whole == from {
		t.Skip("nothing was written")
	}
	if err := os.Truncate(last, rapid.Int64Range(from, whole-1).Draw(t, "cut")); err != nil {
		t.Fatal(err)
	}
	m.model = before
	m.kill(t)
}

// tearBuffer takes back the last bytes of the last store to the write buffer. It
// returns false if there was none.
func (m *machine) tearBuffer(t *rapid.T, before []byte) bool {
	after := readFile(t, bufferPath(m.cfg))
	if len(after) != len(before) {
		t.Fatalf("the write buffer has %d bytes; want %d", len(after), len(before))
	}
	var changed []int
	for i := range after {
		if after[i] != before[i] {
			changed = append(changed, i)
		}
	}
	if len(changed) == 0 {
		return false
	}
	cut := rapid.SampledFrom(changed).Draw(t, "cut")
	if err := os.WriteFile(bufferPath(m.cfg), slices.Concat(after[:cut], before[cut:]), 0o600); err != nil {
		t.Fatal(err)
	}
	return true
}

func (m *machine) check(t *rapid.T) {
	if got, want := m.spool.UsedCapacity(), m.model.used(); got != want {
		t.Fatalf("%d units of capacity are in use; want %d", got, want)
	}
	files := segmentFiles(t, m.cfg.Dir)
	if files[0] < m.first {
		t.Fatalf("segment %s is back after its removal", files[0])
	}
	m.first = files[0]
	for i := 1; i < len(files); i++ {
		if number(t, files[i]) != number(t, files[i-1])+1 {
			t.Fatalf("a segment between two others is missing: %v", files)
		}
	}
}

func number(t *rapid.T, path string) (n int64) {
	if _, err := fmt.Sscanf(filepath.Base(path), "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSpoolMatchesModel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "") //nolint:usetesting // rapid.T has no TempDir
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{
			cfg:       Config{Dir: dir, MaxEvents: 30, MaxBytes: 1 << 30, SegmentBytes: rapid.Int64Range(1, 4000).Draw(t, "segment")},
			disk:      &fakeDisk{},
			model:     &model{sessions: map[int64]*modelSession{}, running: map[string]*modelRequest{}},
			published: map[[2]int64]event.Usage{},
		}
		defer m.disk.close()
		m.reopen(t)
		m.openSession(t)
		t.Repeat(map[string]func(*rapid.T){
			"":            m.check,
			"openSession": m.openSession, "reserve": m.reserve, "reserve2": m.reserve, "release": m.release,
			"start": m.start, "start2": m.start, "progress": m.progress, "finish": m.finish, "finish2": m.finish,
			"settle": func(t *rapid.T) {
				if len(m.model.sessions) == 0 {
					t.Skip("no session")
				}
				m.settle(t)
			},
			"listFinished": m.listFinished, "publish": m.publish, "publishAll": m.publishAll, "republish": m.republish,
			"kill": m.kill, "tear": m.tear, "stop": m.stop, "flushBuffer": m.flushBuffer, "fault": m.fault, "fillDisk": m.fillDisk,
		})
		m.publishAll(t)
	})
}
