package chaos

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// previousVariable names the environment variable with the commit or tag of the release before.
// Without it the newest tag is taken.
const previousVariable = "PREVIOUS"

// buildPrevious builds the planes of the release before and returns the directory of the binaries.
func buildPrevious(t *testing.T) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "git", args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	ref := os.Getenv(previousVariable)
	if ref == "" {
		tag, err := git("describe", "--tags", "--abbrev=0")
		if err != nil {
			t.Skipf("nothing has been released; set %s to a commit", previousVariable)
		}
		ref = tag
	}
	source, bin := filepath.Join(t.TempDir(), "source"), t.TempDir()
	if out, err := git("worktree", "add", "--detach", source, ref); err != nil {
		t.Fatalf("check out %s: %v: %s", ref, err, out)
	}
	t.Cleanup(func() {
		if out, err := git("worktree", "remove", "--force", source); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./controlplane/cmd/controlplane", "./dataplane/cmd/dataplane")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", ref, err, out)
	}
	t.Logf("the release before is %s", ref)
	return bin
}

// A rolling upgrade and a rollback, in either order of the planes, under load: old proxies run
// beside new control planes, and new proxies beside old ones, on the schema of this version. No
// request fails, and each is billed once.
func TestNeighbouringReleasesServeTogether(t *testing.T) {
	rig.Long(t)
	previous := buildPrevious(t)
	r := rig.Start(t, rig.Options{ControlPlanes: 2, ControlSettings: shortSessions()})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}, Directives: loadDirectives})
	l := startLoadAt(t, r, clients, model, newBalancer(t, r).pick)
	l.await(t, 60, answered)
	l.checkAllAnswered(t, "at first")
	for _, step := range []struct {
		what    string
		replace func()
	}{
		{"control planes of the release before", func() { r.SetControlPlaneBinaries(previous); r.Restart(t, r.ControlPlanes()...) }},
		{"all planes of the release before", func() { r.SetDataPlaneBinaries(previous); r.Restart(t, r.DataPlanes()...) }},
		{"new control planes, old proxies", func() { r.SetControlPlaneBinaries(""); r.Restart(t, r.ControlPlanes()...) }},
		{"all planes new", func() { r.SetDataPlaneBinaries(""); r.Restart(t, r.DataPlanes()...) }},
		{"proxies of the release before", func() { r.SetDataPlaneBinaries(previous); r.Restart(t, r.DataPlanes()...) }},
		{"all planes of the release before again", func() { r.SetControlPlaneBinaries(previous); r.Restart(t, r.ControlPlanes()...) }},
		{"new proxies, old control planes", func() { r.SetDataPlaneBinaries(""); r.Restart(t, r.DataPlanes()...) }},
		{"all planes new again", func() { r.SetControlPlaneBinaries(""); r.Restart(t, r.ControlPlanes()...) }},
	} {
		step.replace()
		l.await(t, 20*clients, answered)
		l.checkAllAnswered(t, step.what)
	}
	checkNoFailure(t, r)
	asked := l.finish()
	l.checkAllAnswered(t, "at last")
	checkBills(t, l, asked, credit)
}
