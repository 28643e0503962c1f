// Package spreadsheet writes CSV (RFC 4180) that is safe to open in a
// spreadsheet program: a text cell that the program would take for a formula is
// written with an apostrophe before it. A program with another separator than the
// comma, as many countries have, takes other parts of a text for cells: they are
// written so, too.
package spreadsheet

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Raw is a cell that is written as it is: a number, a date, an amount. Text
// from outside must not be Raw.
type Raw string

// Int returns an integer as a cell.
func Int(n int64) Raw { return Raw(strconv.FormatInt(n, 10)) }

// Time returns a time as a cell, in RFC 3339 and UTC; empty for the zero time.
func Time(t time.Time) Raw {
	if t.IsZero() {
		return ""
	}
	return Raw(t.UTC().Format(time.RFC3339Nano))
}

// Bool returns "true" or "false" as a cell.
func Bool(b bool) Raw { return Raw(strconv.FormatBool(b)) }

// Writer writes rows. Call Flush after the last one.
type Writer struct{ csv *csv.Writer }

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer {
	rows := csv.NewWriter(w)
	rows.UseCRLF = true
	return &Writer{rows}
}

// Row writes a row. Cells are of type string, for text from outside, or Raw. Flush
// reports the error of any row.
func (w *Writer) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		switch c := cell.(type) {
		case Raw:
			texts[i] = string(c)
		case string:
			texts[i] = safe(c)
		default: // a programming error that any test of the caller finds
			panic("spreadsheet: a cell is neither string nor Raw")
		}
	}
	_ = w.csv.Write(texts) // csv.Writer keeps the error for Flush
}

// Flush writes buffered rows and returns the first error of the Writer.
func (w *Writer) Flush() error {
	w.csv.Flush()
	if err := w.csv.Error(); err != nil {
		return fmt.Errorf("spreadsheet: %w", err)
	}
	return nil
}

// formulaStart are the characters that a formula can begin with.
const formulaStart = "=+-@\t\r\n＝＋－＠"

// lineEnds replaces all line ends by line feeds, since csv.Writer drops a carriage
// return without a line feed.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// formulaInside matches the beginning of a formula after what separates cells or rows for some program, with the quotes in between: a
// program that cuts the line at semicolons does not see the quotes around the cell.
var formulaInside = regexp.MustCompile(`([;\t\n|]"*)([=+\-@＝＋－＠])`)

func safe(text string) string {
	text = formulaInside.ReplaceAllString(lineEnds.Replace(text), "$1'$2")
	if first, _ := utf8.DecodeRuneInString(text); text != "" && strings.ContainsRune(formulaStart, first) {
		return "'" + text
	}
	return text
}
