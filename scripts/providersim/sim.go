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

// Config configures a simulator. The zero value accepts any key, never pauses and keeps the
// journal in memory.
type Config struct {
	Keys            []string      // accepted credentials; empty: every credential
	Delay           time.Duration // pause before the first byte of an answer
	ChunkDelay      time.Duration // pause between two events of a stream
	WordsPerEvent   int           // 0 is 1
	MaxBodyBytes    int64         // limit of a request body; 0 is 80 MiB
	JournalMax      int           // number of entries in memory; 0 is 100000
	JournalMaxBytes int64         // size of all bodies in memory; 0 is 512 MiB
	JournalWriter   io.Writer     // gets one JSON line per completed request, in one Write; may be nil
	IDPrefix        string        // prefix of the numbers in ids; empty: random, so that two runs have different ids

	// Now returns the time; nil is time.Now.
	Now func() time.Time
	// SleepFunc pauses until d has passed or ctx has ended; nil uses a timer.
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
	waiting context.Context // ended by Close and Reset, which ends hanging requests
	release context.CancelFunc
}

// New returns a simulator. Close ends its hanging requests.
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
	s.journal = journal{
		next:       1,
		maxEntries: cfg.JournalMax,
		maxBytes:   cfg.JournalMaxBytes,
		out:        cfg.JournalWriter,
	}
	s.stats.reset()

	return s
}

// Journal returns all entries, oldest first.
func (s *Sim) Journal() []Entry { return s.journal.since(0, "") }

// JournalSince returns the entries with a Seq above seq. If model is not empty, it returns
// only those of the model, which may be named with or without directives.
func (s *Sim) JournalSince(seq int64, model string) []Entry { return s.journal.since(seq, model) }

// ClearJournal removes all entries. Sequence numbers continue.
func (s *Sim) ClearJournal() { s.journal.clear() }

// AddRule appends a rule and returns its id. Unknown directives are an error.
func (s *Sim) AddRule(r Rule) (string, error) { return s.rules.add(r) }

// Rules returns the rules and how often each was used.
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

// WaitIdle waits until no request is running, or returns the error of ctx.
func (s *Sim) WaitIdle(ctx context.Context) error {
	if err := s.stats.waitIdle(ctx); err != nil {
		return fmt.Errorf("wait until idle: %w", err)
	}
	return nil
}

// Reset removes all rules, journal entries, videos and counters, and ends hanging requests.
func (s *Sim) Reset() {
	s.Close()
	s.rules.clear()
	s.journal.clear()
	s.videos.clear()
	s.stats.reset()
}

// Close ends all unfinished requests, including hanging ones, by closing their connections.
// The simulator can be used afterwards.
func (s *Sim) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
	s.waiting, s.release = context.WithCancel(context.Background())
}

// open returns a context that the next Close ends.
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

// ServeHTTP serves /livez, the control paths below /_sim/, and the API of a provider.
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
