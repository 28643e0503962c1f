// Package clients lets real clients of models play a task against the stack: a scripted
// provider asks for the call of a tool and answers with its result. Each client is set up as
// docs/connect.md says, and the usage that it shows is compared with the receipts.
//
// Without LONG=1 (make test/clients) only the clients run that need no packages beyond
// those of the other tests.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// The folders of the packages and the tasks.
const (
	sdkDir     = "../../sdk"
	clientsDir = "../../clients"
	goDir      = clientsDir + "/gosdk"
	// document has the examples.
	document = "../../../docs/connect.md"
)

func TestMain(m *testing.M) {
	code := rig.Main(m, rig.Options{DataPlanes: 1})
	table.print()
	os.Exit(code)
}

// table is the result for each client.
var table results

type results struct {
	mu   sync.Mutex
	rows []string
}

func (r *results) add(name, version, tried, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, fmt.Sprintf("| %-22s | %-22s | %-55s | %s |", name, version, tried, result))
}

func (r *results) print() {
	if len(r.rows) > 0 {
		fmt.Println(strings.Join(r.rows, "\n"))
	}
}

// A shown is the sum of the usage that a client showed, in tokens.
type shown struct{ Input, Output, Tasks int64 }

// A client is an entry of the table.
type client struct {
	name string
	// pin names the packages whose versions the table has, with a space between them, dir the folder of their lock file.
	pin, dir string
	tried    string
	// hidden is set if the client shows no usage when it runs without a terminal. Then there must be receipts of the task.
	hidden bool
	// model is the id of the task's model, chosen by the rig if it is empty. Agents know some ids.
	model string
	// runFunc plays the task.
	runFunc func(t *testing.T, g *game) shown
}

// game is what a client gets.
type game struct {
	*rig.Rig
	account *rig.Account
	dir     string // the working folder, also HOME
	client  *client
	// model plays the task, greeter the example of the document.
	model, greeter string
	faults         map[string]string
}

var all = []client{
	{name: "curl", tried: "chat", runFunc: curl},
	{name: "npm openai", pin: "openai", dir: sdkDir, tried: "chat and responses with tools, 429, 500, cut, failed", runFunc: program("openai.mjs")},
	{name: "npm @anthropic-ai/sdk", pin: "@anthropic-ai/sdk", dir: sdkDir, tried: "tool runner, JSON and stream, 429, 500, cut", runFunc: program("anthropic.mjs")},
	{name: "Go SDKs", pin: "github.com/openai/openai-go/v3 github.com/anthropics/anthropic-sdk-go/v2 github.com/sashabaranov/go-openai", dir: goDir, tried: "chat, responses, tool runner, JSON and stream", runFunc: goSDKs("go.go", "sdks")},
	{name: "langchaingo", pin: "github.com/tmc/langchaingo", dir: goDir, tried: "chat and messages with tools, stream", runFunc: goSDKs("langchaingo.go", "langchaingo")},
	{name: "Vercel AI SDK", pin: "ai", dir: clientsDir, tried: "4 providers, generate and stream with tools, 429", runFunc: program("vercel.mjs")},
	{name: "LangChain.js", pin: "@langchain/openai @langchain/anthropic", dir: clientsDir, tried: "chat, responses, messages with tools", runFunc: program("langchain.mjs")},
	{name: "LlamaIndex.TS", pin: "llamaindex", dir: clientsDir, tried: "chat, responses, messages with tools", runFunc: program("llamaindex.mjs")},
	{name: "OpenAI Agents SDK", pin: "@openai/agents", dir: clientsDir, tried: "responses and chat, run and stream with tools", runFunc: program("agents.mjs")},
	{name: "Mastra", pin: "@mastra/core", dir: clientsDir, tried: "chat and responses, generate with tools", runFunc: program("mastra.mjs")},
	{name: "TanStack AI", pin: "@tanstack/ai", dir: clientsDir, tried: "responses with tools, stream", runFunc: program("tanstack.mjs")},
	{name: "Instructor-js", pin: "@instructor-ai/instructor", dir: clientsDir, tried: "chat with a schema", runFunc: program("instructor.mjs")},
	{name: "Genkit", pin: "genkit", dir: clientsDir, tried: "chat with tools", runFunc: program("genkit.mjs")},
	{name: "deepagents", pin: "deepagents", dir: clientsDir, tried: "chat with tools", runFunc: program("deepagents.mjs")},
	{name: "Codex CLI", pin: "@openai/codex", dir: clientsDir, tried: "task with a shell call, 429", runFunc: codex},
	{name: "Codex CLI, gpt-5.5", pin: "@openai/codex", dir: clientsDir, tried: "task with a shell call", model: "gpt-5.5", runFunc: codex},
	{name: "Codex CLI, gpt-6.1-sol", pin: "@openai/codex", dir: clientsDir, tried: "task with a shell call in its script tool", model: "gpt-6.1-sol", runFunc: codex},
	{name: "Claude Code", pin: "@anthropic-ai/claude-code", dir: clientsDir, tried: "task with a shell call", runFunc: claudeCode},
	{name: "Claude Agent SDK", pin: "@anthropic-ai/claude-agent-sdk", dir: clientsDir, tried: "task with a shell call, task with a tool of the program", runFunc: agentSDK},
	{name: "opencode, chat", pin: "opencode-ai", dir: clientsDir, tried: "task with a shell call", runFunc: opencode("@ai-sdk/openai-compatible")},
	{name: "opencode, responses", pin: "opencode-ai", dir: clientsDir, tried: "task with a shell call", runFunc: opencode("@ai-sdk/openai")},
	{name: "opencode, messages", pin: "opencode-ai", dir: clientsDir, tried: "task with a shell call", runFunc: opencode("@ai-sdk/anthropic")},
	{name: "Qwen Code", pin: "@qwen-code/qwen-code", dir: clientsDir, tried: "task with a shell call", runFunc: qwenCode},
	{name: "Continue CLI", pin: "@continuedev/cli", dir: clientsDir, tried: "task with a shell call", runFunc: continueCLI},
	{name: "Copilot CLI, chat", pin: "@github/copilot", dir: clientsDir, tried: "task with a shell call", hidden: true, runFunc: copilot("openai", "completions", "/v1")},
	{name: "Copilot CLI, responses", pin: "@github/copilot", dir: clientsDir, tried: "task with a shell call", hidden: true, runFunc: copilot("openai", "responses", "/v1")},
	{name: "Copilot CLI, messages", pin: "@github/copilot", dir: clientsDir, tried: "task with a shell call", hidden: true, runFunc: copilot("anthropic", "completions", "")},
	{name: "Cline CLI", pin: "cline", dir: clientsDir, tried: "task with a shell call", runFunc: cline},
	{name: "Kimi Code, chat", pin: "@moonshot-ai/kimi-code", dir: clientsDir, tried: "task with a shell call", hidden: true, runFunc: kimi("openai", "/v1")},
	{name: "Kimi Code, messages", pin: "@moonshot-ai/kimi-code", dir: clientsDir, tried: "task with a shell call", hidden: true, runFunc: kimi("anthropic", "")},
	{name: "pi, chat", pin: "@earendil-works/pi-coding-agent", dir: clientsDir, tried: "task with a shell call", runFunc: pi("openai-completions", "/v1")},
	{name: "pi, responses", pin: "@earendil-works/pi-coding-agent", dir: clientsDir, tried: "task with a shell call", runFunc: pi("openai-responses", "/v1")},
	{name: "pi, messages", pin: "@earendil-works/pi-coding-agent", dir: clientsDir, tried: "task with a shell call", runFunc: pi("anthropic-messages", "")},
}

