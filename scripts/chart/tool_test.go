package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	root     = "../.."
	chartDir = root + "/deploy/helm/modelgateway"
	// kubeVersion is the version of Kubernetes for rendering.
	kubeVersion = "1.33.0"
)

// goCommand runs the go command in a folder without the workspace and returns its output.
func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return output(cmd)
}

// output runs a command and returns its standard output. The error contains its standard
// error output.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// built builds a tool in the version of its go.mod, once for this user, and returns its path.
func built(name string) (string, error) {
	out, err := output(exec.Command(root+"/scripts/tool.sh", name))
	return strings.TrimSpace(string(out)), err
}

// tool returns a command that runs one of the pinned tools.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := built(name)
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, args...)
}

// module returns the folder of a released module. It checks the hash, because no go.sum
// contains the module.
func module(t *testing.T, version, hash string) string {
	t.Helper()
	out, err := goCommand(t.TempDir(), "mod", "download", "-json", version)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Sum != hash {
		t.Fatalf("%s has hash %s; want %s", version, got.Sum, hash)
	}
	return got.Dir
}
