package billingapi_test

import (
	"testing"

	"modelgateway/controlplane/internal/httpapi/servertest"
)

// server has further steps of these tests.
type server struct{ *servertest.Server }

func start(t *testing.T) *server {
	t.Helper()
	return &server{servertest.Start(t)}
}
