package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// Serve answers what proxies ask of the leasing service, together with the
// other replicas: each message goes to one of them.
func (b *Bus) Serve(s *leasing.Service) error {
	return b.subscribe(map[string]nats.MsgHandler{
		subject.LeaseRequest: func(m *nats.Msg) {
			decode(b, m, func(op *wire.LeaseRequest) { s.Request(op, func(r wire.LeaseResponse) { b.reply(m, r) }) })
		},
		subject.Return: func(m *nats.Msg) {
			decode(b, m, func(ret *wire.Return) { s.Return(ret, func(r wire.ReturnResponse) { b.reply(m, r) }) })
		},
		subject.LoadKey: func(m *nats.Msg) {
			decode(b, m, func(q *wire.LoadKeyRequest) { s.LoadKey(q, func(r wire.LoadKeyResponse) { b.reply(m, r) }) })
		},
		subject.Register:  answer(b, s.Register, wire.RegisterResponse{V: wire.Version, Status: wire.Unavailable}),
		subject.Heartbeat: answer(b, s.Renew, wire.HeartbeatResponse{V: wire.Version, Status: wire.Unavailable}),
		subject.Close:     answer(b, s.Close, wire.CloseResponse{V: wire.Version, Status: wire.Unavailable}),
		subject.Balance:   answer(b, s.Balance, wire.BalanceResponse{V: wire.Version, Status: wire.Unavailable}),
	})
}

// subscribe joins the queue group of each subject.
func (b *Bus) subscribe(handlers map[string]nats.MsgHandler) error {
	for name, handle := range handlers {
		sub, err := b.nc.QueueSubscribe(name, subject.Queue, handle)
		if err != nil {
			return fmt.Errorf("bus: subscribe to %s: %w", name, err)
		}
		b.subs = append(b.subs, sub)
	}
	if err := b.nc.Flush(); err != nil {
		return fmt.Errorf("bus: subscribe: %w", err)
	}
	return nil
}

// answer makes a handler of a function that reads or writes Postgres by
// itself. When it fails, the proxy is told that the answer is unknown.
func answer[Q, A any](b *Bus, ask func(context.Context, *Q) (*A, error), unavailable A) nats.MsgHandler {
	return func(m *nats.Msg) {
		decode(b, m, func(q *Q) {
			b.work(func(ctx context.Context) {
				a, err := ask(ctx, q)
				if err != nil {
					b.log.Error("answer proxy", slog.String("subject", m.Subject), slog.Any("error", err))
					a = &unavailable
				}
				b.reply(m, a)
			})
		})
	}
}

// work runs fn in a goroutine of its own, waiting while too many run: the
// subscription's buffer holds the rest.
func (b *Bus) work(fn func(context.Context)) {
	select {
	case b.workers <- struct{}{}:
	case <-b.ctx.Done():
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		<-b.workers
		return
	}
	b.tasks.Go(func() {
		defer func() { <-b.workers }()
		ctx, cancel := context.WithTimeout(b.ctx, requestTimeout)
		defer cancel()
		fn(ctx)
	})
}

// decode passes a message on. One that cannot be read is dropped and logged
// without its content: its sender is not one of ours, or a newer one whose
// message this build must not guess at.
func decode[Q any](b *Bus, m *nats.Msg, pass func(*Q)) {
	q := new(Q)
	if err := json.Unmarshal(m.Data, q); err != nil {
		b.log.Warn("unreadable message", slog.String("subject", m.Subject), slog.Any("error", err))
		return
	}
	pass(q)
}

func (b *Bus) reply(m *nats.Msg, answer any) {
	data, err := json.Marshal(answer)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil { // the asker repeats what it needs
		b.log.Warn("reply to proxy", slog.String("subject", m.Subject), slog.Any("error", err))
	}
}
