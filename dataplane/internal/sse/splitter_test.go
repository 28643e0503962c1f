package sse

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// eventFields is an event in a form that tests can compare.
type eventFields struct {
	Raw, Name, Data string
	HasData         bool
	Comment         bool
	Partial         bool
}

func fieldsOf(e Event) eventFields {
	return eventFields{string(e.Raw), string(e.Name), string(e.Data), e.Data != nil, e.Comment, e.Partial}
}

// split feeds the reads to a Splitter and returns all events, including that of Flush. Each read is overwritten
// afterwards, as a pooled buffer would be.
func split(s *Splitter, reads ...string) ([]eventFields, error) {
	defer s.Close()
	var events []eventFields
	for _, read := range reads {
		p := []byte(read)
		s.Feed(p)
		for {
			e, ok := s.Next()
			if !ok {
				break
			}
			events = append(events, fieldsOf(e))
		}
		for i := range p {
			p[i] = '!'
		}
	}
	if e, ok := s.Flush(); ok {
		events = append(events, fieldsOf(e))
	}
	return events, s.Err()
}

func TestSplitIntoEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stream string
		want         []eventFields
	}{
		{"nothing", "", nil},
		{"data", "data: x\n\n", []eventFields{{Raw: "data: x\n\n", Data: "x", HasData: true}}},
		{"named", "event: e\ndata: x\n\n", []eventFields{{Raw: "event: e\ndata: x\n\n", Name: "e", Data: "x", HasData: true}}},
		{"name after data", "data:x\nevent:e\nevent: f\n\n", []eventFields{{Raw: "data:x\nevent:e\nevent: f\n\n", Name: "f", Data: "x", HasData: true}}},
		{"spaces", "data:  x \n\n", []eventFields{{Raw: "data:  x \n\n", Data: " x ", HasData: true}}},
		{"lines", "data: a\ndata:b\ndata\n\n", []eventFields{{Raw: "data: a\ndata:b\ndata\n\n", Data: "a\nb\n", HasData: true}}},
		{"empty data", "data:\n\n", []eventFields{{Raw: "data:\n\n", HasData: true}}},
		{"no data", "event: e\nid: 1\n\n", []eventFields{{Raw: "event: e\nid: 1\n\n", Name: "e"}}},
		{"other fields", "database: x\nevents: y\n data: z\nretry: 1\n\n", []eventFields{{Raw: "database: x\nevents: y\n data: z\nretry: 1\n\n"}}},
		{"two", "data: a\n\ndata: b\n\n", []eventFields{
			{Raw: "data: a\n\n", Data: "a", HasData: true}, {Raw: "data: b\n\n", Data: "b", HasData: true},
		}},
		{"comment", ": wait\n\ndata: a\n\n", []eventFields{
			{Raw: ": wait\n", Comment: true}, {Raw: "\n"}, {Raw: "data: a\n\n", Data: "a", HasData: true},
		}},
		{"comment without empty line", ":\ndata: a\n\n", []eventFields{
			{Raw: ":\n", Comment: true}, {Raw: "data: a\n\n", Data: "a", HasData: true},
		}},
		{"comment within", "data: a\n: c\ndata: b\n\n", []eventFields{{Raw: "data: a\n: c\ndata: b\n\n", Data: "a\nb", HasData: true}}},
		{"crlf", "event: e\r\ndata: x\r\n\r\ndata: y\r\n\r\n", []eventFields{
			{Raw: "event: e\r\ndata: x\r\n\r\n", Name: "e", Data: "x", HasData: true}, {Raw: "data: y\r\n\r\n", Data: "y", HasData: true},
		}},
		{"cr", "data: x\r\rdata: y\r\r", []eventFields{
			{Raw: "data: x\r\r", Data: "x", HasData: true}, {Raw: "data: y\r\r", Data: "y", HasData: true},
		}},
		{"cr then crlf", "data: x\r\r\ndata: y\r\n\r\n", []eventFields{
			{Raw: "data: x\r\r", Data: "x", HasData: true}, {Raw: "\ndata: y\r\n\r\n", Data: "y", HasData: true},
		}},
		{"mixed", "data: x\n\r\ndata: y\r\n\n", []eventFields{
			{Raw: "data: x\n\r\n", Data: "x", HasData: true}, {Raw: "data: y\r\n\n", Data: "y", HasData: true},
		}},
		{"mark", "\xef\xbb\xbfdata: x\n\n\xef\xbb\xbfdata: y\n\n", []eventFields{
			{Raw: "\xef\xbb\xbfdata: x\n\n", Data: "x", HasData: true}, {Raw: "\xef\xbb\xbfdata: y\n\n"},
		}},
		{"mark before a comment", "\xef\xbb\xbf: x\n", []eventFields{{Raw: "\xef\xbb\xbf: x\n", Comment: true}}},
		{"mark alone", "\xef\xbb\xbf", []eventFields{{Raw: "\xef\xbb\xbf"}}},
		{"truncated in the data", "data: x\n\nevent: e\ndata: {\"a", []eventFields{
			{Raw: "data: x\n\n", Data: "x", HasData: true},
			{Raw: "event: e\ndata: {\"a", Name: "e", Data: "{\"a", HasData: true, Partial: true},
		}},
		{"truncated before the empty line", "data: x\n", []eventFields{{Raw: "data: x\n", Data: "x", HasData: true, Partial: true}}},
		{"truncated in a comment", ": wa", []eventFields{{Raw: ": wa", Comment: true, Partial: true}}},
		{"truncated at a CR", "data: x\r", []eventFields{{Raw: "data: x\r", Data: "x", HasData: true, Partial: true}}},
		{"ends in a cr", "data: x\n\r", []eventFields{{Raw: "data: x\n\r", Data: "x", HasData: true}}},
		{"ends in a late lf", "data: x\r\r\n", []eventFields{{Raw: "data: x\r\r", Data: "x", HasData: true}, {Raw: "\n"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, reads := range [][]string{{tt.stream}, strings.Split(tt.stream, "")} {
				got, err := split(new(Splitter), reads...)
				if err != nil {
					t.Errorf("%q: %v", reads, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events of %q (-want +got):\n%s", reads, diff)
				}
			}
		})
	}
}

// This holds for each kind of line end, if the stream uses it throughout.
func TestEventIsReturnedWithItsLastByte(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		var s Splitter
		for i := range 3 {
			for _, read := range []string{"event: e" + end, "data: x" + end} {
				s.Feed([]byte(read))
				if e, ok := s.Next(); ok {
					t.Errorf("%q, event %d: %q came early", end, i, e.Raw)
				}
			}
			s.Feed([]byte(end))
			if e, ok := s.Next(); !ok || string(e.Data) != "x" {
				t.Errorf("%q, event %d: got %q, %v; want it at its last byte", end, i, e.Data, ok)
			}
			if _, ok := s.Next(); ok {
				t.Errorf("%q, event %d: came twice", end, i)
			}
		}
		s.Feed([]byte(": keep-alive" + end))
		if e, ok := s.Next(); !ok || !e.Comment {
			t.Errorf("%q: got %+v, %v; want the comment at once", end, fieldsOf(e), ok)
		}
		s.Close()
	}
}

