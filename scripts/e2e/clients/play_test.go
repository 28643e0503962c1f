package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var installed sync.Map // the error of the installation, by folder

// install installs the packages of the client's lock file. It skips the client if that is impossible.
func install(t *testing.T, c *client) {
	t.Helper()
	if c.pin == "" || c.dir == goDir {
		return
	}
	if os.Getenv("WITHOUT_NODE") != "" {
		t.Skip("there is no Node.js to be had here")
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs Node.js: %v", err)
		}
	}
	done, _ := installed.LoadOrStore(c.dir, sync.OnceValue(func() error {
		lock, err := os.ReadFile(filepath.Join(c.dir, "package-lock.json"))
		if err != nil {
			return err
		}
		mark := filepath.Join(c.dir, "node_modules", ".installed")
		if has, err := os.ReadFile(mark); err == nil && string(has) == string(lock) {
			return nil
		}
		// Not npm ci: it refuses a lock file without the optional packages of other machines, which some registries do not have.
		// What the lock file has is installed as npm ci would, with its hash checked, and the file stays as it is.
		npm := exec.CommandContext(t.Context(), "npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
		npm.Dir, npm.Stdout, npm.Stderr = c.dir, os.Stderr, os.Stderr
		if err := npm.Run(); err != nil {
			return err
		}
		return os.WriteFile(mark, lock, 0o600)
	}))
	if err := done.(func() error)(); err != nil { //nolint:forcetypeassert // stored above
		t.Skipf("cannot be installed: %v", err)
	}
}

