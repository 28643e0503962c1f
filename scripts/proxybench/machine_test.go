package proxybench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEnvironmentNamesMachineCommitAndTime(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := time.Date(2026, 11, 29, 3, 4, 5, 0, time.FixedZone("", 3600))
	check := func(want string) {
		t.Helper()
		pattern := `^.+ \(\w+\), \d+ cores, Linux \d\S+, go1\.\S+\n` + want + `, 2026-11-29 02:04 UTC, load average \d+\.\d+\n$`
		if got := Environment(t.Context(), folder, at); !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("got %q; want a match of %s", got, pattern)
		}
	}

	check("commit unknown")
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, args...)...).Output()
		if err != nil {
			t.Fatal(args, err)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet")
	git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--message=first")
	name := git("rev-parse", "--short=12", "HEAD")
	check("commit " + name)
	if err := os.WriteFile(filepath.Join(folder, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("commit " + name + ` \(changed\)`)
}

func TestUnreadableFactsAreUnknown(t *testing.T) {
	t.Parallel()
	if got := found("(x)", filepath.Join(t.TempDir(), "missing")); got != unknown {
		t.Errorf("a missing file: got %q", got)
	}
	if got := found("^(no such text)$", "/proc/loadavg"); got != unknown {
		t.Errorf("another text: got %q", got)
	}
}