func TestTooLargeEventIsAnError(t *testing.T) {
	t.Parallel()
	const event = "data: 89\n\n" // ten bytes
	tests := []struct {
		name, stream string
		events       int
		want         error
	}{
		{"at the limit", event + event, 2, nil},
		{"over it", event + "data: 890\n\n", 1, ErrEventTooLarge},
		{"below it without an end", event + "data: 890", 1, nil},
		{"over it without an end", event + "data: 8901234", 1, ErrEventTooLarge},
		{"a long comment", ": 345678901\n", 0, ErrEventTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, reads := range [][]string{{tt.stream}, strings.Split(tt.stream, "")} {
				events, err := split(&Splitter{MaxEventBytes: 10}, reads...)
				complete := 0
				for _, e := range events {
					if !e.Partial {
						complete++
					}
				}
				if complete != tt.events || !errors.Is(err, tt.want) {
					t.Errorf("%d reads: %d events, %v; want %d, %v", len(reads), complete, err, tt.events, tt.want)
				}
			}
		})
	}
}

func TestLargeEventOverManyReads(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("QUJD", 1<<20)
	var reads []string
	for rest := "data: " + data + "\n\n"; rest != ""; {
		n := min(16<<10, len(rest))
		reads = append(reads, rest[:n])
		rest = rest[n:]
	}
	got, err := split(new(Splitter), reads...)
	if err != nil || len(got) != 1 || got[0].Data != data {
		t.Errorf("got %d events, %v; want the one", len(got), err)
	}
}