// curl runs the examples for curl, and then a chat whose usage it reads.
func curl(t *testing.T, g *game) shown {
	t.Helper()
	if out := g.run(t, "sh", "-ec", g.example(t, "curl.sh", g.greeter)); !strings.Contains(out, "done:") {
		t.Errorf("got %s", out)
	}
	g.run(t, "sh", "-ec", g.example(t, "curl-media.sh", g.greeter))
	if film, err := os.Stat(filepath.Join(g.dir, "video.mp4")); err != nil || film.Size() != 64<<10 {
		t.Errorf("the video: %v", err)
	}
	out := g.run(t, "sh", "-ec", g.example(t, "curl.sh", g.model))
	var answer struct {
		Usage struct {
			Input  int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return shown{Input: answer.Usage.Input, Output: answer.Usage.Output}
}

// program runs an example in JavaScript with its task after it.
func program(name string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) shown {
		t.Helper()
		tasks := filepath.Join(clientsDir, "tasks")
		helper, err := os.ReadFile(filepath.Join(tasks, "task.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		task, err := os.ReadFile(filepath.Join(tasks, name))
		if err != nil {
			t.Fatal(err)
		}
		g.write(t, "task.mjs", string(helper))
		g.write(t, name, g.example(t, name, g.greeter)+string(task))
		modules, err := filepath.Abs(filepath.Join(g.client.dir, "node_modules"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(modules, filepath.Join(g.dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		return lastLine(t, g.run(t, "node", name))
	}
}

// goSDKs runs an example and its task in Go.
func goSDKs(example, task string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) shown {
		t.Helper()
		for _, name := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join(clientsDir, "gosdk", name))
			if err != nil {
				t.Fatal(err)
			}
			g.write(t, name, string(text))
		}
		g.write(t, "main.go", g.example(t, example, g.greeter))
		if out := g.run(t, "go", "run", "main.go"); strings.Count(out, "done:") != 2 {
			t.Errorf("the example prints %s", out)
		}
		return lastLine(t, g.run(t, "go", "run", "-C", absolute(t, "gosdk"), ".", task))
	}
}

// absolute returns the absolute path of a file in the folder of the clients.
func absolute(t *testing.T, path ...string) string {
	t.Helper()
	full, err := filepath.Abs(filepath.Join(append([]string{clientsDir}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// bin returns the command of an installed package.
func bin(t *testing.T, path ...string) string {
	t.Helper()
	full := absolute(t, append([]string{"node_modules"}, path...)...)
	if _, err := os.Stat(full); err != nil {
		t.Skipf("there is no program for this machine: %v", err)
	}
	return full
}

const prompt = "Write amber into made.txt and tell me the weather."

// made checks that the agent has run the command of the script.
func (g *game) made(t *testing.T, out string) {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(g.dir, "made.txt")); err != nil || string(text) != "amber\n" || !strings.Contains(out, "sunny in Oslo") {
		t.Errorf("the agent has not done its task: %q, %v\n%s", text, err, out)
	}
}

// lines decodes the lines of the output that are JSON objects.
func lines[T any](out string) (all []T) {
	for line := range strings.Lines(out) {
		var one T
		if json.Unmarshal([]byte(line), &one) == nil {
			all = append(all, one)
		}
	}
	return all
}

func codex(t *testing.T, g *game) (sum shown) {
	t.Helper()
	program := bin(t, "@openai", "codex", "bin", "codex.js")
	ask := func(model string) string {
		g.write(t, ".codex/config.toml", g.example(t, "codex.toml", model))
		return g.run(t, "node", program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
			"-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false", prompt)
	}
	if g.client.model == "" {
		g.made(t, ask(g.faults["limited"]))
		_ = os.Remove(filepath.Join(g.dir, "made.txt"))
	}
	out := ask(g.model)
	g.made(t, out)
	type event struct {
		Type  string
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	for _, e := range lines[event](out) {
		if e.Type == "turn.completed" {
			sum.Input, sum.Output = sum.Input+e.Usage.Input, sum.Output+e.Usage.Output
		}
	}
	return sum
}

func claudeCode(t *testing.T, g *game) (sum shown) {
	t.Helper()
	program := bin(t, "@anthropic-ai", "claude-code", "cli-wrapper.cjs")
	out := g.run(t, "sh", "-ec", g.example(t, "claude-code.sh", g.model)+`exec node "$0" -p "$1" --allowedTools Bash --output-format json`, program, prompt)
	g.made(t, out)
	var report struct {
		Models map[string]struct{ InputTokens, OutputTokens int64 } `json:"modelUsage"` //nolint:tagliatelle // of another
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, u := range report.Models {
		sum.Input, sum.Output = sum.Input+u.InputTokens, sum.Output+u.OutputTokens
	}
	return sum
}

func agentSDK(t *testing.T, g *game) shown {
	t.Helper()
	bin(t, "@anthropic-ai", "claude-agent-sdk-linux-x64")
	return program("agent-sdk.mjs")(t, g)
}

// opencode lets opencode play the task with a package as its provider.
func opencode(npm string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) (sum shown) {
		t.Helper()
		program := bin(t, "opencode-linux-x64", "bin", "opencode")
		// The requests for titles are not shown: they get another model.
		config := strings.NewReplacer("@ai-sdk/openai-compatible", npm,
			`"model":`, `"small_model": "mgw/`+g.greeter+`", "model":`, `"models": {`, `"models": {"`+g.greeter+`": {},`).Replace(g.example(t, "opencode.json", g.model))
		g.write(t, "opencode.json", config)
		out := g.run(t, program, "run", "--format", "json", prompt)
		g.made(t, out)
		type event struct {
			Type string
			Part struct {
				Tokens struct{ Input, Output int64 }
			}
		}
		for _, e := range lines[event](out) {
			if e.Type == "step_finish" {
				sum.Input, sum.Output = sum.Input+e.Part.Tokens.Input, sum.Output+e.Part.Tokens.Output
			}
		}
		return sum
	}
}

func qwenCode(t *testing.T, g *game) (sum shown) {
	t.Helper()
	program := bin(t, "@qwen-code", "qwen-code", "cli-entry.js")
	out := g.run(t, "sh", "-ec", g.example(t, "qwen-code.sh", g.model)+`exec node "$0" --yolo --output-format json "$1"`, program, prompt)
	g.made(t, out)
	var events []struct {
		Type  string
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, e := range events {
		if e.Type == "result" {
			sum.Input, sum.Output = e.Usage.Input, e.Usage.Output
		}
	}
	return sum
}

func continueCLI(t *testing.T, g *game) shown {
	t.Helper()
	program := bin(t, "@continuedev", "cli", "dist", "cn.js")
	g.write(t, ".continue/config.yaml", g.example(t, "continue.yaml", g.model))
	out := g.run(t, "node", program, "--config", ".continue/config.yaml", "--auto", "-p", prompt)
	g.made(t, out)
	sessions, err := filepath.Glob(filepath.Join(g.dir, ".continue", "sessions", "*-*.json"))
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	text, err := os.ReadFile(sessions[0])
	if err != nil {
		t.Fatal(err)
	}
	var session struct {
		Usage struct{ PromptTokens, CompletionTokens int64 }
	}
	if err := json.Unmarshal(text, &session); err != nil {
		t.Fatal(err)
	}
	return shown{Input: session.Usage.PromptTokens, Output: session.Usage.CompletionTokens}
}

// copilot lets the Copilot CLI play the task with a type of provider and a wire format.
func copilot(provider, wire, path string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) shown {
		t.Helper()
		bin(t, "@github", "copilot-linux-x64")
		program := bin(t, "@github", "copilot", "npm-loader.js")
		env := strings.NewReplacer("TYPE=openai", "TYPE="+provider, "API=completions", "API="+wire, g.Proxies[0]+"/v1", g.Proxies[0]+path).Replace(
			g.example(t, "copilot.sh", g.model))
		g.made(t, g.run(t, "sh", "-ec", env+`exec node "$0" --allow-all-tools --disable-client-telemetry --no-auto-update -p "$1"`, program, prompt))
		return shown{}
	}
}

func cline(t *testing.T, g *game) (sum shown) {
	t.Helper()
	program := bin(t, "cline", "bin", "cline")
	out := g.run(t, "sh", "-ec", g.example(t, "cline.sh", g.model)+`exec node "$0" --json --auto-approve true "$1"`, program, prompt)
	g.made(t, out)
	type event struct {
		Type  string
		Usage struct{ InputTokens, OutputTokens int64 } `json:"aggregateUsage"` //nolint:tagliatelle // of another
	}
	for _, e := range lines[event](out) {
		if e.Type == "run_result" {
			sum.Input, sum.Output = e.Usage.InputTokens, e.Usage.OutputTokens
		}
	}
	return sum
}

// kimi lets Kimi Code play the task with a type of provider.
func kimi(provider, path string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) shown {
		t.Helper()
		program := bin(t, "@moonshot-ai", "kimi-code", "dist", "main.mjs")
		config := strings.NewReplacer(`"openai"`, `"`+provider+`"`, g.Proxies[0]+"/v1", g.Proxies[0]+path).Replace(g.example(t, "kimi.toml", g.model))
		g.write(t, ".kimi-code/config.toml", config)
		g.made(t, g.run(t, "node", program, "--output-format", "stream-json", "-p", prompt))
		return shown{}
	}
}

// pi lets pi play the task with a format of its provider.
func pi(api, path string) func(*testing.T, *game) shown {
	return func(t *testing.T, g *game) (sum shown) {
		t.Helper()
		program := bin(t, "@earendil-works", "pi-coding-agent", "dist", "bundle", "cli.js")
		config := strings.NewReplacer("openai-completions", api, g.Proxies[0]+"/v1", g.Proxies[0]+path).Replace(g.example(t, "pi.json", g.model))
		g.write(t, ".pi/agent/models.json", config)
		out := g.run(t, "node", program, "--model", "mgw/"+g.model, "--mode", "json", "-p", prompt)
		g.made(t, out)
		type event struct {
			Type    string
			Message struct {
				Role  string
				Usage struct{ Input, Output int64 }
			}
		}
		for _, e := range lines[event](out) {
			if e.Type == "message_end" && e.Message.Role == "assistant" {
				sum.Input, sum.Output = sum.Input+e.Message.Usage.Input, sum.Output+e.Message.Usage.Output
			}
		}
		return sum
	}
}
