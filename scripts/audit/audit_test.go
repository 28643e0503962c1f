package audit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts is the folder of the checks' scripts.
const scripts = ".."

// repository makes a git repository with the files, which git tracks or would track.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runScript runs a script of this repository and returns its output.
func runScript(t *testing.T, script, argument string, environment ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(scripts, script), argument)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func scan(t *testing.T, dir string) (string, error) {
	t.Helper()
	return runScript(t, "secrets.sh", dir)
}

// The secrets are written in two parts, so that this file has none.
func TestSecretsInTrackedFilesAreFound(t *testing.T) {
	random := "Zk3vQ9sXw2Lr8TbN5yHc7JdM4pFg6A1eUoRiB0xKaVtCqWnEzGhSlYjDmPfOu"
	secrets := map[string]string{
		"private-key":              "-----BEGIN EC PRIVATE" + " KEY-----\n" + random + "\n" + random + "\n-----END EC PRIVATE" + " KEY-----\n",
		"aws-access-token":         "AKIA" + "Q3EGRZ7XWNTKVB5P\n",
		"github-pat":               "ghp_" + random[:36] + "\n",
		"modelgateway-api-key":     "mgw_" + random[:38] + "\n",
		"modelgateway-admin-token": "mgwa_" + random[:43] + "\n",
	}
	out, err := scan(t, repository(t, secrets))
	if err == nil {
		t.Error("the scan succeeds")
	}
	for rule, content := range secrets {
		if !strings.Contains(out, rule) {
			t.Errorf("%s is not found", rule)
		}
		if strings.Contains(out, strings.TrimSpace(content)) {
			t.Errorf("the report shows the secret of %s", rule)
		}
	}
}

func TestIgnoredFilesAndAllowedExamplesAreNoSecrets(t *testing.T) {
	key := "mgw_" + "Zk3vQ9sXw2Lr8TbN5yHc7JdM4pFg6A1eUoRiB0"
	out, err := scan(t, repository(t, map[string]string{
		".gitignore":   "state.json\n",
		"state.json":   key + "\n",
		"example file": key + " gitleaks:allow (made up)\n",
	}))
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnUnreadableVulnerabilityDatabaseThatIsDemandedIsAnError(t *testing.T) {
	cmd := exec.Command(filepath.Join(scripts, "vulncheck.sh"), "shared")
	cmd.Env = append(os.Environ(), "GOVULNDB=file://"+t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot be read") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAVulnerabilityThatAModuleCallsIsAnError(t *testing.T) {
	database := t.TempDir()
	for name, content := range map[string]string{
		"index/db.json":      `{"modified": "2026-01-01T00:00:00Z"}`,
		"index/modules.json": `[{"path": "stdlib", "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z"}]}]`,
		"ID/GO-2026-0001.json": `{"schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z", "summary": "made up", "database_specific": {"url": "https://example.com/GO-2026-0001"},
			"affected": [{"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
			"ecosystem_specific": {"imports": [{"path": "strings", "symbols": ["CutPrefix"]}]}}]}`,
	} {
		file := filepath.Join(database, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := runScript(t, "vulncheck.sh", "shared", "GOVULNDB=file://"+database)
	if err == nil || !strings.Contains(out, "GO-2026-0001") || !strings.Contains(out, "calls strings.CutPrefix") {
		t.Errorf("%v\n%s", err, out)
	}
}
