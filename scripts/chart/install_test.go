package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page returns a page of the documents.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var continued = regexp.MustCompile(`\\\n\s*`)

// helmCommands returns the arguments of the commands in a page that install or upgrade the chart of this repository.
func helmCommands(t *testing.T, name string) [][]string {
	t.Helper()
	var found [][]string
	for line := range strings.Lines(continued.ReplaceAllString(page(t, name), "")) {
		line = strings.TrimSpace(line)
		if _, args, ok := strings.Cut(line, "helm "); ok && !strings.Contains(line, "`") &&
			(strings.HasPrefix(line, "helm install ") || strings.HasPrefix(line, "helm upgrade ")) {
			found = append(found, strings.Fields(args))
		}
	}
	return found
}

// template returns the arguments that render what a command of a page would install.
func template(t *testing.T, args []string) []string {
	t.Helper()
	rendered := []string{"template", args[1], chartDir, "--kube-version", kubeVersion}
	for i := 3; i < len(args); i++ {
		switch arg := args[i]; arg {
		case "--wait", "--reset-then-reuse-values":
		case "--timeout", "--version":
			i++
		case "--set", "--namespace":
			rendered = append(rendered, arg, args[i+1])
			i++
		case "--values", "-f":
			rendered = append(rendered, arg, filepath.Join(root, args[i+1]))
			i++
		default:
			t.Fatalf("an argument that this test does not know: %s", arg)
		}
	}
	return rendered
}

// The commands of the pages render as they stand; those of an upgrade with the values of the install, which they keep.
func TestCommandsOfTheDocumentsRender(t *testing.T) {
	t.Parallel()
	installs, upgrades := helmCommands(t, "install.md"), helmCommands(t, "upgrade.md")
	if len(installs) < 2 || len(upgrades) < 2 {
		t.Fatalf("got %v and %v", installs, upgrades)
	}
	for _, args := range installs {
		if out, err := output(tool(t, "helm", template(t, args)...)); err != nil || len(out) == 0 {
			t.Errorf("helm %s: %v", strings.Join(args, " "), err)
		}
	}
	for _, args := range upgrades {
		if !slices.Contains(args, "--reset-then-reuse-values") {
			t.Errorf("helm %s loses the values of the install", strings.Join(args, " "))
		}
		both := slices.Concat(template(t, installs[0]), template(t, args)[5:])
		if out, err := output(tool(t, "helm", both...)); err != nil || len(out) == 0 {
			t.Errorf("helm %s: %v", strings.Join(args, " "), err)
		}
	}
}

// The script of the page that makes Secrets is run with a kubectl that takes down what it is told. The command of the page that
// installs the chart mounts the keys that the script has made, and the values for NATS read theirs in its own namespace.
func TestSecretsOfTheDocumentAreThoseThatItsInstallMounts(t *testing.T) {
	t.Parallel()
	text := page(t, "install.md")
	_, rest, _ := strings.Cut(text, "\n## Secrets\n")
	_, script, _ := strings.Cut(rest, "```sh\n")
	script, _, ok := strings.Cut(script, "```")
	if !ok {
		t.Fatal("the page has no script that makes secrets")
	}

	dir := t.TempDir()
	log := filepath.Join(dir, "kubectl.log")
	kubectl := "#!/bin/sh\necho \"$PWD\" \"$@\" >> '" + log + "'\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	run.Dir, run.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}

	made := map[string][]string{}
	for line := range strings.Lines(string(calls)) {
		fields := strings.Fields(line)
		if len(fields) < 7 || !slices.Equal(fields[1:4], []string{"create", "secret", "generic"}) {
			continue
		}
		at := fields[6] + "/" + fields[4]
		for _, arg := range fields[7:] {
			key, ok := strings.CutPrefix(arg, "--from-file=")
			content, err := os.ReadFile(filepath.Join(fields[0], key))
			if !ok || err != nil || len(content) == 0 || bytes.HasSuffix(content, []byte("\n")) {
				t.Errorf("%s: %q has the content %q, %v", at, arg, content, err)
			}
			made[at] = append(made[at], key)
		}
	}

	// The authority of NATS is somebody else's file, so its command stands in the text.
	for _, m := range regexp.MustCompile("`kubectl create secret generic (\\S+) --namespace (\\S+) --from-file=([^\\s`]+)`").FindAllStringSubmatch(text, -1) {
		made[m[2]+"/"+m[1]] = append(made[m[2]+"/"+m[1]], m[3])
	}

	mounted := 0
	rendered, err := output(tool(t, "helm", template(t, helmCommands(t, "install.md")[0])...))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range decodeObjects(t, rendered) {
		for _, v := range o.Spec.Template.Spec.Volumes {
			for _, source := range v.Projected.Sources {
				for _, item := range source.Secret.Items {
					mounted++
					if !slices.Contains(made["gateway/"+source.Secret.Name], item.Key) {
						t.Errorf("%v mounts %s of %s, which the page does not make: %v", o, item.Key, source.Secret.Name, made)
					}
				}
			}
		}
	}
	if mounted < 8 {
		t.Errorf("the install mounts %d keys", mounted)
	}

	references := regexp.MustCompile(`secretKeyRef: \{name: ([^,\s]+), key: ([^}\s]+)\}`).FindAllStringSubmatch(text, -1)
	if len(references) != 2 {
		t.Errorf("the values for NATS have %v", references)
	}
	for _, m := range references {
		if !slices.Contains(made["nats/"+m[1]], m[2]) {
			t.Errorf("NATS reads %s of %s, which is not made in its namespace: %v", m[2], m[1], made)
		}
	}
}

// The values for production have what the page recommends: whoever begins with them finds out at the install, and not in an outage.
func TestValuesForProductionHaveWhatThePageRecommends(t *testing.T) {
	t.Parallel()
	text := string(render(t, chartDir+"/examples/production.yaml"))
	for _, want := range []string{
		"monitor_url: http://nats-0.", "{port: 8222, protocol: TCP}", // gwctl doctor sees whether each server syncs
		"keeps_commits: failover",                                                                    // or each restart of Postgres waits as after a loss
		"base_url: https://admin.", "client_id: modelgateway-console", "host: \"admin.example.com\"", // people sign in
		"runbook_url: https://", // an alert links to an address
	} {
		if !strings.Contains(text, want) {
			t.Errorf("they render no %q", want)
		}
	}
}
