package providersim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Config of a simulator. The zero value accepts any key, never pauses and
// keeps its journal in memory.
type Config struct {
	Keys            []string      // accepted credentials; none: any that is not empty
	Delay           time.Duration // before the first byte of an answer
	ChunkDelay      time.Duration // between two events of a stream
	WordsPerEvent   int           // 0 is 1
	MaxBodyBytes    int64         // of a request; 0 is 80 MiB
	JournalMax      int           // entries kept; 0 is 100000
	JournalMaxBytes int64         // body bytes kept; 0 is 512 MiB
	JournalWriter   io.Writer     // gets one JSON line in one Write per finished request; nil: none
	IDPrefix        string        // in front of the numbers in ids; empty: random, so that ids of two runs differ

	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// SleepFunc pauses until d has passed or ctx is done; nil waits for real.
	SleepFunc func(ctx context.Context, d time.Duration)
}

const (
	defaultMaxBodyBytes    = 80 << 20
	defaultJournalMax      = 100_000
	defaultJournalMaxBytes = 512 << 20
)

// Sim is the simulator. It is an http.Handler and safe for concurrent use.
type Sim struct {
	cfg     Config
	journal journal
	rules   rules
	videos  videoStore
	stats   stats

	mu      sync.Mutex
	waiting context.Context // ended by Close and Reset, and with it what hangs
	release context.CancelFunc
}

// New returns a simulator. Close it to end requests that hang.
func New(cfg Config) *Sim {
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = defaultMaxBodyBytes
	}
	if cfg.JournalMax == 0 {
		cfg.JournalMax = defaultJournalMax
	}
	if cfg.JournalMaxBytes == 0 {
		cfg.JournalMaxBytes = defaultJournalMaxBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.SleepFunc == nil {
		cfg.SleepFunc = sleep
	}
	if cfg.IDPrefix == "" {
		cfg.IDPrefix = randomPrefix()
	}
	s := &Sim{cfg: cfg}
	s.waiting, s.release = context.WithCancel(context.Background())
	s.journal = journal{next: 1, maxEntries: cfg.JournalMax, maxBytes: cfg.JournalMaxBytes, out: cfg.JournalWriter}
	s.stats.reset()
	return s
}

// Journal returns the entries received so far, oldest first.
func (s *Sim) Journal() []Entry { return s.journal.since(0, "") }

// JournalSince returns the entries with a Seq above seq, of one model, named
// with or without its directives, unless model is empty.
func (s *Sim) JournalSince(seq int64, model string) []Entry { return s.journal.since(seq, model) }

// ClearJournal forgets all entries; numbers go on.
func (s *Sim) ClearJournal() { s.journal.clear() }

// AddRule adds a rule behind those that exist and returns its id. It fails on
// directives that do not exist.
func (s *Sim) AddRule(r Rule) (string, error) { return s.rules.add(r) }

// Rules returns the rules with their use so far.
func (s *Sim) Rules() []Rule { return s.rules.all() }

// ClearRules removes all rules.
func (s *Sim) ClearRules() { s.rules.clear() }

// Videos returns all video jobs, oldest first.
func (s *Sim) Videos() []Video { return s.videos.all() }

// Stats returns the counters.
func (s *Sim) Stats() Stats {
	st := s.stats.snapshot()
	st.JournalEntries, st.JournalDropped, st.JournalWriteErrors = s.journal.sizes()
	st.Videos = s.videos.len()
	return st
}

// WaitIdle returns when no request is running, or with the context's error.
func (s *Sim) WaitIdle(ctx context.Context) error {
	if err := s.stats.waitIdle(ctx); err != nil {
		return fmt.Errorf("wait until idle: %w", err)
	}
	return nil
}

// Reset returns to the state of New: no rules, journal, videos or counters.
// Requests that hang are ended.
func (s *Sim) Reset() {
	s.Close()
	s.rules.clear()
	s.journal.clear()
	s.videos.clear()
	s.stats.reset()
}

// Close ends every request that is not finished, above all those that hang, by
// closing its connection. The simulator can be used on.
func (s *Sim) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	s.waiting, s.release = context.WithCancel(context.Background())
}

// open returns the context that the next Close ends.
func (s *Sim) open() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func randomPrefix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ServeHTTP answers /livez, the control paths below /_sim/, and otherwise as a
// provider.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/livez" {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	if isControl(r.URL.Path) {
		s.control(w, r)
		return
	}
	s.provide(w, r)
}
