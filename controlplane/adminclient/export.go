package adminclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// ErrIncomplete is returned for an export of which only a part arrived. The last row of that part may be truncated.
var ErrIncomplete = errors.New("adminclient: the export is incomplete")

// Export is the stream of an export. Read it with CopyTo, or read Body and close it.
type Export struct {
	Body   io.ReadCloser
	Header http.Header

	response *http.Response
}

// ExportSummary says how much an export contained.
type ExportSummary struct {
	Rows int64
	// Cursor, as a parameter of another export, continues after the last row. It is empty if there were no rows.
	Cursor string
}

func export(ctx context.Context, c *Client, in call, options []CallOption) (*Export, error) {
	answer, err := c.send(ctx, in, options) //nolint:bodyclose // the caller closes the Export
	if err != nil {
		return nil, err
	}
	return &Export{Body: answer.Body, Header: answer.Header, response: answer}, nil
}

// CopyTo writes the export to w as it arrives and closes it. It returns no error only if the export is complete.
func (e *Export) CopyTo(w io.Writer) (ExportSummary, error) {
	defer func() { _ = e.Body.Close() }()
	if _, err := io.Copy(w, e.Body); err != nil {
		return ExportSummary{}, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	trailer := e.response.Trailer
	rows, err := strconv.ParseInt(trailer.Get("Export-Rows"), 10, 64)
	if trailer.Get("Export-Complete") != "true" || err != nil {
		return ExportSummary{}, ErrIncomplete
	}
	return ExportSummary{rows, trailer.Get("Export-Cursor")}, nil
}
