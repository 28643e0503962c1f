package bus_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
)

func (p *env) stream() jetstream.Stream {
	p.t.Helper()
	js := natstest.JetStream(p.t, p.server.Connect())
	stream, err := js.Stream(p.t.Context(), subject.UsageStream)
	if err != nil {
		p.t.Fatal(err)
	}
	return stream
}

func (p *env) messages() uint64 {
	p.t.Helper()
	info, err := p.stream().Info(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return info.State.Msgs
}

// connect connects a replica with the stores of production.
func (p *env) connect(cfg bus.Config) *bus.Bus {
	p.t.Helper()
	cfg.URL, cfg.Name = p.server.URL(), "replica"
	b, err := bus.Connect(cfg, leasestore.NewRecovery(p.db), slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(b.Close)
	p.t.Cleanup(b.Stop)
	if err := b.Declare(await.Context(p.t)); err != nil {
		p.t.Fatal(err)
	}
	return b
}

func TestOnlySettledUsageThatIsOldIsPurged(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	b := p.connect(bus.Config{UsageKept: 2 * time.Hour})
	p.consume(b)
	for n := int64(1); n <= 5; n++ {
		p.publish(p.usage(n))
	}
	p.awaitWatermark(marks, 5)
	b.Stop()
	p.publish(p.usage(6)) // is not settled
	p.publish(p.usage(7))
	for _, step := range []struct {
		after time.Duration
		want  uint64
	}{{0, 7}, {time.Hour, 7}, {3 * time.Hour, 2}, {300 * time.Hour, 2}} {
		if err := b.PurgeUsage(await.Context(t), time.Now().Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if got := p.messages(); got != step.want {
			t.Errorf("after %v: %d messages; want %d", step.after, got, step.want)
		}
	}
	p.consume(p.connect(bus.Config{UsageKept: 2 * time.Hour}))
	p.awaitWatermark(marks, 7)
	p.wantSettled(70)
}

func TestFullUsageStreamRefusesAndTakesUsageAgainWhenItHasRoom(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	full := p.connect(bus.Config{UsageMaxBytes: 2000})
	js := natstest.JetStream(t, p.server.Connect())
	var refused [][]byte
	stored := int64(0)
	for n := int64(1); n <= 10; n++ {
		payload := p.usage(n)
		_, err := js.Publish(t.Context(), subject.Usage("proxy", int64(p.session)), payload, jetstream.WithMsgID(rand.Text()))
		var api *jetstream.APIError
		switch {
		case err == nil:
			stored++
		case errors.As(err, &api):
			refused = append(refused, payload)
		default:
			t.Fatal(err)
		}
	}
	if stored == 0 || len(refused) == 0 {
		t.Fatalf("%d messages stored and %d refused; want both", stored, len(refused))
	}
	facts, err := full.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := facts.Streams[0]; s.MaxBytes != 2000 || s.Bytes == 0 || len(s.Differences) > 0 {
		t.Errorf("diagnosis: %+v; want 2000 bytes at most and no difference", s)
	}
	p.consume(full)
	p.awaitWatermark(marks, stored)
	p.connect(bus.Config{UsageMaxBytes: 1 << 20}) // the operator raises the limit
	for _, payload := range refused {
		p.publish(payload)
	}
	p.awaitWatermark(marks, 10)
	p.wantSettled(100)
}

// The consumer is deleted by hand. The new one begins an hour before what is
// settled, not with the first message of a week.
func TestDeletedConsumerBeginsAnHourBeforeTheNewestSettledRequest(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	b := p.connect(bus.Config{})
	p.consume(b)
	p.publish(p.usage(1))
	p.awaitWatermark(marks, 1)
	b.Stop()
	if err := p.stream().DeleteConsumer(t.Context(), subject.UsageConsumer); err != nil {
		t.Fatal(err)
	}
	p.publish(p.usage(2))
	again := p.connect(bus.Config{})
	p.connect(bus.Config{}) // another replica updates the consumer
	consumer, err := p.stream().Consumer(t.Context(), subject.UsageConsumer)
	if err != nil {
		t.Fatal(err)
	}
	from := consumer.CachedInfo().Config.OptStartTime
	if from == nil || time.Since(*from) < time.Hour || time.Since(*from) > time.Hour+10*time.Minute {
		t.Errorf("the consumer begins at %v; want an hour before the newest settled request", from)
	}
	p.consume(again)
	p.awaitWatermark(marks, 2)
	p.wantSettled(20)
}

// An account whose books cannot be changed delays only the messages with its events. The proxy learns that all others are settled.
func TestUnsettledEventsDelayOnlyTheirMessages(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	closed, key, promotion := ident.New(), ident.New(), ident.New()
	p.exec("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'closed', 5, 1)", closed)
	p.exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'key', sha256('closed'), 1)", key, closed)
	p.exec("insert into pools (account_id, kind, total, free, next_expiry) values ($1, 1, 10, 10, clock_timestamp())", closed)
	p.exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", closed, key)
	p.exec("insert into ledger_transactions (id, kind, reference, expires_at) values ($1, 'promotion', 'p', clock_timestamp())", promotion)
	p.exec(`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
		values ($1, 'promotion', 1, 'customer', $2, 10), ($1, 'promotion', 2, 'promotion', null, -10)`, promotion, closed)
	p.exec("insert into credits (transaction_id, account_id, amount) values ($1, $2, 10)", promotion, closed)
	p.exec("alter table credits add constraint refused check (expired = 0)")
	other := *p
	other.account, other.key = closed, key
	b := p.connect(bus.Config{})
	p.publish(p.usage(1))
	p.publish(other.usage(2))
	p.publish(p.usage(3))
	marks := p.subscribeWatermarks()
	p.consume(b)
	for settled := false; !settled; {
		message, err := marks.NextMsgWithContext(await.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		var mark event.Settled
		if err := json.Unmarshal(message.Data, &mark); err != nil || mark.Watermark > 1 {
			t.Fatalf("watermark %+v, %v; want at most 1", mark, err)
		}
		settled = mark.Watermark == 1 && len(mark.Beyond) == 1
	}
	p.exec("alter table credits drop constraint refused")
	p.awaitWatermark(marks, 3)
}
