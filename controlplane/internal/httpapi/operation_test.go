package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/api"
)

// The error handler logs an error unless the client has gone, so the context that
// it sees must not be the one that ends with the operation.
func TestErrorHandlerSeesTheContextOfTheRequest(t *testing.T) {
	t.Parallel()
	p := pipeline{
		operations: map[string]operation{"test": {}}, timeLimit: time.Minute,
		address: func(*http.Request) netip.Addr { return netip.Addr{} },
	}
	c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), httptest.NewRecorder())
	if err := p.run(c, "test", nil); err == nil {
		t.Fatal("a request without a token is accepted")
	}
	if err := c.Request().Context().Err(); err != nil {
		t.Errorf("the context has ended: %v", err)
	}
}

func TestUnlimitedOperationsExist(t *testing.T) {
	t.Parallel()
	operations, err := readOperations(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range unlimited {
		if op, ok := operations[id]; !ok || op.timeLimit(id, time.Second) != 0 {
			t.Errorf("%s does not exist, or has a time limit", id)
		}
	}
}
