package rig

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
)

// Gwctl returns a command of the gwctl that was built with the stack: building it again takes minutes on a busy machine, and a test
// that sends requests meanwhile uses up what its accounts have.
func (r *Rig) Gwctl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), filepath.Join(r.programs, "gwctl"), args...)
}

// Ready returns the status of the readiness probe of a part.
func (r *Rig) Ready(ctx context.Context, part string) (int, error) {
	response, err := r.ops(ctx, part, "/readyz")
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// Ops returns the body of a page of the ops listener of a part.
func (r *Rig) Ops(t *testing.T, part, path string) string {
	t.Helper()
	response, err := r.ops(t.Context(), part, path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s of %s: %s, %v", path, part, response.Status, err)
	}
	return string(body)
}

func (r *Rig) ops(ctx context.Context, part, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.stack.State().OpsURLs[part]+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// OpsURL returns the URL of the ops listener of a part.
func (r *Rig) OpsURL(part string) string { return r.stack.State().OpsURLs[part] }
