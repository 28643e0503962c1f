//go:build linux

package chaos

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// A proxy with a full disk admits no requests, because it could not bill them. Requests that
// were running when the disk filled up are billed.
func TestChaos_disk_full_no_admit(t *testing.T) {
	rig.Long(t)
	r := rig.Get(t)
	const full = 3
	dir := smallDisk(t, r, rig.DataPlane(full))
	l := startLoad(t, clients)
	for proxy := range r.Proxies {
		l.await(t, 20, on(proxy))
	}
	filler := fill(t, dir)
	l.await(t, 40, func(q request) bool { return q.proxy == full && q.status == http.StatusServiceUnavailable })
	l.await(t, 20, on(0))
	dead, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{Formats: []string{"chat"}})
	for range 20 {
		answer := r.Do(t, rig.Request{Proxy: full, Path: "/v1/chat/completions", Key: dead.Key, Body: question(model)})
		if answer.Status != http.StatusServiceUnavailable {
			t.Errorf("request with a full disk: got %s; want 503", answer)
		}
	}
	if n := len(r.Sim.Journal(t, model)); n != 0 {
		t.Errorf("the provider got %d requests; want none", n)
	}
	if status, err := r.Ready(t.Context(), rig.DataPlane(full)); status != http.StatusServiceUnavailable || err != nil {
		t.Errorf("/readyz: got %d, %v; want 503", status, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.await(t, 20, on(full))
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// smallDisk mounts a small disk for the spool of a data plane, until the test ends.
func smallDisk(t *testing.T, r *rig.Rig, part string) (dir string) {
	t.Helper()
	const options = "size=8m,mode=0700"
	dir = filepath.Join(r.Dir(), "spool", part)
	probe := t.TempDir()
	if err := syscall.Mount("spool", probe, "tmpfs", 0, options); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
			t.Skipf("a small disk cannot be mounted: %v", err)
		}
		t.Fatal(err)
	}
	if err := syscall.Unmount(probe, 0); err != nil {
		t.Fatal(err)
	}
	r.End(t, part) // an orderly stop leaves the spool empty
	if err := syscall.Mount("spool", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.End(t, part)
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
		r.Resume(t, part)
	})
	r.Resume(t, part)
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, dir string) (name string) {
	t.Helper()
	name = filepath.Join(dir, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for block := make([]byte, 64<<10); len(block) > 0; {
		_, err := file.Write(block)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			block = block[:len(block)/2] // fill the last bytes, too
		case err != nil:
			t.Fatal(err)
		}
	}
	return name
}
