package providerbill

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"modelgateway/shared/ident"
)

// importStore takes bills and keeps nothing. line is called with each line.
type importStore struct {
	Store
	line  func(n int64)
	added *Bill
}

func (s *importStore) Gateway(context.Context, string) (string, time.Time, bool, error) {
	return "USD", time.Time{}, true, nil
}

func (s *importStore) Find(context.Context, [sha256.Size]byte) (*Bill, error) {
	return nil, ErrNotFound
}

func (s *importStore) Add(_ context.Context, bill *Bill, read func(add func(*Line) error) error) error {
	n := int64(0)
	s.added = bill
	return read(func(*Line) error {
		n++
		s.line(n)
		return nil
	})
}

func (s *importStore) Get(context.Context, ident.UUID) (*Bill, error) { return s.added, nil }

func (s *importStore) Pairs(context.Context, *Scope) iter.Seq2[*Pair, error] {
	return func(func(*Pair, error) bool) {}
}

func (s *importStore) SetComparison(context.Context, ident.UUID, *Comparison) error { return nil }

// repeated is a file of a head, a part that is repeated, and an end. It takes no memory.
type repeated struct {
	rest, part, end string
	times           int
	sent            int64
}

func (r *repeated) Read(p []byte) (int, error) {
	switch {
	case len(r.rest) > 0:
	case r.times > 0:
		r.rest = r.part
		r.times--
	case len(r.end) > 0:
		r.rest, r.end = r.end, ""
	default:
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	r.sent += int64(n)
	return n, nil
}

// packed packs a file while it is read.
func packed(file io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		w := gzip.NewWriter(in)
		_, err := io.Copy(w, file)
		_ = in.CloseWithError(errors.Join(err, w.Close()))
	}()
	return out
}

// A file of any size is imported within a few megabytes: no more than a row or a day of it is held. The test measures the heap, so it
// runs alone.
func TestImportHoldsLittleOfItsFile(t *testing.T) { //nolint:paralleltest // see above
	day := func(results int) string {
		return `{"starting_at":"2025-11-28T00:00:00Z","ending_at":"2025-11-29T00:00:00Z","results":[` + strings.Repeat(
			`{"amount":"1","currency":"USD","model":"demo-2","workspace_id":"wrkspc_a"},`, results-1) +
			`{"amount":"1","currency":"USD","model":"demo-2","workspace_id":"wrkspc_a"}]}`
	}
	table := func(bytes int) *repeated {
		const row = "2025-11-28,demo-5,main,id-1,1,10,20,0.000001,USD\n"
		return &repeated{rest: plain[:strings.Index(plain, "\n")+1], part: row, times: bytes / len(row)}
	}
	for name, file := range map[string]*repeated{
		"a table":            table(6 << 20),
		"a packed table":     table(8 << 20),
		"a report of days":   {rest: `{"data":[` + day(100), part: "," + day(100), times: (6 << 20) / len(day(100)), end: `],"has_more":false}`},
		"a report of a page": {rest: `{"has_more":false,"data":[` + day(10_000), part: "," + day(10_000), times: 8, end: `]}`},
	} {
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		most := int64(2 << 20)
		if name == "a report of a page" { // its days have 760 KB each
			most = 5 << 20
		}
		before, held := heap(), int64(0)
		store := &importStore{line: func(n int64) {
			if n%10_000 == 1 {
				held = max(held, heap()-before)
			}
		}}
		var in io.Reader = file
		if name == "a packed table" {
			in = packed(file)
		}
		bill, _, err := NewService(store).Import(t.Context(), ident.New(), in, &Options{Provider: "acme", TimeZone: "UTC"}, "operator")
		if err != nil {
			t.Errorf("%s: %v after %d bytes", name, err, file.sent)
			continue
		}
		if bill.Lines < 80_000 || held > most {
			t.Errorf("%s: %d bytes of the heap were held for %d lines in %d bytes; want at most %d", name, held, bill.Lines, file.sent, most)
		}
		t.Logf("%s: %d KiB held for %d MiB", name, held>>10, file.sent>>20)
	}
}

var errGone = errors.New("the client is gone")

// What is wrong with the sending is nothing that is wrong with the file.
func TestErrorsOfTheUploadAreTheirOwn(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]io.Reader{
		"gone in a table":         io.MultiReader(strings.NewReader(plain), iotest.ErrReader(errGone)),
		"gone in a report":        io.MultiReader(strings.NewReader(anthropicCost[:200]), iotest.ErrReader(errGone)),
		"gone at once":            iotest.ErrReader(errGone),
		"gone in what was packed": io.MultiReader(strings.NewReader(pack(t, plain)[:40]), iotest.ErrReader(errGone)),
	} {
		_, _, err := NewService(&importStore{line: func(int64) {}}).Import(t.Context(), ident.New(), file, &Options{Provider: "acme", TimeZone: "UTC"}, "operator")
		if !errors.Is(err, errGone) {
			t.Errorf("%s: got %v; want %v", name, err, errGone)
		}
	}
	rows := &repeated{rest: plain[:strings.Index(plain, "\n")+1], part: "2025-11-28," + strings.Repeat("m", 290) + ",main,id-1,1,10,20,0.000001,USD\n", times: MaxFile / 300}
	_, _, err := NewService(&importStore{line: func(int64) {}}).Import(t.Context(), ident.New(), rows, &Options{Provider: "acme", TimeZone: "UTC"}, "operator")
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file of %d bytes: got %v; want %v", rows.sent, err, ErrTooLarge)
	}
}
