package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// sdkDir is the directory of the JavaScript tests and their packages.
var sdkDir = filepath.Join("..", "sdk")

// oldestNode is the oldest major version of Node.js that the clients support.
const oldestNode = 20

var install sync.Once

// node checks that Node.js and the packages of the lock file are installed. In CI their
// absence fails the test, and OFFLINE is not set there.
func node(t *testing.T) {
	t.Helper()
	if os.Getenv("OFFLINE") != "" {
		t.Skip("OFFLINE leaves out the tests in JavaScript")
	}
	missing := t.Skipf
	if os.Getenv("CI") != "" {
		missing = t.Fatalf
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		missing("needs Node.js: %v", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		missing("needs Node.js %d or newer; this is %s", oldestNode, version)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		missing("needs npm: %v", err)
	}
	install.Do(func() { err = installPackages(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
}

// installPackages installs the packages of the lock file, unless they are installed.
func installPackages(ctx context.Context) error {
	npm := exec.CommandContext(ctx, filepath.Join("..", "npmci.sh"), sdkDir, filepath.Join("node_modules", "openai", "package.json"))
	npm.Stdout, npm.Stderr = os.Stderr, os.Stderr
	return npm.Run()
}

func TestJavaScriptSDKs(t *testing.T) {
	node(t)
	a := newAPI(t)
	models := a.Models(t,
		rig.Model{Directives: "out=1000,chunk=50ms"}, rig.Model{Directives: "status=429"}, rig.Model{Directives: "status=429"},
		rig.Model{Directives: "error=5"}, rig.Model{Directives: "error=5"}, rig.Model{Directives: "error=5"})
	settings, err := json.Marshal(map[string]any{
		"url": a.Proxies[1], "key": a.account.Key, "poor_key": a.Account(t, rig.AccountSpec{Credit: "0"}).Key,
		"endless": models[0],
		// Each test has a model of its own, because a failed route goes into cooldown.
		"limited": map[string]string{"chat": models[1], "messages": models[2]},
		"failing": map[string]string{"chat": models[3], "responses": models[4], "messages": models[5]},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"openai.test.mjs", "anthropic.test.mjs"} {
		t.Run(strings.TrimSuffix(file, ".test.mjs"), func(t *testing.T) {
			run := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", file)
			run.Dir = sdkDir
			run.Env = append(os.Environ(), "GATEWAY="+string(settings))
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	// The stream that the client left is billed for the delivered part.
	var left []adminclient.UsageRecord
	rig.Await(t, "the stream that was left to be billed", func(ctx context.Context) error {
		usage, err := a.account.Usage(ctx)
		if left = slices.DeleteFunc(usage, func(u adminclient.UsageRecord) bool { return u.Model != models[0] }); err == nil && len(left) == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	if u := left[0]; len(left) != 1 || u.Status != "client_gone" || !u.Estimated || u.Cost == "0.00" {
		t.Errorf("%d streams were left; want 1. The last: got %s, estimated %t, for %s", len(left), u.Status, u.Estimated, u.Cost)
	}
}

// An independent simulator of the public formats works as a provider.
func TestIndependentSimulatorAsProvider(t *testing.T) {
	node(t)
	a := newAPI(t)
	mock := exec.CommandContext(t.Context(), "node", "aimock.mjs")
	mock.Dir, mock.Stderr = sdkDir, os.Stderr
	stdin, err := mock.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := mock.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = mock.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	provider := a.Provider(t, rig.Provider{BaseURL: strings.TrimSpace(url), AnthropicVersion: "2023-06-01"})
	list := prices{"input": "1.00", "output": "2.00"}
	on := func(e endpoint) rig.Model {
		return rig.Model{Type: e.kind(), Routes: []rig.Route{{Provider: provider, UpstreamModel: "gpt-4o", Formats: []string{e.format}}}}
	}
	models := a.Models(t, on(chat), on(responses), on(messages), on(images), on(videos))
	for i, e := range texts {
		for _, stream := range []bool{false, true} {
			body := e.body(models[i])
			if e.format == "responses" {
				body["input"] = "hello"
			} else {
				body["messages"] = []any{map[string]any{"role": "user", "content": "hello"}}
			}
			body["stream"] = stream
			answer := a.ok(t, e.path, body)
			var text string
			if stream {
				text = e.streamedText(t, answer)
			} else {
				text = e.text(t, answer)
			}
			if text != "Hi there, how are you?" {
				t.Errorf("%s, stream %t: got %q", e.path, stream, text)
			}
			usage := a.AwaitUsage(t, answer.RequestID())
			if want := nano(list.bill(t, countsOf(11, 7))).FloatString(9); usage.Estimated || rat(t, usage.Cost).Cmp(rat(t, want)) != 0 {
				t.Errorf("%s, stream %t: billed %s for %v, estimated %t; want %s", e.path, stream, usage.Cost, usage.Usage, usage.Estimated, want)
			}
		}
	}
	picture := images.body(models[3])
	picture["prompt"] = "a boat"
	a.ok(t, images.path, picture)
	film := videos.body(models[4])
	film["prompt"] = "waves"
	id := a.createVideo(t, film)
	a.awaitVideo(t, id, "completed")
	a.account.AwaitIdle(t)
	a.account.AwaitUsage(t, 8) // 6 texts, a picture, a video
}
