package route

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// clock is set by the test.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func setup() (*Picker, *clock) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	return New(c.time), c
}

// model returns a model with one route per weight, each with a provider of two credentials.
func model(priorities, weights []int) *catalog.Model {
	m := &catalog.Model{Routes: map[catalogkv.Format][]*catalog.Route{}}
	for i, weight := range weights {
		r := &catalog.Route{Provider: &catalog.Provider{}}
		r.ID, r.Weight, r.Priority = fmt.Sprint("r", i), weight, priorities[i]
		r.Provider.Credentials = []catalog.Credential{catalog.NewCredential(r.ID+"a", "x"), catalog.NewCredential(r.ID+"b", "y")}
		m.Routes[catalogkv.Chat] = append(m.Routes[catalogkv.Chat], r)
	}
	return m
}

// ids returns the ids of the routes of choices in their order, each once.
func ids(choices []Choice) []string {
	ids := make([]string, 0, len(choices))
	for _, c := range choices {
		if !slices.Contains(ids, c.ID) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// conversation returns the key of one of many conversations.
func conversation(i int) uint64 { return xxhash.Sum64String(fmt.Sprint("conversation ", i)) }

// countFirstChoices counts for each route how many of n conversations prefer it.
func countFirstChoices(p *Picker, m *catalog.Model, n int) map[string]int {
	counts := map[string]int{}
	for i := range n {
		counts[p.Order(m.Routes[catalogkv.Chat], conversation(i))[0].ID]++
	}
	return counts
}

func TestConversationsAreDistributedByWeight(t *testing.T) {
	t.Parallel()
	tests := []struct {
		weights []int
		want    []float64
	}{
		{[]int{1, 1}, []float64{0.5, 0.5}},
		{[]int{0, 1}, []float64{0.5, 0.5}}, // zero counts as one
		{[]int{1, 3}, []float64{0.25, 0.75}},
		{[]int{1, 2, 7}, []float64{0.1, 0.2, 0.7}},
	}
	const n = 20_000
	for _, tt := range tests {
		p, _ := setup()
		counts := countFirstChoices(p, model(make([]int, len(tt.weights)), tt.weights), n)
		for i, want := range tt.want {
			if got := float64(counts[fmt.Sprint("r", i)]) / n; got < want-0.02 || got > want+0.02 {
				t.Errorf("weights %v: route %d serves %.3f of the conversations; want %.3f", tt.weights, i, got, want)
			}
		}
	}
}

func TestConversationsKeepRouteAndCredentialOnAllProxies(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	m := model([]int{0, 0, 0}, []int{1, 2, 3})
	for i := range 100 {
		once, again := p.Order(m.Routes[catalogkv.Chat], conversation(i)), New(nil).Order(m.Routes[catalogkv.Chat], conversation(i))
		for j := range once {
			if once[j].ID != again[j].ID || once[j].Credential.ID != again[j].Credential.ID {
				t.Fatalf("%d: route and credential differ between two proxies: %v, %v", i, ids(once), ids(again))
			}
		}
	}
}

// Each moved conversation goes to the route that was its second choice, and to the one with the cooldown last.
func TestCooldownMovesOnlyTheConversationsOfTheRoute(t *testing.T) {
	t.Parallel()
	p, c := setup()
	m := model([]int{0, 0, 0, 0}, []int{1, 1, 2, 4})
	before := map[int][]string{}
	for i := range 2000 {
		before[i] = ids(p.Order(m.Routes[catalogkv.Chat], conversation(i)))
	}
	p.StartCooldown("r2", time.Minute)
	for i, was := range before {
		want := slices.DeleteFunc(slices.Clone(was), func(id string) bool { return id == "r2" })
		if diff := cmp.Diff(append(want, "r2"), ids(p.Order(m.Routes[catalogkv.Chat], conversation(i)))); diff != "" {
			t.Fatalf("%d (-want +got):\n%s", i, diff)
		}
	}
	c.now = c.now.Add(time.Minute + 1)
	for i, was := range before {
		if diff := cmp.Diff(was, ids(p.Order(m.Routes[catalogkv.Chat], conversation(i)))); diff != "" {
			t.Fatalf("%d, with the route back (-want +got):\n%s", i, diff)
		}
	}
}

func TestLowestPriorityNumberComesFirst(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	m := model([]int{2, 1, 2, 0}, []int{1000, 1, 1, 1})
	for i := range 50 {
		got := ids(p.Order(m.Routes[catalogkv.Chat], conversation(i)))
		if len(got) != 4 || got[0] != "r3" || got[1] != "r1" {
			t.Fatalf("got %v; want r3 and r1 first", got)
		}
	}
}

func TestModelWithoutRouteOrCredentialHasNoChoice(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	m := model([]int{0}, []int{1})
	if got := p.Order(m.Routes[catalogkv.Messages], 0); len(got) != 0 {
		t.Errorf("of another format: %v", ids(got))
	}
	m.Routes[catalogkv.Chat][0].Provider.Credentials = nil
	if got := p.Order(m.Routes[catalogkv.Chat], 0); len(got) != 0 {
		t.Errorf("without a credential: %v", ids(got))
	}
}

// Settlement refuses an event with more attempts than event.MaxAttempts, and the last one is the call that answers.
func TestSkippedRoutesLeaveRoomForTheCallThatAnswers(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	priorities := make([]int, 2*event.MaxAttempts)
	routes := model(priorities, slices.Repeat([]int{1}, len(priorities))).Routes[catalogkv.Chat]
	for _, r := range routes[1:] {
		p.StartCooldown(r.ID, time.Minute)
	}
	if skipped := p.Skipped(routes, p.Order(routes, 0)); len(skipped) != event.MaxAttempts-1 {
		t.Errorf("got %d skipped routes; want %d", len(skipped), event.MaxAttempts-1)
	}
}

func TestRoutesWithACooldownComeLastInTheOrderInWhichItEnds(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0, 1, 2, 3}, []int{1, 1, 1, 1}).Routes[catalogkv.Chat]
	p.StartCooldown("r0", time.Minute)
	p.StartCooldown("r1", time.Second)
	p.StartCooldown("r3a", time.Hour) // the other credential of r3 is used
	check := func(order string, skipped ...string) {
		t.Helper()
		choices := p.Order(routes, 0)
		if got := strings.Join(ids(choices), " "); got != order {
			t.Errorf("got %s; want %s", got, order)
		}
		want := make([]event.Attempt, 0, len(skipped))
		for _, id := range skipped {
			want = append(want, event.Attempt{Route: id, Skipped: event.SkippedCooldown})
		}
		if diff := cmp.Diff(want, p.Skipped(routes, choices), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
	}
	check("r2 r3 r1 r0", "r0", "r1")
	p.StartCooldown("r1a", 2*time.Minute)
	p.StartCooldown("r1b", 3*time.Minute)
	check("r2 r3 r0 r1", "r0", "r1")
	p.StartCooldown("r2", time.Hour)
	p.StartCooldown("r3b", 2*time.Hour)
	check("r0 r1 r2 r3", "r1", "r2", "r3")
	c.now = c.now.Add(3 * time.Hour)
	check("r0 r1 r2 r3")
}

func TestConversationsAreDistributedOverCredentials(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	m := model([]int{0}, []int{1})
	counts := map[string]int{}
	for i := range 1000 {
		counts[p.Order(m.Routes[catalogkv.Chat], conversation(i))[0].Credential.ID]++
	}
	if counts["r0a"] < 400 || counts["r0b"] < 400 {
		t.Errorf("conversations by credential: %v; want halves", counts)
	}
	p.StartCooldown("r0a", time.Minute)
	for i := range 50 {
		if got := p.Order(m.Routes[catalogkv.Chat], conversation(i))[0].Credential.ID; got != "r0b" {
			t.Fatalf("a credential with a cooldown is used: %s", got)
		}
	}
	p.StartCooldown("r0b", time.Second)
	for i := range 50 {
		if got := p.Order(m.Routes[catalogkv.Chat], conversation(i)); got[0].Credential.ID != "r0b" {
			t.Fatalf("with cooldowns on both: got %v; want r0b, whose cooldown ends first", got)
		}
	}
}

// A limit of one credential does not keep calls away from the route with another one.
func TestPauseIsOfTheRouteWithOneCredential(t *testing.T) {
	t.Parallel()
	p, c := setup()
	routes := model([]int{0}, []int{1}).Routes[catalogkv.Chat]
	moved := 0
	before := map[int]Choice{}
	for i := range 100 {
		before[i] = p.Order(routes, conversation(i))[0]
	}
	limited := before[0]
	p.StartPause(limited, time.Minute)
	p.StartPause(limited, time.Second) // does not shorten it
	for i, was := range before {
		switch got := p.Order(routes, conversation(i))[0]; {
		case was.Credential.ID == limited.Credential.ID:
			moved++
			if got.Credential.ID == was.Credential.ID || got.Cooling() {
				t.Fatalf("%d: %s is called; want the other credential", i, got.Credential.ID)
			}
		case got.Credential.ID != was.Credential.ID:
			t.Fatalf("%d has moved to %s", i, got.Credential.ID)
		}
	}
	if moved == 0 || p.Pause(limited) != time.Minute {
		t.Errorf("%d have moved, the pause lasts %s", moved, p.Pause(limited))
	}
	c.now = c.now.Add(time.Minute + 1)
	if got := p.Order(routes, conversation(0))[0]; got.Credential.ID != limited.Credential.ID || p.Pause(limited) != 0 {
		t.Errorf("afterwards %s is called, with a pause of %s", got.Credential.ID, p.Pause(limited))
	}
	p.StartPause(before[0], time.Minute)
	p.FollowResets(map[string]int64{"r0": 1})
	if p.Pause(limited) != 0 {
		t.Error("the reset of the route has not ended the pause")
	}
}

func TestRouteHasAsManyChoicesAsAreTried(t *testing.T) {
	t.Parallel()
	p, _ := setup()
	m := model([]int{0, 0}, []int{1, 1})
	for i := range 9 {
		id := fmt.Sprint("further", i)
		m.Routes[catalogkv.Chat][0].Provider.Credentials = append(m.Routes[catalogkv.Chat][0].Provider.Credentials, catalog.NewCredential(id, "x"))
	}
	p.StartCooldown("r0", time.Hour)
	for i := range 100 {
		all := p.Order(m.Routes[catalogkv.Chat], conversation(i))
		seen := map[string]bool{}
		for _, c := range all {
			seen[c.Credential.ID] = true
		}
		if len(all) != 2*CallsPerRoute || len(seen) != len(all) || all[0].ID != "r1" || all[2].score < all[3].score {
			t.Fatalf("%d: got %d choices, %v", i, len(all), all)
		}
	}
}

func TestCooldownEndsWithTimeAndNotWithOlderRequests(t *testing.T) {
	t.Parallel()
	p, c := setup()
	m := model([]int{0, 1}, []int{1, 1})
	there := func() bool { return p.Order(m.Routes[catalogkv.Chat], 0)[0].ID == "r0" }
	p.StartCooldown("r0", time.Minute)
	p.StartCooldown("r0", time.Second) // a second failure does not shorten it
	c.now = c.now.Add(2 * time.Second)
	if there() {
		t.Error("the cooldown ended too soon")
	}
	p.RecordSuccess("r0") // by a request that began before the cooldown
	p.RecordSuccess("other")
	if there() {
		t.Error("the cooldown was ended by a request that began before it")
	}
	c.now = c.now.Add(time.Minute)
	if !there() {
		t.Error("the cooldown did not end in time")
	}
	p.RecordSuccess("r0")
	if len(p.cooldowns) != 0 {
		t.Errorf("%d cooldowns are kept", len(p.cooldowns))
	}
	p.StartCooldown("a", time.Second)
	c.now = c.now.Add(time.Hour)
	p.StartCooldown("b", time.Second)
	if _, there := p.cooldowns["a"]; there || len(p.cooldowns) != 1 {
		t.Errorf("a cooldown that is over is kept: %v", p.cooldowns)
	}
}

func BenchmarkOrder(b *testing.B) {
	p, _ := setup()
	m := model([]int{0, 0, 1}, []int{1, 2, 1})
	key := conversation(1)
	b.ReportAllocs()
	for b.Loop() {
		p.Order(m.Routes[catalogkv.Chat], key)
	}
}

func TestRefusedCredentialIsReportedUntilItWorks(t *testing.T) {
	t.Parallel()
	p, c := setup()
	used := func(id string) bool { return id != "gone" }
	p.RecordRefusal("a", wire.KeyRejected, time.Minute)
	p.RecordRefusal("b", wire.QuotaExhausted, time.Minute)
	p.RecordRefusal("gone", wire.KeyRejected, time.Minute)
	both := []wire.RefusedCredential{{Credential: "a", Reason: wire.KeyRejected}, {Credential: "b", Reason: wire.QuotaExhausted}}
	if got := p.RefusedCredentials(used); !slices.Equal(got, both) {
		t.Errorf("got %v; want %v", got, both)
	}
	p.RecordSuccess("a") // by a request that began before the cooldown
	c.now = c.now.Add(time.Hour)
	p.StartCooldown("other", time.Minute) // this removes cooldowns that are over
	if got := p.RefusedCredentials(used); !slices.Equal(got, both) {
		t.Errorf("an hour later: got %v; want %v", got, both)
	}
	p.RecordSuccess("a")
	if got := p.RefusedCredentials(used); !slices.Equal(got, both[1:]) {
		t.Errorf("after it served: got %v; want %v", got, both[1:])
	}
	if got := p.RefusedCredentials(func(id string) bool { return id != "b" }); len(got) != 0 || len(p.refusals) != 0 {
		t.Errorf("got %v, and %v is kept", got, p.refusals)
	}
}
