package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// step is a part of a stream, and the silence before it.
type step struct {
	after time.Duration
	text  string
}

// scripts is a provider client whose streams follow a script for each route.
type scripts struct {
	by     map[string][]step
	called chan string
}

func newScripts(of ...[]step) *scripts {
	s := &scripts{by: map[string][]step{}, called: make(chan string, 100)}
	for i, steps := range of {
		s.by["rte_"+string(rune('0'+i))+"_text"] = steps
	}
	return s
}

func (s *scripts) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	s.called <- call.ID
	reader, writer := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		for _, step := range s.by[call.ID] {
			select {
			case <-time.After(step.after):
			case <-ctx.Done():
				return
			}
			if _, err := io.WriteString(writer, step.text); err != nil {
				return
			}
		}
		_ = writer.Close()
	}()
	return &provider.Answer{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: provider.NoAwait{ReadCloser: reader}, Length: -1}, nil
}

// timedLines returns the lines of a stream without empty ones, with the time at which each came.
func (g *gateway) timedLines(path, body string) (lines []string, times []time.Duration, status int) {
	g.t.Helper()
	began := time.Now()
	request, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	request.Header.Set("X-Api-Key", g.key)
	response, err := g.client.Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	read := bufio.NewScanner(response.Body)
	for read.Scan() {
		if line := read.Text(); line != "" {
			lines, times = append(lines, line), append(times, time.Since(began))
		}
	}
	return lines, times, response.StatusCode
}

// A stream that flows has no limit in all: its reservation is held, and it is charged as reported.
func TestStreamOfHalfAnHourIsNotCut(t *testing.T) {
	t.Parallel()
	script := []step{{0, chatHead}}
	for range 180 {
		script = append(script, step{10 * time.Second, chatText})
	}
	usage := strings.NewReplacer(`"completion_tokens":5`, `"completion_tokens":540`, `"total_tokens":15`, `"total_tokens":550`).Replace(chatUsage)
	script = append(script, step{0, chatStop + usage + chatDone})
	inBubble(t, options{providers: newScripts(script), routes: 1}, func(t *testing.T, g *gateway) {
		held := make(chan int, 1)
		go func() {
			time.Sleep(29*time.Minute + 55*time.Second)
			held <- len(g.admit.Held(theAccount))
		}()
		lines, times, status := g.timedLines("/v1/chat/completions", chatStreamBody)
		if status != http.StatusOK || lines[len(lines)-1] != "data: [DONE]" || times[len(times)-1] < 30*time.Minute {
			t.Errorf("status %d, the last of %d lines is %q after %s", status, len(lines), lines[len(lines)-1], times[len(times)-1])
		}
		if n := <-held; n == 0 {
			t.Error("nothing was reserved shortly before the end")
		}
		if e := g.spool.next(t); e.Status != event.Completed || e.Rule != event.RuleReported {
			t.Errorf("%s, charged as %s", e.Status, e.Rule)
		}
	})
}

// A model that reasons is silent for minutes. Its client gets a sign of life in the way of the format, and nothing in the middle
// of an event.
func TestSilenceIsFilledWithSignsOfLife(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sign := ":"
			if name == "messages" {
				sign = "event: ping"
			}
			cut := len(d.text) / 2
			script := []step{{20 * time.Second, d.head}, {100 * time.Second, d.text[:cut]}, {40 * time.Second, d.text[cut:] + d.end}}
			inBubble(t, options{providers: newScripts(script), routes: 1}, func(t *testing.T, g *gateway) {
				lines, times, status := g.timedLines(d.path, d.body)
				if status != http.StatusOK || !strings.Contains(lines[len(lines)-1], d.last) {
					t.Fatalf("status %d, %q", status, lines)
				}
				signs := 0
				last := 20 * time.Second
				for i, line := range lines {
					if line == sign {
						signs++
					}
					if times[i]-last > 15*time.Second {
						t.Errorf("%s of silence before line %d", times[i]-last, i)
					}
					last = times[i]
				}
				if times[0] != 20*time.Second || signs != 9 {
					t.Errorf("the answer begins after %s and has %d signs of life; want 20s and 9", times[0], signs)
				}
				if e := g.spool.next(t); e.Status != event.Completed || e.Rule != event.RuleReported || e.Usage.Input != 10 || e.Usage.Output != 5 {
					t.Errorf("%s, charged %s: %+v", e.Status, e.Rule, e.Usage)
				}
			})
		})
	}
}

// limitFirst gives the first route a limit for its first token.
func limitFirst(m *catalogkv.Model) {
	for i := range m.Routes {
		m.Routes[i].Priority = i
		if i == 0 {
			m.Routes[i].FirstTokenTimeoutMS = 20_000
		}
	}
}

func TestRouteWithoutATokenInTimeIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	good := []step{{time.Second, chatHead + chatText}, {0, chatStop + chatUsage + chatDone}}
	tests := []struct {
		name    string
		routes  [][]step
		calls   int
		took    time.Duration
		limited bool
	}{
		{"in time", [][]step{{{time.Second, chatHead}, {18 * time.Second, chatText}, {time.Hour / 12, chatStop + chatUsage + chatDone}}, good}, 1, 319 * time.Second, false},
		{"head only", [][]step{{{time.Second, chatHead}, {100 * time.Second, chatText}}, good}, 2, 21 * time.Second, true},
		{"nothing", [][]step{{{100 * time.Second, chatHead}}, good}, 2, 21 * time.Second, true},
		{"no other route", [][]step{{{time.Second, chatHead}, {100 * time.Second, chatText}, {0, chatStop + chatUsage + chatDone}}}, 1, 101 * time.Second, false},
		{"without output", [][]step{{{time.Second, chatHead}, {0, chatStop + chatUsage + chatDone}}, good}, 1, time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			providers := newScripts(tt.routes...)
			inBubble(t, options{providers: providers, routes: len(tt.routes), model: limitFirst}, func(t *testing.T, g *gateway) {
				lines, times, status := g.timedLines("/v1/chat/completions", chatStreamBody)
				took := times[len(times)-1]
				if status != http.StatusOK || lines[len(lines)-1] != "data: [DONE]" || took != tt.took || len(providers.called) != tt.calls {
					t.Errorf("status %d after %s and %d calls: %q", status, took, len(providers.called), lines)
				}
				if heads := strings.Count(strings.Join(lines, "\n"), `"role":"assistant"`); heads > 1 {
					t.Errorf("%d heads; want that of one route", heads)
				}
				if tt.limited {
					g.compare(`mgw_call_timeouts_total{limit="first_token",provider="prv_0"} 1`)
				}
			})
		})
	}
}
