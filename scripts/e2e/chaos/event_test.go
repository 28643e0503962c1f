package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
)

// maxBatch is the maximum number of events in one message: NATS accepts at most one megabyte.
const maxBatch = 500

// All events of the usage stream are published again, reordered, in other batches and some of
// them twice, while requests run. Nothing is charged twice.
func TestChaos_dup_shuffle_events(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 200, answered)
	js := l.r.JetStream(t)
	published := 0
	for range 3 {
		bySession := map[int64][]json.RawMessage{}
		for _, b := range batches(t, js) {
			bySession[b.Session] = append(bySession[b.Session], b.Events...)
		}
		proxies := proxiesOf(t, l.r)
		for session, events := range bySession {
			events = append(events, events[:len(events)/2]...)
			rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			for len(events) > 0 {
				n := 1 + rand.N(min(len(events), maxBatch))
				publish(t, js, proxies[session], session, events[:n]...)
				events, published = events[n:], published+n
			}
		}
		l.await(t, 20, answered)
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
	t.Logf("%d events were published again", published)
}

// An event of a settled request with other figures is quarantined and changes nothing.
func TestChaos_altered_duplicate_quarantined(t *testing.T) {
	l := startLoad(t, clients)
	l.settled(t, 4) // then their events are in the stream
	js := l.r.JetStream(t)
	altered, reasons := map[string]event.Usage{}, map[string]string{}
	for _, b := range batches(t, js) {
		for _, raw := range b.Events {
			var e event.Usage
			if err := json.Unmarshal(raw, &e); err != nil || e.AccountID != l.account.ID {
				continue
			}
			before := e
			switch len(altered) {
			case 0:
				e.Cost++
				reasons[e.RequestID] = "differs from"
			case 1:
				e.Cost, e.Usage, e.Rule = 0, price.Usage{}, event.RuleNone // its price is right
				reasons[e.RequestID] = "altered duplicate"
			case 2:
				e.Usage.Output += 1000
				reasons[e.RequestID] = "differs from"
			case 3:
				e.KeyID = ident.Key.New()
				reasons[e.RequestID] = "no such key"
			default:
				continue
			}
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			l.r.AwaitUsage(t, e.RequestID)
			publish(t, js, proxiesOf(t, l.r)[b.Session], b.Session, raw, text, raw) // the valid duplicates in the same batch are accepted
			altered[e.RequestID] = before
		}
	}
	if len(altered) != 4 {
		t.Fatalf("found %d events of the account; want 4", len(altered))
	}
	conn := l.r.Postgres(t)
	for id, before := range altered {
		rig.Await(t, "the altered event in quarantine", func(ctx context.Context) error {
			var reason string
			err := conn.QueryRow(ctx, `select reason from quarantine where request_id = $1`, id).Scan(&reason)
			if err == nil && !strings.Contains(reason, reasons[id]) {
				err = fmt.Errorf("the reason is %q; want %q", reason, reasons[id])
			}
			return err
		})
		if usage := l.r.AwaitUsage(t, id); usage.Cost != before.Cost.String() {
			t.Errorf("%s is charged %s; want %s, the original charge", id, usage.Cost, before.Cost)
		}
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

// batches reads all messages of the usage stream.
func batches(t *testing.T, js jetstream.JetStream) (all []event.Batch) {
	t.Helper()
	stream, err := js.Stream(t.Context(), subject.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages() // fetches several messages at once
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	last := stream.CachedInfo().State.LastSeq
	for done := last == 0; !done; {
		message, err := messages.Next()
		if err != nil {
			t.Fatalf("read the usage stream: %v", err)
		}
		var b event.Batch
		if err := json.Unmarshal(message.Data(), &b); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
		meta, err := message.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		done = meta.Sequence.Stream >= last
	}
	return all
}

// proxiesOf returns the names of the proxies by session.
func proxiesOf(t *testing.T, r *rig.Rig) map[int64]string {
	t.Helper()
	rows, err := r.Postgres(t).Query(t.Context(), "select id, name from proxy_sessions")
	if err != nil {
		t.Fatal(err)
	}
	names, session, name := map[int64]string{}, int64(0), ""
	if _, err := pgx.ForEachRow(rows, []any{&session, &name}, func() error { names[session] = name; return nil }); err != nil {
		t.Fatal(err)
	}
	return names
}

// publish publishes events as a batch of their session and its proxy.
func publish(t *testing.T, js jetstream.JetStream, proxy string, session int64, events ...json.RawMessage) {
	t.Helper()
	id := ident.Kind("bat").New()
	payload, err := json.Marshal(event.Batch{V: event.Version, BatchID: id, Session: session, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject.Usage(proxy, session), payload, jetstream.WithMsgID(id)); err != nil {
		t.Fatalf("publish usage: %v", err)
	}
}
