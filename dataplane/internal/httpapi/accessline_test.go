package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// accessLines ends the gateway and returns the lines of the access log.
func (g *gateway) accessLines() []map[string]any {
	g.t.Helper()
	g.server.Close() // waits until the requests are recorded
	g.access.Start()
	g.access.Stop()
	var lines []map[string]any
	for line := range bytes.Lines(g.lines.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			g.t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	return lines
}

func TestAccessLineHasAttemptsTokensAndCost(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusInternalServerError, "{}"), jsonAnswer(200, chatJSON))
	const prompt = "a secret prompt"
	g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"user","content":"`+prompt+`"}]}`, "User-Agent", "an agent of a client")
	g.post("/v1/chat/completions", `{"model":"nosuch","messages":[]}`)
	lines := g.accessLines()
	if len(lines) != 2 {
		t.Fatalf("%d lines; want two: %v", len(lines), lines)
	}
	served, refused := lines[0], lines[1]
	for name, want := range map[string]any{
		"attempts": 2.0, "provider": "prv_1", "input_tokens": 10.0, "output_tokens": 5.0, "cost_nano": float64(chatCost), "outcome": "completed", "model": "text",
	} {
		if served[name] != want {
			t.Errorf("%s is %v; want %v", name, served[name], want)
		}
	}
	for _, name := range []string{"attempts", "cost_nano", "input_tokens", "provider"} {
		if v, there := refused[name]; there {
			t.Errorf("a refused request has %s %v", name, v)
		}
	}
	for _, secret := range []string{prompt, "Hello there", g.key, "an agent", "secret-1"} {
		if strings.Contains(g.lines.String(), secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
}

func TestAccessLineOfAStreamHasTokensAndCost(t *testing.T) {
	t.Parallel()
	g := newGateway(t, streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
	g.post("/v1/chat/completions", chatStreamBody)
	lines := g.accessLines()
	if len(lines) != 1 || lines[0]["attempts"] != 1.0 || lines[0]["output_tokens"] != 5.0 || lines[0]["cost_nano"] != float64(chatCost) || lines[0]["stream"] != true {
		t.Errorf("got %v", lines)
	}
}
