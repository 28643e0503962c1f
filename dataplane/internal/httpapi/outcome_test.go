package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/subject"
)

// outcomes returns the number of answered requests by status and outcome.
func (g *gateway) outcomes() map[string]float64 {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "mgw_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			counts[labels["status"]+" "+labels["outcome"]] += m.GetCounter().GetValue()
		}
	}
	return counts
}

// What an operator has closed has an outcome of its own, so that alerts on refusals and errors continue for everything else.
func TestRefusalsBecauseOfMaintenanceAreCountedApart(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]func(*gateway){
		"system": func(g *gateway) {
			g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "USD", Maintenance: &catalogkv.Maintenance{}})
		},
		"provider": func(*gateway) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{provider: func(_ int, p *catalogkv.Provider) {
				if name == "provider" {
					p.Maintenance = &catalogkv.Maintenance{}
				}
			}}, jsonAnswer(200, chatJSON))
			closing(g)
			g.apply()
			g.post("/v1/chat/completions", chatBody)
			g.server.Close() // waits until the request is recorded
			if diff := cmp.Diff(map[string]float64{"503 maintenance": 1}, g.outcomes()); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOutcomesAreCountedBesideTheStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		body   string
		answer http.HandlerFunc
		want   string
	}{
		{"answer", chatBody, jsonAnswer(200, chatJSON), "200 completed"},
		{"stream", chatStreamBody, streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone), "200 completed"},
		{"stream that the provider cuts", chatStreamBody, cutAfter(chatHead, chatText), "200 failed"},
		{"provider that fails", chatBody, jsonAnswer(500, `{}`), "502 failed"},
		{"unknown model", `{"model":"nosuch","messages":[]}`, jsonAnswer(200, chatJSON), "404 refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, tt.answer)
			g.post("/v1/chat/completions", tt.body)
			g.server.Close() // waits until the request is recorded
			if diff := cmp.Diff(map[string]float64{tt.want: 1}, g.outcomes()); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientThatClosesItsStreamIsGone(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		sendEvents(w, chatHead, chatText)
		<-r.Context().Done()
		close(closed)
	})
	ctx, cancel := context.WithCancel(t.Context())
	response := g.begin(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatStreamBody))
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = response.Body.Close()
	<-closed
	g.server.Close()
	if diff := cmp.Diff(map[string]float64{"200 client_gone": 1}, g.outcomes()); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// A client that reuses its connection learns from an answer that the connection ends, before it is closed.
func TestAnswersDuringTheDrainCloseTheirConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.serve())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	get := func() *http.Response {
		t.Helper()
		if _, err := io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer "+g.key+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	if before := get(); before.StatusCode != http.StatusOK || before.Close {
		t.Fatalf("before the drain: got %d, closed %v; want 200 on a connection that stays", before.StatusCode, before.Close)
	}
	g.api.Drain()
	if during := get(); during.StatusCode != http.StatusOK || !during.Close {
		t.Errorf("during the drain: got %d, closed %v; want 200 and the end of the connection", during.StatusCode, during.Close)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the answer: got %v; want the connection closed", err)
	}
}
