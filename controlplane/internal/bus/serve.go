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

// Serve handles the proxies' requests to the leasing service. Each request goes
// to one of the replicas.
func (b *Bus) Serve(s *leasing.Service) error {
	return b.subscribe(map[string]nats.MsgHandler{
		subject.LeaseRequest: func(m *nats.Msg) {
			decode(b, m, func(q *wire.LeaseRequest) { s.Request(q, func(r wire.LeaseResponse) { b.reply(m, r) }) })
		},
		subject.Return: func(m *nats.Msg) {
			decode(b, m, func(ret *wire.Return) { s.Return(ret, func(r wire.ReturnResponse) { b.reply(m, r) }) })
		},
		subject.LoadKey: func(m *nats.Msg) {
			decode(b, m, func(q *wire.LoadKeyRequest) { s.LoadKey(q, func(r wire.LoadKeyResponse) { b.reply(m, r) }) })
		},
		subject.Register:  b.underOwnName(requestHandler(b, s.Register, wire.RegisterResponse{V: wire.Version, Status: wire.Unavailable})),
		subject.Heartbeat: requestHandler(b, b.heartbeat(s), wire.HeartbeatResponse{V: wire.Version, Status: wire.Unavailable}),
		subject.Close:     requestHandler(b, s.Close, wire.CloseResponse{V: wire.Version, Status: wire.Unavailable}),
		subject.Balance:   requestHandler(b, s.Balance, wire.BalanceResponse{V: wire.Version, Status: wire.Unavailable}),
	})
}

// heartbeat adds to the service's response whether settlement is behind.
func (b *Bus) heartbeat(s *leasing.Service) func(context.Context, *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	return func(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
		response, err := s.Heartbeat(ctx, r)
		if err != nil {
			return nil, err
		}
		response.UsageBacklog = b.backlog.Load()
		return response, nil
	}
}

// underOwnName passes on the registrations of proxies that register under the name
// in the subject, which NATS has checked.
func (b *Bus) underOwnName(handle nats.MsgHandler) nats.MsgHandler {
	return func(m *nats.Msg) {
		decode(b, m, func(r *wire.RegisterRequest) {
			if proxy := subject.Sender(m.Subject); r.Name != proxy {
				b.log.Warn(
					"registration under the name of another proxy was dropped",
					slog.String("proxy", proxy),
					slog.String("name", r.Name),
				)
				return
			}
			handle(m)
		})
	}
}

// subscribe joins the queue group of each request of proxies.
func (b *Bus) subscribe(handlers map[string]nats.MsgHandler) error {
	for name, handle := range handlers {
		sub, err := b.nc.QueueSubscribe(subject.FromAll(name), subject.Queue, func(m *nats.Msg) {
			if proxy := subject.Sender(m.Subject); !subject.InInbox(m.Reply, proxy) {
				// The response is published with the permissions of the control plane, so its subject must be no other.
				b.log.Warn(
					"request whose response would not go to its proxy was dropped",
					slog.String("subject", m.Subject),
					slog.String("reply", m.Reply),
				)
				return
			}
			handle(m)
		})
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

// requestHandler returns a handler that calls a function in a task of its own, of
// which maxWorkers run at once. If the function fails, the proxy gets the response
// unavailable.
func requestHandler[Q, R any](b *Bus, call func(context.Context, *Q) (*R, error), unavailable R) nats.MsgHandler {
	workers := make(chan struct{}, maxWorkers)
	return func(m *nats.Msg) {
		decode(b, m, func(q *Q) {
			b.runTask(workers, func(ctx context.Context) {
				response, err := call(ctx, q)
				if err != nil {
					b.log.Error("request of a proxy failed", slog.String("subject", m.Subject), slog.Any("error", err))
					response = &unavailable
				}
				b.reply(m, response)
			})
		})
	}
}

// runTask runs fn in a goroutine. It waits while all workers are busy; meanwhile
// messages stay in the subscription's buffer.
func (b *Bus) runTask(workers chan struct{}, fn func(context.Context)) {
	select {
	case workers <- struct{}{}:
	case <-b.ctx.Done():
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.stopped {
		<-workers
		return
	}

	b.tasks.Go(func() {
		defer func() { <-workers }()
		ctx, cancel := context.WithTimeout(b.ctx, requestTimeout)
		defer cancel()
		fn(ctx)
	})
}

// decode decodes a message and calls handle. A message that cannot be decoded is
// dropped and logged without its content: its sender is unknown, or newer than
// this build.
func decode[Q any](b *Bus, m *nats.Msg, handle func(*Q)) {
	q := new(Q)
	if err := json.Unmarshal(m.Data, q); err != nil {
		b.log.Warn("message cannot be decoded", slog.String("subject", m.Subject), slog.Any("error", err))
		return
	}
	handle(q)
}

func (b *Bus) reply(m *nats.Msg, response any) {
	data, err := json.Marshal(response)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil { // the proxy repeats its request
		b.log.Warn("response to a proxy could not be sent", slog.String("subject", m.Subject), slog.Any("error", err))
	}
}
