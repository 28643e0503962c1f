package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/platform/testkit/await"
)

// largeBody is a request whose body takes turns.
var largeBody = `{"model":"text","messages":[{"role":"user","content":"` + strings.Repeat("words ", 50_000) + `"}]}`

// awaitTurns waits until this number of bodies wait for their turns.
func (g *gateway) awaitTurns(n int64) {
	g.t.Helper()
	await.Until(g.t, "bodies that wait for their turns", func() bool { return g.turns.Waiting() == n })
}

// postTo posts a request to a server with a client of its own and returns the status.
func (g *gateway) postTo(address, key, body string) int {
	request, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		g.t.Error(err)
		return 0
	}
	request.Header.Set("X-Api-Key", key)
	response, err := g.client.Do(request)
	if err != nil {
		g.t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

func TestLargeBodiesWaitForTheirTurnsAndSmallOnesDoNot(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	address := g.serve()
	g.plane.open("acc_2", 1_000_000, 1_000_000, 10)
	other := g.issue("key_2", "acc_2")
	running := g.turns.Of("somebody")
	running.Begin()
	const each = 5
	statuses := make(chan int, 2*each)
	for _, key := range []string{g.key, other} {
		for range each {
			go func() { statuses <- g.postTo(address, key, largeBody) }()
		}
	}
	g.awaitTurns(2 * each)
	for _, key := range []string{g.key, other} {
		if got := g.postTo(address, key, chatBody); got != http.StatusOK {
			t.Errorf("a small body beside large ones that wait: got %d", got)
		}
	}
	await.Until(t, "bodies that wait for their turns to hold no memory", func() bool { return g.budget.Used() == 0 })
	running.End()
	for range 2 * each {
		if got := <-statuses; got != http.StatusOK {
			t.Errorf("a large body: got %d", got)
		}
	}
}

// Requests beyond the slots of an account cannot all be admitted: while they would have to wait, they are refused before
// they are read and parsed.
func TestAccountBeyondItsSlotsIsRefusedWhileItsBodiesWaitForTurns(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	g.plane.open("acc_2", 1_000_000, 1_000_000, 2)
	key := g.issue("key_2", "acc_2")
	address := g.serve()
	if got := g.postTo(address, key, largeBody); got != http.StatusOK { // the key is known from now on
		t.Fatalf("got %d", got)
	}
	running := g.turns.Of("somebody")
	running.Begin()
	const most = 2 + 8
	statuses := make(chan int, most)
	for range most {
		go func() { statuses <- g.postTo(address, key, largeBody) }()
	}
	g.awaitTurns(most)
	want := apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "1"}
	if diff := cmp.Diff(want, g.refusedUpload(key, 100_000).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	g.awaitTurns(most + 1) // what the refused client sends is discarded in a turn
	go func() { statuses <- g.postTo(address, g.key, largeBody) }()
	g.awaitTurns(most + 2) // another account is not refused
	running.End()
	for range most + 1 {
		if got := <-statuses; got != http.StatusOK && got != http.StatusTooManyRequests {
			t.Errorf("got %d", got)
		}
	}
	if got := g.postTo(address, key, largeBody); got != http.StatusOK {
		t.Errorf("after the overload: got %d", got)
	}
}

// The gateway of a test has one turn: a client that stopped sending would keep it from all others.
func TestClientThatSendsNothingHoldsNoTurn(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	address := g.serve()
	var slow []net.Conn
	for _, head := range []string{
		"X-Api-Key: " + g.key + "\r\nContent-Length: %d\r\n\r\n",                         // the body is read
		"X-Api-Key: " + g.key + "\r\nContent-Length: %d\r\nContent-Encoding: br\r\n\r\n", // the rest is discarded
		"Content-Length: %d\r\n\r\n",
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+head+"%s", len(largeBody), largeBody[:len(largeBody)/2]); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	await.Until(t, "the room of the slow uploads", func() bool { return g.budget.Used() >= int64(len(largeBody)) })
	for range 3 {
		if got := g.postTo(address, g.key, largeBody); got != http.StatusOK {
			t.Errorf("beside slow uploads: got %d", got)
		}
	}
	_, err := io.WriteString(slow[0], largeBody[len(largeBody)/2:])
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(slow[0], first); err != nil || string(first) != "HTTP/1.1 200" {
		t.Errorf("the slow upload: got %s, %v", first, err)
	}
}
