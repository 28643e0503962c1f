package logbuffer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is an output that takes lines only when it is told to.
type stalled struct {
	open    chan struct{}
	written bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.open
	return s.written.Write(p)
}

func TestStalledOutputStopsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{open: make(chan struct{})}
		w := New(out)
		line := strings.Repeat("x", 1023) + "\n"
		for range 3 * maxPending / len(line) {
			if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
				t.Fatalf("got %d, %v", n, err)
			}
			synctest.Wait()
		}
		if n := len(w.pending); n > maxPending {
			t.Errorf("%d bytes are kept; want at most %d", n, maxPending)
		}
		close(out.open)
		synctest.Wait()
		_, _ = io.WriteString(w, "later\n")
		w.Close()
		_, _ = io.WriteString(w, "too late\n")
		kept := maxPending/len(line) + 1 // the first line was being written
		want := fmt.Sprintf(`"lines":%d}`, 3*maxPending/len(line)-kept)
		got := out.written.String()
		if strings.Count(got, line) != kept || strings.Count(got, want) != 1 || !strings.HasSuffix(got, "\nlater\n") {
			t.Errorf("got %d lines that end with %q; want %d, %s and the later one", strings.Count(got, line), got[max(0, len(got)-300):], kept, want)
		}
	})
}

func TestLinesAreWrittenInTheirOrderBeforeCloseReturns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := New(&out)
	const lines = 10_000
	for i := range lines {
		_, _ = fmt.Fprintf(w, "%d\n", i)
	}
	w.Close()
	next := 0
	for s := bufio.NewScanner(&out); s.Scan(); next++ {
		if s.Text() != strconv.Itoa(next) {
			t.Fatalf("got line %q; want %d", s.Text(), next)
		}
	}
	if next != lines {
		t.Errorf("%d lines were written; want %d", next, lines)
	}
}

func TestCloseDoesNotWaitForAStalledOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &stalled{open: make(chan struct{})}
		w := New(out)
		_, _ = io.WriteString(w, "x\n")
		begun := time.Now()
		w.Close()
		if took := time.Since(begun); took != closeTimeout {
			t.Errorf("Close took %s; want %s", took, closeTimeout)
		}
		close(out.open)
	})
}

func TestWriteAllocatesNothing(t *testing.T) {
	w := New(io.Discard)
	defer w.Close()
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 1000 {
		_, _ = w.Write(line)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = w.Write(line) }); n >= 1 {
		t.Errorf("a line takes %v allocations; want none", n)
	}
}
