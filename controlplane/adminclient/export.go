package adminclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// ErrIncomplete is returned for an export that broke off: what has arrived is
// a part, whose last row may be torn.
var ErrIncomplete = errors.New("adminclient: the export broke off")

// Exported says how far an export came.
type Exported struct {
	Rows int64
	// Cursor goes on behind the last row; empty if there was none.
	Cursor string
}

// CopyExport writes the answer of ExportUsage or ExportLedger to w as it
// arrives, and returns nil only if it arrived whole. It closes the answer.
func CopyExport(w io.Writer, r *http.Response) (Exported, error) {
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		problem := &Problem{Status: r.StatusCode, Title: r.Status}
		_ = json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(problem) // what is no problem document keeps its status line
		return Exported{}, problem
	}
	if _, err := io.Copy(w, r.Body); err != nil {
		return Exported{}, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	rows, err := strconv.ParseInt(r.Trailer.Get("Export-Rows"), 10, 64)
	if r.Trailer.Get("Export-Complete") != "true" || err != nil {
		return Exported{}, ErrIncomplete
	}
	return Exported{rows, r.Trailer.Get("Export-Cursor")}, nil
}
