package proxybench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Environment returns two lines about where and when a table was measured: the machine, and the commit of the checkout in the
// folder with the time and the load of the machine, which disturbs all figures.
func Environment(ctx context.Context, folder string, now time.Time) string {
	return fmt.Sprintf("%s (%s), %d cores, Linux %s, %s\n%s, %s, load average %s\n",
		found(`(?m)^model name\s*:\s*(.+?)\s*$`, "/proc/cpuinfo"),
		runtime.GOARCH,
		runtime.NumCPU(),
		found(`^(\S+)`, "/proc/sys/kernel/osrelease"),
		runtime.Version(),
		commit(ctx, folder),
		now.UTC().Format("2006-01-02 15:04 UTC"),
		found(`^(\S+)`, "/proc/loadavg"))
}

const unknown = "unknown"

// found returns what the group of a pattern matches in a file.
func found(pattern, file string) string {
	text, err := os.ReadFile(file)
	match := regexp.MustCompile(pattern).FindSubmatch(text)
	if err != nil || match == nil {
		return unknown
	}
	return string(match[1])
}

// commit returns the commit of a checkout, and whether files differ from it.
func commit(ctx context.Context, folder string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}

	name, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "commit " + unknown
	}
	if changes, err := git("status", "--porcelain"); err != nil || changes != "" {
		name += " (changed)"
	}
	return "commit " + name
}