func TestClientsPlayATaskAndShowTheUsageOfTheReceipts(t *testing.T) {
	r := rig.Get(t)
	provider := r.Provider(t, rig.Provider{BaseURL: newScript(t).URL, AnthropicVersion: "2023-06-01"})
	ran := 0
	for i := range all {
		c := &all[i]
		t.Run(c.name, func(t *testing.T) {
			if c.dir != sdkDir && c.dir != "" {
				rig.Long(t)
			}
			version, result := c.version(t), "failed"
			defer func() {
				if t.Skipped() {
					result = "skipped: not to be had here"
				}
				table.add(c.name, version, c.tried, result)
			}()
			install(t, c)
			g := &game{Rig: r, client: c, account: r.Account(t, rig.AccountSpec{}), dir: t.TempDir()}
			g.addModels(t, provider)
			got := c.runFunc(t, g)
			g.compare(t, got)
			if c.hidden && !t.Failed() {
				result = "works; shows no usage"
			} else if !t.Failed() {
				result = fmt.Sprintf("works; shown = receipts: %d in, %d out", got.Input, got.Output)
			}
			ran++
		})
	}
	if ran < len(all) { // some were not chosen, or are not to be had here
		return
	}
	for _, name := range exampleNames(t) {
		if _, ok := played.Load(name); !ok {
			t.Errorf("no client has run the example %s", name)
		}
	}
}

func TestEveryExampleOfTheDocumentIsRun(t *testing.T) {
	var code strings.Builder
	for _, name := range []string{"clients_test.go", "play_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, name := range exampleNames(t) {
		if !strings.Contains(code.String(), `"`+name+`"`) {
			t.Errorf("no client runs the example %s", name)
		}
	}
}

// exampleNames returns the names of all examples of the document.
func exampleNames(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	fences := regexp.MustCompile("(?m)^```(.*)$").FindAllStringSubmatch(string(page), -1)
	if len(fences) < 30 || len(fences)%2 != 0 {
		t.Fatalf("%d lines with a fence", len(fences))
	}
	for i := 0; i < len(fences); i += 2 {
		_, name, ok := strings.Cut(fences[i][1], " ")
		if !ok {
			t.Errorf("the example %q has no name", fences[i][1])
		}
		names = append(names, name)
	}
	return names
}

// played has the names of the examples that clients were given.
var played sync.Map

