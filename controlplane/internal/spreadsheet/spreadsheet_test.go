package spreadsheet_test

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/spreadsheet"
)

func write(t *testing.T, rows ...[]any) string {
	t.Helper()
	var text strings.Builder
	w := spreadsheet.NewWriter(&text)
	for _, row := range rows {
		w.Row(row...)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestRowQuotesCells(t *testing.T) {
	t.Parallel()
	got := write(t,
		[]any{"a", `say "no"`, "x,y", "two\r\nlines", " padded ", "", spreadsheet.Raw("-1.50"), spreadsheet.Int(-7), spreadsheet.Bool(true)},
		[]any{spreadsheet.Time(time.Date(2026, 10, 1, 12, 0, 0, 5e8, time.FixedZone("x", 3600))), spreadsheet.Time(time.Time{})},
	)
	want := "a,\"say \"\"no\"\"\",\"x,y\",\"two\r\nlines\",\" padded \",,-1.50,-7,true\r\n2026-10-01T11:00:00.5Z,\r\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTextIsNeverAFormula(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`=HYPERLINK("http://x")`, "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"} {
		got := write(t, []any{text})
		if !strings.HasPrefix(strings.TrimPrefix(got, `"`), "'") {
			t.Errorf("%q is written %q", text, got)
		}
	}
}

// Where the comma is the decimal separator, programs cut lines at semicolons, inside quotes that they do not see.
func TestFormulaAfterAnotherSeparatorIsNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`x;=HYPERLINK("http://x")`: `"x;'=HYPERLINK(""http://x"")"`,
		`x;"=1`:                    `"x;""'=1"`,
		"x\n@SUM(A1)":              "\"x\r\n'@SUM(A1)\"",
		"x\t+1":                    "x\t'+1",
		"x|-1":                     "x|'-1",
		"＝1":                       "'＝1",
		"x; 1, a=b, 2026-01-01":    `"x; 1, a=b, 2026-01-01"`,
	} {
		if got := write(t, []any{text}); got != want+"\r\n" {
			t.Errorf("%q is written %q; want %q", text, got, want)
		}
	}
}

// A reader gets every text back, except for apostrophes and for line ends.
func FuzzRow(f *testing.F) {
	f.Add("plain", "=1")
	f.Add("\"", ",\r\n")
	f.Add("\r", "a\rb")
	f.Add("a;\"=1", "a\n-b")
	f.Fuzz(func(t *testing.T, a, b string) {
		text := write(t, []any{"first", a, b})
		read, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(read) != 1 || len(read[0]) != 3 {
			t.Fatalf("%q, %q is read as %q, %v", a, b, read, err)
		}
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n", "'", "").Replace
		for i, want := range []string{a, b} {
			if got := read[0][i+1]; lines(got) != lines(want) {
				t.Errorf("%q is read as %q", want, got)
			}
		}
	})
}
