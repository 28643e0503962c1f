package httpapi_test

import (
	"testing"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// server has further steps of these tests.
type server struct{ *servertest.Server }

func start(t *testing.T) *server {
	t.Helper()
	return &server{servertest.Start(t)}
}

func startWith(t *testing.T, v admin.Verifier, others ...func(*httpapi.Config)) *server {
	t.Helper()
	return &server{servertest.StartWith(t, v, others...)}
}