func TestFeedBeforeAllEventsWereTaken(t *testing.T) {
	t.Parallel()
	var s Splitter
	s.Feed([]byte("data: a\n\ndata: b\n\nda"))
	if e, ok := s.Next(); !ok || string(e.Data) != "a" {
		t.Fatalf("got %q, %v; want a", e.Data, ok)
	}
	s.Feed([]byte("ta: c\n\n"))
	var got []string
	for e, ok := s.Next(); ok; e, ok = s.Next() {
		got = append(got, string(e.Data))
	}
	if diff := cmp.Diff([]string{"b", "c"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestCloseAllowsAnotherStream(t *testing.T) {
	t.Parallel()
	s := Splitter{MaxEventBytes: 12}
	s.Feed([]byte("data: far too long for the limit"))
	if _, ok := s.Next(); ok || s.Err() == nil {
		t.Fatal("no error")
	}
	s.Close()
	// Twelve bytes, with a byte order mark that only a new stream may have.
	got, err := split(&s, "\xef\xbb\xbfdata: y\n\n")
	if err != nil || len(got) != 1 || got[0].Data != "y" {
		t.Errorf("got %v, %v; want y", got, err)
	}
	if got, err = split(&s, "data: too long\n\n"); err == nil {
		t.Errorf("the limit is gone after Close: %v", got)
	}
}

// reference reads a whole stream in the way that the standard describes, and returns name and data of each event that a
// client would dispatch.
func reference(stream string) []string {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	var dispatched, data []string
	name := ""
	lines := strings.Split(stream, "\n")
	for _, line := range lines[:len(lines)-1] { // the last line has no end
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				dispatched = append(dispatched, name, strings.Join(data, "\n"))
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return dispatched
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkStream splits a stream in one read and in the given reads.
func checkStream(t failer, reads []string) {
	t.Helper()
	stream := strings.Join(reads, "")
	whole, err := split(new(Splitter), stream)
	if err != nil {
		t.Fatalf("%q: %v", stream, err)
	}
	parts, err := split(new(Splitter), reads...)
	if err != nil {
		t.Fatalf("%q: %v", reads, err)
	}
	if diff := cmp.Diff(whole, parts); diff != "" {
		t.Fatalf("reads %q (-whole +split):\n%s", reads, diff)
	}
	var raw strings.Builder
	var dispatched []string
	for i, e := range whole {
		raw.WriteString(e.Raw)
		if e.HasData && !e.Partial {
			dispatched = append(dispatched, e.Name, e.Data)
		}
		if e.Partial && i < len(whole)-1 {
			t.Fatalf("%q: event %d is partial and not the last", stream, i)
		}
	}
	if raw.String() != stream {
		t.Fatalf("%q: the events' bytes are %q", stream, raw.String())
	}
	if diff := cmp.Diff(reference(stream), dispatched); diff != "" {
		t.Fatalf("%q (-reference +got):\n%s", stream, diff)
	}
	// checkTerminated checks that a completed last event is read as itself.
	checkTerminated(t, whole)
}

// checkTerminated checks that a completed last event reads as itself.
func checkTerminated(t failer, events []eventFields) {
	t.Helper()
	if len(events) == 0 || !events[len(events)-1].Partial {
		return
	}
	last := events[len(events)-1]
	if !last.HasData {
		return
	}
	var before []byte
	if len(events) > 1 {
		before = []byte("\n") // a byte order mark has no meaning behind an event
	}
	raw := Event{Raw: []byte(last.Raw), Partial: true}.AppendTerminated(before)
	again, err := split(new(Splitter), string(raw))
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	for _, e := range again {
		if e.HasData {
			if e.Partial || e.Data != last.Data || e.Name != last.Name {
				t.Fatalf("completed to %q, read as %+v", raw, e)
			}
			return
		}
	}
	t.Fatalf("completed to %q, without an event", raw)
}

func TestEventsDoNotDependOnTheReads(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"data", "data:", "data: ", "event: e", "event:", ":", " ", "x", "{\"a\":1}", "\n", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\xef\xbb\xbf", "id: 1", "é",
	})
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "")
		checkStream(t, splitReads(stream, rapid.SliceOfN(rapid.IntRange(0, 9), 1, 8).Draw(t, "cuts")))
	})
}

