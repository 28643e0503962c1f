package problem

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/platform/apidoc/apipage"
)

// The API document lists exactly the problems of the table, with their statuses.
func TestAPIDocumentListsAllProblems(t *testing.T) {
	t.Parallel()
	site, err := apipage.New(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]int{}
	for _, p := range site.ProblemTypes() {
		documented[p.Code] = p.Status
	}
	listed := map[string]bool{internal.Code: true, invalidInput.Code: true}
	for _, k := range kinds {
		listed[k.kind.Code] = true
		if documented[k.kind.Code] != k.kind.Status {
			t.Errorf("%s has status %d; x-problems of the document says %d", k.kind.Code, k.kind.Status, documented[k.kind.Code])
		}
	}
	for code := range documented {
		if !listed[code] {
			t.Errorf("x-problems of the document has %s, which is not in the table", code)
		}
	}
}

// A problem document has the texts of the table, never the text of the error.
func TestProblemDoesNotRevealTheError(t *testing.T) {
	t.Parallel()
	const secret = "password=hush"
	for name, err := range map[string]error{
		"internal": errors.New(secret), "known": fmt.Errorf("%w: %s", key.ErrNotFound, secret), "routing": echo.NewHTTPError(http.StatusTeapot, secret),
		"malformed": echo.NewHTTPError(http.StatusBadRequest, secret), "identity": fmt.Errorf("%w: %s", admin.ErrUnauthenticated, secret),
	} {
		answer := httptest.NewRecorder()
		c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), answer)
		Writer{slog.New(slog.DiscardHandler)}.Handle(err, c)
		if answer.Code < http.StatusBadRequest || strings.Contains(answer.Body.String()+fmt.Sprint(answer.Header()), "hush") {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}
