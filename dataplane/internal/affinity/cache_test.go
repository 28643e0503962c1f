package affinity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/route"
)

const (
	proxies, conversations, turns = 4, 64, 20
	// cacheLasts is how long a provider keeps a prefix that nobody uses.
	cacheLasts = 5 * time.Minute
)

// promptCache is a provider's cache of prompts, one for each credential: the time at which each prefix was used last.
type promptCache map[string]time.Time

// read returns how many of the messages of a prompt are cached, and caches all of them.
func (c promptCache) read(messages []string, now time.Time) (cached int) {
	prefix := ""
	for i, message := range messages {
		prefix += message
		if used, there := c[prefix]; there && now.Sub(used) <= cacheLasts {
			cached = i + 1
		}
		c[prefix] = now
	}
	return cached
}

// world is one account whose conversations go over several proxies to one provider.
type world struct {
	t        *testing.T
	now      time.Time
	pickers  []*route.Picker
	routes   []*catalog.Route
	caches   map[string]promptCache
	messages map[int][]string
	// requests and served count by credential; cached and input count messages.
	requests      map[string]int
	of            map[int]string // the credential of the last request of a conversation
	cached, input int
}

func newWorld(t *testing.T, credentials int) *world {
	w := &world{
		t: t, now: time.Unix(1_000_000, 0), caches: map[string]promptCache{}, messages: map[int][]string{},
		requests: map[string]int{}, of: map[int]string{},
	}
	for range proxies {
		w.pickers = append(w.pickers, route.New(func() time.Time { return w.now }))
	}
	r := &catalog.Route{Provider: &catalog.Provider{}}
	r.ID = "rte_0192f0c1d2e37a4b8c5d6e7f8091a2c1"
	for i := range credentials {
		id := fmt.Sprintf("crd_0192f0c1d2e37a4b8c5d6e7f8091a2b%d", i)
		w.caches[id] = promptCache{}
		r.Provider.Credentials = append(r.Provider.Credentials, catalog.NewCredential(id, "x"))
	}
	w.routes = []*catalog.Route{r}
	return w
}

// turn makes the next request of a conversation, over a proxy that a load balancer has chosen.
func (w *world) turn(conversation, proxy int) {
	messages := w.messages[conversation]
	if messages == nil {
		messages = []string{`{"role":"system","content":"You are of use to many."}`}
	}
	messages = append(messages, fmt.Sprintf(`{"role":"user","content":"question %d of %d"}`, len(messages), conversation))
	key := keyOf(w.t, chat.Dialect{}, "acc_1", "", `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
	choice := w.pickers[proxy].Order(w.routes, key)[0]
	w.input += len(messages)
	w.cached += w.caches[choice.Credential.ID].read(messages, w.now)
	w.requests[choice.Credential.ID]++
	w.of[conversation] = choice.Credential.ID
	w.messages[conversation] = append(messages, fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, len(messages)))
}

// run makes all turns, one every 20 ms.
func (w *world) run() {
	for turn := range turns {
		for conversation := range conversations {
			w.turn(conversation, (turn*7+conversation*3+conversation/5)%proxies)
			w.now = w.now.Add(20 * time.Millisecond)
		}
	}
}

func TestConversationsStayWhereTheirCacheIs(t *testing.T) {
	t.Parallel()
	one, four := newWorld(t, 1), newWorld(t, 4)
	one.run()
	four.run()
	t.Logf("cached with one credential: %d of %d messages, with four: %d; requests by credential: %v", one.cached, one.input, four.cached, four.requests)
	if four.cached*100 < one.cached*98 {
		t.Errorf("%d messages were cached; want at least 98 %% of %d", four.cached, one.cached)
	}
	for id, n := range four.requests {
		if share := conversations * turns / 4; n*10 > share*13 {
			t.Errorf("%s had %d requests; want at most 1.3 times its share of %d", id, n, share)
		}
	}
	if len(four.requests) != 4 {
		t.Errorf("%d credentials are used", len(four.requests))
	}
}

func TestFailureMovesOnlyTheConversationsOfItsCredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.run()
	before := w.of
	w.of = map[int]string{}
	failed := w.routes[0].Provider.Credentials[2].ID
	for _, p := range w.pickers {
		p.StartCooldown(failed, time.Minute)
	}
	w.run()
	moved := map[string]bool{}
	for conversation, was := range before {
		switch is := w.of[conversation]; {
		case was == failed:
			moved[is] = true
		case is != was:
			t.Errorf("conversation %d has moved from %s, which works, to %s", conversation, was, is)
		}
	}
	if moved[failed] || len(moved) != 3 {
		t.Errorf("the conversations of the failed credential went to %v; want all others", moved)
	}
	w.now = w.now.Add(time.Minute)
	w.run()
	for conversation, was := range before {
		if is := w.of[conversation]; is != was {
			t.Errorf("conversation %d is at %s afterwards; want %s", conversation, is, was)
		}
	}
}
