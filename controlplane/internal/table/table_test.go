package table_test

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/table"
)

func TestRowIsQuotedWhereNeeded(t *testing.T) {
	t.Parallel()
	var w table.Writer
	w.Row("a", `say "no"`, "x,y", "two\r\nlines", " padded ", "", table.Plain("-1.50"), table.Int(-7), table.Bool(true))
	w.Row(table.Time(time.Date(2026, 10, 1, 12, 0, 0, 5e8, time.FixedZone("x", 3600))), table.Time(time.Time{}))
	want := "a,\"say \"\"no\"\"\",\"x,y\",\"two\r\nlines\",\" padded \",,-1.50,-7,true\r\n2026-10-01T11:00:00.5Z,\r\n"
	if diff := cmp.Diff(want, string(w.Bytes())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w.Reset(); len(w.Bytes()) != 0 {
		t.Error("rows are left after Reset")
	}
}

func TestTextIsNeverAFormula(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`=HYPERLINK("http://x")`, "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"} {
		var w table.Writer
		w.Row(text)
		if got := strings.TrimPrefix(string(w.Bytes()), `"`); !strings.HasPrefix(got, "'") {
			t.Errorf("%q is written %q", text, w.Bytes())
		}
	}
}

// A reader gets every text back, except for the apostrophe and the kind of line ends.
func FuzzRow(f *testing.F) {
	f.Add("plain", "=1")
	f.Add("\"", ",\r\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		var w table.Writer
		w.Row("first", a, b)
		read, err := csv.NewReader(strings.NewReader(string(w.Bytes()))).ReadAll()
		if err != nil || len(read) != 1 || len(read[0]) != 3 {
			t.Fatalf("%q, %q is read as %q, %v", a, b, read, err)
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace
		for i, want := range []string{a, b} {
			if got := read[0][i+1]; lines(strings.TrimPrefix(got, "'")) != lines(strings.TrimPrefix(want, "'")) {
				t.Errorf("%q is read as %q", want, got)
			}
		}
	})
}
