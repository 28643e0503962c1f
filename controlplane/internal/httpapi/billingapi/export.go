package billingapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/spreadsheet"
	"modelgateway/controlplane/internal/validation"
)

const (
	// exportPage is the number of rows that are read and written at a time. An export holds no more in memory.
	exportPage = 1000
	// exportStall bounds how long a client may take to receive one page.
	exportStall = time.Minute

	mediaCSV    = "text/csv"
	mediaNDJSON = "application/x-ndjson"
)

// The trailers of a complete export.
const (
	trailerComplete = "Export-Complete"
	trailerRows     = "Export-Rows"
	trailerCursor   = "Export-Cursor"
)

// export streams rows of type T, page by page. It holds no database connection
// while the client receives a page.
type export[T any] struct {
	ctx  context.Context //nolint:containedctx // a response is written without one
	name string
	csv  bool
	// header and row write CSV, view is encoded as a line of JSON.
	header []any
	row    func(w *spreadsheet.Writer, r *T)
	view   func(r *T) (any, error)
	// page reads the rows after another one, or the first rows if after is nil.
	page func(ctx context.Context, after *T) ([]T, error)
	// cursor returns the cursor that continues after a row.
	cursor func(r *T) string
	// first is the first page. It is read before the response starts, so that its failure gives a problem document.
	first []T
}

// exportFormat returns the format of an export. The parameter takes precedence
// over the header; the default is lines of JSON.
func exportFormat(format *gen.ExportFormat, accept *string) (csv bool, err error) {
	switch {
	case format == nil:
		return strings.Contains(convert.Text(accept), mediaCSV), nil
	case *format != gen.ExportFormatCSV && *format != gen.ExportFormatNDJSON:
		return false, validation.New("format", "must be %q or %q", gen.ExportFormatCSV, gen.ExportFormatNDJSON)
	default:
		return *format == gen.ExportFormatCSV, nil
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
		return fmt.Errorf("%w after %d rows: %w", problem.ErrTruncated, rows, err)
	}

	header.Set(trailerComplete, "true")
	header.Set(trailerRows, strconv.Itoa(rows))
	header.Set(trailerCursor, last)
	return nil
}

func (e *export[T]) stream(w http.ResponseWriter) (rows int, last string, err error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's read deadline would end a long export
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	var out bytes.Buffer
	table := spreadsheet.NewWriter(&out)
	if e.csv {
		table.Row(e.header...)
	}

	for page := e.first; ; {
		for i := range page {
			if err := e.put(&out, table, &page[i]); err != nil {
				return rows, last, err
			}
		}

		if err := table.Flush(); err != nil {
			return rows, last, err
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

// put adds a row to out, by way of the table if it is CSV.
func (e *export[T]) put(out *bytes.Buffer, table *spreadsheet.Writer, row *T) error {
	if e.csv {
		e.row(table, row)
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
	out.Write(append(line, '\n'))
	return nil
}

// until returns the end of an export's time range: now at the latest, so that an
// export does not include what starts while it runs.
func until(to *time.Time) time.Time {
	now := time.Now()
	if to == nil || to.After(now) {
		return now
	}
	return *to
}
