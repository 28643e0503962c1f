package sse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// event230 is an event of the usual size, 230 bytes.
func event230(end string) []byte {
	const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"`
	const tail = `"},"finish_reason":null}]}`
	return []byte(head + strings.Repeat("x", 230-len(head)-len(tail)-2*len(end)) + tail + end + end)
}

// drain feeds one read and counts its events.
func drain(s *Splitter, p []byte) (events int) {
	s.Feed(p)
	for {
		e, ok := s.Next()
		if !ok {
			return events
		}
		if e.Data != nil {
			events++
		}
	}
}

func TestSplittingAllocatesNothing(t *testing.T) {
	one := event230("\n")
	burst := bytes.Repeat(one, 64)
	crlf := bytes.Repeat(event230("\r\n"), 64)
	named := bytes.Repeat([]byte("event: e\ndata: {}\n\n: c\n\n"), 64)
	lines := bytes.Repeat([]byte("data: a\ndata: b\n\n"), 64)
	var s Splitter
	frame := make([]byte, 0, 256)
	tests := []struct {
		name   string
		events int
		run    func() int
	}{
		{"one a read", 1, func() int { return drain(&s, one) }},
		{"64 a read", 64, func() int { return drain(&s, burst) }},
		{"crlf", 64, func() int { return drain(&s, crlf) }},
		{"names and comments", 64, func() int { return drain(&s, named) }},
		{"several lines", 64, func() int { return drain(&s, lines) }},
		{"reads that split events", 64, func() int { return drain(&s, burst[:5000]) + drain(&s, burst[5000:]) }},
		{"append", 1, func() int {
			frame = AppendEvent(frame[:0], "error", one[:100])
			return 1
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.run(); got != tt.events {
				t.Fatalf("%d events; want %d", got, tt.events)
			}
			if raceEnabled {
				t.Skip("under the race detector sync.Pool drops objects at random")
			}
			if n := testing.AllocsPerRun(100, func() { tt.run() }); n != 0 {
				t.Errorf("%v allocations; want 0", n)
			}
		})
	}
}

func TestWaitingStreamHoldsNoBuffer(t *testing.T) {
	t.Parallel()
	var s Splitter
	defer s.Close()
	one := event230("\n")
	drain(&s, one[:100])
	if s.carry == nil {
		t.Fatal("an incomplete event is not buffered")
	}
	drain(&s, one[100:])
	if s.carry != nil {
		t.Error("a waiting stream has a buffer")
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, end := range []string{"\n", "\r\n"} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%q/%d", end, n), func(b *testing.B) {
				read := bytes.Repeat(event230(end), n)
				benchmark(b, n, read)
			})
		}
	}
	b.Run("cut/64", func(b *testing.B) {
		burst := bytes.Repeat(event230("\n"), 64)
		benchmark(b, 64, burst[:5000], burst[5000:])
	})
}

// benchmark splits reads of n events.
func benchmark(b *testing.B, n int, reads ...[]byte) {
	var s Splitter
	size := 0
	for _, read := range reads {
		size += len(read)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		got := 0
		for _, read := range reads {
			got += drain(&s, read)
		}
		if got != n {
			b.Fatalf("%d events; want %d", got, n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
}
