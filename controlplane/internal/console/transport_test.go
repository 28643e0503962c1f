package console

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestPanicOfTheAPIIsLoggedAndNoAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		status  int
		log     string
	}{
		"before the answer": {func(http.ResponseWriter, *http.Request) { panic("a defect") }, http.StatusInternalServerError, "a defect"},
		"within the answer": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic("a defect")
		}, http.StatusOK, "a defect"},
		"a broken answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusInternalServerError, ""},
	} {
		var log bytes.Buffer
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://admin/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport{test.handler, slog.New(slog.NewTextHandler(&log, nil))}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(answer.Body); err == nil || answer.StatusCode != test.status {
			t.Errorf("%s: got %d and a whole body", name, answer.StatusCode)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		if text := log.String(); !strings.Contains(text, test.log) || test.log == "" && text != "" {
			t.Errorf("%s: the log is %q", name, text)
		}
	}
}
