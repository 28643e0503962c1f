// Package table owns the writing of tables for spreadsheets: CSV as RFC 4180
// has it, and safe to open. A text cell that a spreadsheet would take for a
// formula is written with an apostrophe before it.
package table

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Plain is a cell that is written as it is: a number, a date, an amount. Only
// what this program makes may be plain.
type Plain string

// Int is a whole number as a cell.
func Int(n int64) Plain { return Plain(strconv.FormatInt(n, 10)) }

// Time is a moment as a cell, in RFC 3339 and UTC; empty for the zero time.
func Time(t time.Time) Plain {
	if t.IsZero() {
		return ""
	}
	return Plain(t.UTC().Format(time.RFC3339Nano))
}

// Bool is "true" or "false".
func Bool(b bool) Plain { return Plain(strconv.FormatBool(b)) }

// Writer collects rows. The zero value is ready for use.
type Writer struct{ buffer bytes.Buffer }

// Row adds a row. Cells are of type string, for text from anywhere, or Plain.
func (w *Writer) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			w.buffer.WriteByte(',')
		}
		switch c := cell.(type) {
		case Plain:
			w.cell(string(c))
		case string:
			w.cell(safe(c))
		default: // no caller can be wrong about this and pass its tests
			panic("table: a cell is neither string nor Plain")
		}
	}
	w.buffer.WriteString("\r\n")
}

// formula is what a spreadsheet's formula can begin with.
const formula = "=+-@\t\r\n"

// safe is a text that no spreadsheet takes for a formula.
func safe(text string) string {
	if text != "" && strings.IndexByte(formula, text[0]) >= 0 {
		return "'" + text
	}
	return text
}

func (w *Writer) cell(text string) {
	if !strings.ContainsAny(text, "\",\r\n") && !strings.HasPrefix(text, " ") && !strings.HasSuffix(text, " ") {
		w.buffer.WriteString(text)
		return
	}
	w.buffer.WriteByte('"')
	w.buffer.WriteString(strings.ReplaceAll(text, `"`, `""`))
	w.buffer.WriteByte('"')
}

// Line adds a line that is no row, for formats that are lines of something
// else.
func (w *Writer) Line(text []byte) {
	w.buffer.Write(text)
	w.buffer.WriteByte('\n')
}

// Bytes is what was written since Reset.
func (w *Writer) Bytes() []byte { return w.buffer.Bytes() }

// Reset forgets what was written.
func (w *Writer) Reset() { w.buffer.Reset() }
