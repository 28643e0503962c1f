package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/table"
	"modelgateway/controlplane/internal/validation"
)

const (
	// exportPage is how many rows are read and written at a time: all that an export holds in memory.
	exportPage = 1000
	// exportStall bounds how long a client may leave one page untaken.
	exportStall = time.Minute

	mediaCSV    = "text/csv"
	mediaNDJSON = "application/x-ndjson"
)

// The trailers behind an export that is whole.
const (
	trailerComplete = "Export-Complete"
	trailerRows     = "Export-Rows"
	trailerCursor   = "Export-Cursor"
)

// errCut is returned for an export that broke in its middle. The connection is
// then cut, so that what has arrived does not look like the whole.
var errCut = errors.New("httpapi: the export broke off")

// export streams rows of type T, page by page. It holds no connection to the
// database while a client takes its time.
type export[T any] struct {
	ctx  context.Context //nolint:containedctx // a response is written without one
	name string
	csv  bool
	// header and row are for tables, view for lines of JSON.
	header []any
	row    func(w *table.Writer, r *T)
	view   func(r *T) (any, error)
	// page reads rows behind another one; nil for the first page.
	page func(ctx context.Context, after *T) ([]T, error)
	// cursor names a row, to go on behind it.
	cursor func(r *T) string
	// first is the first page: its failure is still an error of the API.
	first []T
}

// exportFormat reads what is wanted: the parameter is stronger than the
// header, and lines of JSON are the default.
func exportFormat(format *gen.ExportFormat, accept *string) (csv bool, err error) {
	switch {
	case format == nil:
		return strings.Contains(orEmpty(accept), mediaCSV), nil
	case *format != gen.FormatCSV && *format != gen.FormatNDJSON:
		return false, validation.New("format", "must be %q or %q", gen.FormatCSV, gen.FormatNDJSON)
	default:
		return *format == gen.FormatCSV, nil
	}
}

// begin reads the first page.
func (e *export[T]) begin() error {
	var err error
	e.first, err = e.page(e.ctx, nil)
	return err
}

// write streams the export.
func (e *export[T]) write(w http.ResponseWriter) error {
	header, media := w.Header(), mediaNDJSON
	if e.csv {
		media = mediaCSV + "; charset=utf-8; header=present"
	}
	header.Set("Content-Type", media)
	header.Set("Content-Disposition", "attachment; filename="+e.name+map[bool]string{true: ".csv", false: ".ndjson"}[e.csv])
	header.Set("Trailer", strings.Join([]string{trailerComplete, trailerRows, trailerCursor}, ", "))
	w.WriteHeader(http.StatusOK)
	rows, last, err := e.stream(w)
	if err != nil {
		return fmt.Errorf("%w after %d rows: %w", errCut, rows, err)
	}
	header.Set(trailerComplete, "true")
	header.Set(trailerRows, strconv.Itoa(rows))
	header.Set(trailerCursor, last)
	return nil
}

func (e *export[T]) stream(w http.ResponseWriter) (rows int, last string, err error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's own would end a long export; without deadlines there is none
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	var out table.Writer
	if e.csv {
		out.Row(e.header...)
	}
	for page := e.first; ; {
		for i := range page {
			if err := e.put(&out, &page[i]); err != nil {
				return rows, last, err
			}
		}
		_ = control.SetWriteDeadline(time.Now().Add(exportStall))
		if _, err := w.Write(out.Bytes()); err != nil {
			return rows, last, err
		}
		if err := control.Flush(); err != nil {
			return rows, last, fmt.Errorf("flush: %w", err)
		}
		out.Reset()
		rows += len(page)
		if len(page) == 0 {
			return rows, last, nil
		}
		after := page[len(page)-1]
		if last = e.cursor(&after); len(page) < exportPage {
			return rows, last, nil
		}
		if page, err = e.page(e.ctx, &after); err != nil {
			return rows, last, err
		}
	}
}

func (e *export[T]) put(out *table.Writer, row *T) error {
	if e.csv {
		e.row(out, row)
		return nil
	}
	view, err := e.view(row)
	if err != nil {
		return err
	}
	line, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("encode row: %w", err)
	}
	out.Line(line)
	return nil
}

// until is the end of an export: what begins while it runs is not in it.
func until(to *time.Time) time.Time {
	now := time.Now()
	if to == nil || to.After(now) {
		return now
	}
	return *to
}
