package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// The demo shows a request and its receipt. Its container has a shell, curl and sed, as this machine.
func TestDemoOfComposePrintsAReceipt(t *testing.T) {
	r := rig.Start(t, rig.Options{})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(r.AdminToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", folder+"/demo.sh")
	cmd.Env = append(os.Environ(), "ADMIN_URL="+r.AdminURL(), "API_URL="+r.Proxies[0], "PROVIDERSIM_URL="+r.Sim.URL, "TOKEN_FILE="+token, "CATALOG="+root+"/scripts/catalog/demo.yaml")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, receipt, _ := strings.Cut(string(out), "receipt:")
	if !regexp.MustCompile(`"status": *"completed"`).MatchString(receipt) || !strings.Contains(receipt, `"receipt"`) {
		t.Errorf("the demo printed\n%s", out)
	}
}
