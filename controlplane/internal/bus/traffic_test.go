package bus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/pulse"
	"modelgateway/shared/subject"
)

func TestReportsOfEveryProxyReachEveryReplica(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy", "other")
	received := make(chan *pulse.Report, 10)
	for range 2 {
		if err := p.connectReplica(&streamCounter{}).ServeTraffic(func(r *pulse.Report) { received <- r }); err != nil {
			t.Fatal(err)
		}
	}
	send := func(r pulse.Report) {
		data, err := json.Marshal(r)
		if err == nil {
			err = p.proxy.Publish(subject.From(subject.Pulse, "proxy"), data)
		}
		if err != nil {
			t.Fatal(err)
		}
		natstest.Flush(t, p.proxy)
	}
	send(pulse.Report{V: 1, Proxy: "other", Process: "under the name of another"})
	send(pulse.Report{V: 1, Proxy: "proxy", Process: strings.Repeat("too large ", pulse.MaxReport/10)})
	send(pulse.Report{V: 1, Proxy: "proxy", Process: "lies", Totals: []pulse.Total{{Series: pulse.Series{Measure: pulse.Requests, Code: "\x00"}, N: 1}}})
	send(pulse.Report{V: 1, Proxy: "proxy", Process: "good"})
	for range 2 {
		if r := <-received; r.Process != "good" {
			t.Errorf("received %.40s", r.Process)
		}
	}
}

func TestTailAsksProxiesAndReceivesTheirLines(t *testing.T) {
	t.Parallel()
	p := newEnvWith(t, "proxy")
	b := p.connectReplica(&streamCounter{})
	requests, err := p.proxy.SubscribeSync(subject.Tail)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, p.proxy)
	type sent struct {
		proxy string
		pulse.Lines
	}
	lines := make(chan sent, 10)
	q := pulse.Tail{V: 1, ID: "one", Filter: pulse.Filter{Class: 4}}
	ask, stop, err := b.Tail(q, func(proxy string, l *pulse.Lines) { lines <- sent{proxy, *l} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for round := range 2 { // asked for and renewed
		if err := ask(q); err != nil {
			t.Fatal(err)
		}
		m, err := requests.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got pulse.Tail
		if err := json.Unmarshal(m.Data, &got); err != nil || got != q {
			t.Errorf("round %d: %+v, %v", round, got, err)
		}
		to, ok := subject.Answer(m.Reply, "proxy")
		if !ok {
			t.Fatalf("reply subject %s", m.Reply)
		}
		for _, id := range []string{"another", "one"} {
			data, err := json.Marshal(pulse.Lines{V: 1, ID: id, Dropped: int64(round)})
			if err == nil {
				err = p.proxy.Publish(to, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if l := <-lines; l.proxy != "proxy" || l.ID != "one" || l.Dropped != int64(round) {
			t.Errorf("round %d: lines %+v", round, l)
		}
	}
}
