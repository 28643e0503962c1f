// Package table owns the writing of tables for spreadsheets: CSV as in RFC 4180, and safe to open. A text cell that a
// spreadsheet would take for a formula is written with an apostrophe before it.
package table

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"time"
)

// Plain is a cell that is written as it is: a number, a date, an amount. Only values that this program makes may be
// plain.
type Plain string

// Int returns a whole number as a cell.
func Int(n int64) Plain { return Plain(strconv.FormatInt(n, 10)) }

// Time returns a time as a cell, in RFC 3339 and UTC; empty for the zero time.
func Time(t time.Time) Plain {
	if t.IsZero() {
		return ""
	}
	return Plain(t.UTC().Format(time.RFC3339Nano))
}

// Bool returns "true" or "false" as a cell.
func Bool(b bool) Plain { return Plain(strconv.FormatBool(b)) }

// Writer collects rows. The zero value is ready for use.
type Writer struct {
	buffer bytes.Buffer
	csv    *csv.Writer
	row    []string
}

// Row adds a row. Cells are of type string, for text of any origin, or Plain.
func (w *Writer) Row(cells ...any) {
	if w.csv == nil {
		w.csv = csv.NewWriter(&w.buffer)
		w.csv.UseCRLF = true
	}
	w.row = w.row[:0]
	for _, cell := range cells {
		switch c := cell.(type) {
		case Plain:
			w.row = append(w.row, string(c))
		case string:
			w.row = append(w.row, escape(c))
		default: // the tests of a caller find this
			panic("table: a cell is neither string nor Plain")
		}
	}
	_ = w.csv.Write(w.row) // a bytes.Buffer takes everything
	w.csv.Flush()
}

// formula has the characters that a formula can begin with.
const formula = "=+-@\t\r\n"

// lineEnds makes all line ends alike: with CRLF, csv.Writer drops a carriage return that stands alone.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// escape returns a text that no spreadsheet takes for a formula.
func escape(text string) string {
	if text != "" && strings.IndexByte(formula, text[0]) >= 0 {
		text = "'" + text
	}
	return lineEnds.Replace(text)
}

// Line adds a line that is no row, for formats such as NDJSON.
func (w *Writer) Line(text []byte) {
	w.buffer.Write(text)
	w.buffer.WriteByte('\n')
}

// Bytes returns the text written since Reset. It is valid until the next call of a method.
func (w *Writer) Bytes() []byte { return w.buffer.Bytes() }

// Reset discards the text.
func (w *Writer) Reset() { w.buffer.Reset() }
