package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// PeakMemory returns the greatest resident memory of a part's process so far, in bytes, and the process id.
func (r *Rig) PeakMemory(t *testing.T, part string) (peak int64, pid string) {
	t.Helper()
	listen := "MGW_OPS_LISTEN=" + strings.TrimPrefix(r.stack.State().OpsURLs[part], "http://") + "\x00"
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range environments {
		environment, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environment, []byte(listen)) {
			continue // a process of another user, or one that has ended
		}
		process := filepath.Dir(name)
		status, err := os.ReadFile(filepath.Join(process, "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		if _, err := fmt.Sscanf(rest, "%d kB", &peak); err != nil {
			t.Fatalf("the status of %s has no peak: %v", part, err)
		}
		return peak << 10, filepath.Base(process)
	}

	t.Fatalf("no process of %s is found", part)
	return 0, ""
}
