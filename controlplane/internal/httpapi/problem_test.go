package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/key"
	"modelgateway/shared/apidoc/apipage"
)

// Every kind of problem that can be answered is in the document, with its
// status, and every one that is in the document can be answered.
func TestProblemsAreDocumented(t *testing.T) {
	t.Parallel()
	site, err := apipage.New(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]int{}
	for _, p := range site.Kinds() {
		documented[p.Code] = p.Status
	}
	answered := map[string]bool{internal.code: true, invalidInput.code: true}
	for _, k := range kinds {
		answered[k.kind.code] = true
		if documented[k.kind.code] != k.kind.status {
			t.Errorf("%s is answered with %d; x-problems of the document says %d", k.kind.code, k.kind.status, documented[k.kind.code])
		}
	}
	for code := range documented {
		if !answered[code] {
			t.Errorf("x-problems of the document has %s, which nothing answers", code)
		}
	}
}

// TestUnboundedOperationsExist: one that was given another id would be cut.
func TestUnboundedOperationsExist(t *testing.T) {
	t.Parallel()
	operations, err := readOperations(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range unbounded {
		if op, ok := operations[id]; !ok || op.bound(id, time.Second) != 0 {
			t.Errorf("%s is no operation, or has a bound", id)
		}
	}
}

// TestCausesStayInside: a client reads what the table says of an error, and
// nothing of the error itself.
func TestCausesStayInside(t *testing.T) {
	t.Parallel()
	const secret = "password=hush"
	for name, err := range map[string]error{
		"internal": errors.New(secret), "known": fmt.Errorf("%w: %s", key.ErrNotFound, secret), "routing": echo.NewHTTPError(http.StatusTeapot, secret),
		"malformed": echo.NewHTTPError(http.StatusBadRequest, secret), "identity": fmt.Errorf("%w: %s", admin.ErrUnauthenticated, secret),
	} {
		answer := httptest.NewRecorder()
		c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), answer)
		problems{slog.New(slog.DiscardHandler)}.handle(err, c)
		if answer.Code < http.StatusBadRequest || strings.Contains(answer.Body.String()+fmt.Sprint(answer.Header()), "hush") {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}