// splitReads divides stream into reads of the given sizes, which are used in turn.
func splitReads(stream string, sizes []int) []string {
	var reads []string
	for i := 0; stream != ""; i++ {
		n := min(sizes[i%len(sizes)], len(stream))
		if i >= len(sizes) {
			n = min(n+1, len(stream)) // sizes may be all zero
		}
		reads = append(reads, stream[:n])
		stream = stream[n:]
	}
	return reads
}

func TestEventsOfSamplesDoNotDependOnTheReads(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../format/conformance/testdata/*/*.sse")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d streams, %v", len(files), err)
	}
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(stream); at += 7 + len(stream)/100 {
			checkStream(t, []string{string(stream[:at]), string(stream[at:])})
		}
		crlf := string(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n")))
		for _, n := range []int{1, 3, 64} {
			checkStream(t, splitReads(crlf, []int{n}))
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("data: x\n\n", []byte{1})
	f.Add("event: e\r\ndata: {}\r\n\r\n: c\r\n\r\n", []byte{3, 1})
	f.Add("data: x\r\r\ndata: y\r\n\r\n", []byte{8, 1, 1})
	f.Add("\n\xef\xbb\xbfdata\ndata", []byte{1})
	f.Add("\xef\xbb\xbf: c\ndata\ndata:\n\nevent:", []byte{1, 2})
	f.Fuzz(func(t *testing.T, stream string, cuts []byte) {
		sizes := []int{0}
		for _, c := range cuts {
			sizes = append(sizes, int(c))
		}
		checkStream(t, splitReads(stream, sizes))
	})
}

// room records what a splitter asks for.
type room struct {
	held, most int64
	limit      int64
}

var errNoRoom = errors.New("no room")

func (r *room) Grow(to int64) error {
	if to > r.limit {
		return errNoRoom
	}
	r.held, r.most = max(r.held, to), max(r.most, to)
	return nil
}

func (r *room) Release() { r.held = 0 }

func TestLargeEventsTakeRoomWhileTheyAreHeld(t *testing.T) {
	t.Parallel()
	large := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	var reads []string
	for rest := large; rest != ""; {
		n := min(len(rest), 16<<10)
		reads, rest = append(reads, rest[:n]), rest[n:]
	}
	small := "data: small\n\n"
	for limit, want := range map[int64]error{2 << 20: nil, 1 << 20: errNoRoom} {
		r := &room{limit: limit}
		s := Splitter{Room: r}
		s.Feed([]byte(small))
		_, _ = s.Next()
		if r.most != 0 {
			t.Errorf("a small event takes %d bytes", r.most)
		}
		var got []Event
		for _, read := range reads {
			s.Feed([]byte(read))
			for e, ok := s.Next(); ok; e, ok = s.Next() {
				if got = append(got, e); r.held < int64(len(large)) || string(e.Raw) != large {
					t.Errorf("an event of %d bytes has room for %d", len(e.Raw), r.held)
				}
			}
		}
		if err := s.Err(); !errors.Is(err, want) || (len(got) == 1) != (want == nil) {
			t.Errorf("limit %d: %d events, %v; want %v", limit, len(got), err, want)
		}
		if s.Close(); r.held != 0 {
			t.Errorf("limit %d: %d bytes are held after the stream", limit, r.held)
		}
	}
}