// version returns the versions in the lock file, with a comma between them.
func (c *client) version(t *testing.T) string {
	t.Helper()
	if c.pin == "" {
		return "any"
	}
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	pinned := c.pinned(t)
	var versions []string
	for name := range strings.FieldsSeq(c.pin) {
		version := pinned[name]
		if version == "" || !regexp.MustCompile(`(?m)^\|.*[| ]`+regexp.QuoteMeta(version)+`[ ,].*\|$`).Match(page) {
			t.Errorf("%s is pinned to %q, which docs/connect.md does not list as tested", name, version)
		}
		versions = append(versions, version)
	}
	return strings.Join(versions, ", ")
}

// pinned returns the versions of the packages in the client's folder.
func (c *client) pinned(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	if c.dir == goDir {
		text, err := os.ReadFile(filepath.Join(c.dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), " v"); ok {
				all[name] = version
			}
		}
		return all
	}
	var lock struct {
		Packages map[string]struct {
			Version string `json:"version"`
		} `json:"packages"`
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "package-lock.json"))
	if err == nil {
		err = json.Unmarshal(text, &lock)
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, p := range lock.Packages {
		all[strings.TrimPrefix(path, "node_modules/")] = p.Version
	}
	return all
}

// addModels adds the models of the client. Each has models of its own, because a failed route goes into cooldown.
func (g *game) addModels(t *testing.T, provider string) {
	t.Helper()
	faults := []string{"limited", "failing", "broken", "failed"}
	models := []rig.Model{{ID: g.client.model}, {}}
	for range faults {
		models = append(models, rig.Model{})
	}
	unique := rig.Unique()
	for i := range models {
		kind := "agent"
		if i > 1 {
			kind = faults[i-2]
		}
		models[i].MaxOutputTokens, models[i].ContextWindow = 32_000, 200_000
		models[i].Routes = []rig.Route{{Provider: provider, UpstreamModel: kind + "-" + unique, Formats: []string{"chat", "responses", "messages"}}}
	}
	ids := g.Models(t, models...)
	g.model, g.greeter, g.faults = ids[0], ids[1], map[string]string{}
	for i, fault := range faults {
		g.faults[fault] = ids[i+2]
	}
}

// compare compares the usage that the client showed with the receipts of the task's model.
func (g *game) compare(t *testing.T, want shown) {
	t.Helper()
	rig.Await(t, "the receipts to equal the shown usage", func(ctx context.Context) error {
		records, err := g.account.Usage(ctx)
		if err != nil {
			return err
		}
		var got shown
		for _, r := range records {
			if r.Model == g.model && r.Status == adminclient.UsageStatusCompleted {
				input, _ := r.Usage["input"].(float64)
				output, _ := r.Usage["output"].(float64)
				got.Input, got.Output = got.Input+int64(input), got.Output+int64(output)
			}
		}
		if g.client.hidden {
			if got.Input == 0 || got.Output == 0 {
				return fmt.Errorf("the receipts have %+v", got)
			}
			return nil
		}
		if want.Input == 0 || got.Input != want.Input || got.Output != want.Output {
			return fmt.Errorf("the client shows %+v, the receipts have %+v", want, got)
		}
		return nil
	})
}

// example returns an example of the document, set up for a model of the stack.
func (g *game) example(t *testing.T, name, model string) string {
	t.Helper()
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), " "+name+"\n")
	code, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("docs/connect.md has no example %s", name)
	}
	played.Store(name, true)
	code = strings.NewReplacer("https://HOST", g.Proxies[0], "IMAGE_MODEL", "demo-image", "VIDEO_MODEL", "demo-video").Replace(code)
	// Not within a name, such as that of a variable.
	return regexp.MustCompile(`\bMODEL\b`).ReplaceAllLiteralString(code, model) + "\n"
}

func (g *game) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(g.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// run runs a program in an empty HOME and returns its output.
func (g *game) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	faults, err := json.Marshal(g.faults)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), name, args...)
	run.Dir = g.dir
	run.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.dir, "MGW_API_KEY=" + g.account.Key, "HOST=" + g.Proxies[0],
		"TASK_MODEL=" + g.model, "TASK_FAULTS=" + string(faults),
		// Agents and frameworks must not call anybody else.
		"DO_NOT_TRACK=1", "COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false", "KIMI_CODE_NO_AUTO_UPDATE=1", "KIMI_DISABLE_TELEMETRY=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_SHARE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "LANGCHAIN_TRACING_V2=false", "AI_SDK_LOG_WARNINGS=false", "IS_SANDBOX=1",
	}
	if strings.HasSuffix(name, "go") {
		run.Env = append(os.Environ(), append(run.Env[2:], "GOWORK=off")...)
	}
	var errs strings.Builder
	run.Stderr = &errs
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", name, err, out, errs.String())
	}
	return string(out)
}

// lastLine decodes the report of a task.
func lastLine(t *testing.T, out string) (s shown) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || s.Tasks == 0 {
		t.Fatalf("no report of the task: %v\n%s", err, out)
	}
	return s
}
