// Package bus owns the proxy's side of NATS: sessions, ops, returns and key
// lookups by request and reply, the watch of the catalog bucket, what is
// pushed to the session, and the publishing of usage.
//
// It translates between messages and the domain packages and decides nothing.
package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/event"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// Config says how to reach NATS.
type Config struct {
	URL, User, Password string
	// CAFile, CertFile and KeyFile turn on TLS; empty ones are left to the URL's scheme.
	CAFile, CertFile, KeyFile string
	// Name tells this proxy apart in the server's list of connections.
	Name string
	// Options are further ones of the client, for tests.
	Options []nats.Option
}

// Handlers takes in what is pushed.
type Handlers struct {
	KeyChange func(c wire.KeyChange, ack func(wire.Ack))
	Recall    func(r wire.Recall)
	Settled   func(s event.Settled)
	// Held answers for the current session; without one it answers false.
	Reserved func(q wire.ReservedRequest) (wire.ReservedResponse, bool)
	// Describe answers likewise.
	Describe func() (wire.DescribeResponse, bool)
}

// Bus is one connection.
type Bus struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	log      *slog.Logger
	handlers Handlers
	// bucketCheck is shorter in tests, pollWait longer.
	bucketCheckInterval, fetchTimeout time.Duration

	mu      sync.Mutex
	recalls *nats.Subscription // of the current session
}

// Connect begins to connect; the client connects and reconnects by itself, for
// as long as it takes, and until then nothing can be sent. What is subscribed to
// meanwhile counts from the connection on.
func Connect(cfg Config, log *slog.Logger) (*Bus, error) {
	options := []nats.Option{
		nats.Name(cfg.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		// What cannot be sent now is not to be sent later: every message is repeated by who needs it.
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { log.Info("nats connected") }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("nats disconnected", slog.Any("error", err)) }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("nats reconnected") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("nats", slog.Any("error", err)) }),
	}
	if cfg.User != "" {
		options = append(options, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	nc, err := nats.Connect(cfg.URL, append(options, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}
	if !nc.IsConnected() {
		log.Warn("nats cannot be reached yet", slog.Any("error", nc.LastError()))
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus: jetstream: %w", err)
	}
	return &Bus{nc: nc, js: js, log: log, bucketCheckInterval: bucketCheckInterval, fetchTimeout: fetchTimeout}, nil
}

// Handle says who takes in what is pushed. It is called once, before a session
// is watched.
func (b *Bus) Subscribe(h Handlers) error {
	b.handlers = h
	_, err := b.nc.Subscribe(subject.KeyChange, func(m *nats.Msg) {
		handle(b, m, func(c *wire.KeyChange) {
			h.KeyChange(*c, func(a wire.Ack) { b.reply(m, a) })
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to changes: %w", err)
	}
	_, err = b.nc.Subscribe(subject.Reserved, func(m *nats.Msg) {
		handle(b, m, func(q *wire.ReservedRequest) {
			if held, ok := h.Reserved(*q); ok {
				b.reply(m, held)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to questions: %w", err)
	}
	_, err = b.nc.Subscribe(subject.Describe, func(m *nats.Msg) {
		handle(b, m, func(*wire.DescribeRequest) {
			if description, ok := h.Describe(); ok {
				b.reply(m, description)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to diagnoses: %w", err)
	}
	return nil
}

// Watch subscribes to what is pushed to a session, in place of the recalls of
// the one before. The watermarks of earlier sessions still come: their usage is
// still being settled.
func (b *Bus) SubscribeSession(id wire.SessionID) error {
	recalls, err := b.nc.Subscribe(subject.Recall(int64(id)), func(m *nats.Msg) {
		handle(b, m, func(r *wire.Recall) { b.handlers.Recall(*r) })
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to recalls: %w", err)
	}
	settled, err := b.subscribeSettled(int64(id))
	if err != nil {
		unsubscribe(recalls)
		return err
	}
	if err := b.nc.FlushTimeout(time.Second); err != nil {
		unsubscribe(recalls)
		unsubscribe(settled)
		return fmt.Errorf("bus: subscribe: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recalls != nil {
		unsubscribe(b.recalls)
	}
	b.recalls = recalls
	return nil
}

func unsubscribe(s *nats.Subscription) {
	_ = s.Unsubscribe() // fails only on a closed connection
}

// WatchSettled subscribes to the watermarks of a session, which may be one of
// an earlier process.
func (b *Bus) SubscribeSettled(session int64) error {
	_, err := b.subscribeSettled(session)
	return err
}

func (b *Bus) subscribeSettled(session int64) (*nats.Subscription, error) {
	sub, err := b.nc.Subscribe(subject.Settled(session), func(m *nats.Msg) {
		handle(b, m, func(s *event.Settled) { b.handlers.Settled(*s) })
	})
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to watermarks: %w", err)
	}
	return sub, nil
}

// Ready tells whether the connection stands.
func (b *Bus) Ready(context.Context) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("bus: %s", b.nc.Status())
	}
	return nil
}

// Close ends everything.
func (b *Bus) Close() {
	_ = b.nc.FlushTimeout(time.Second) // best effort on the way out
	b.nc.Close()
}

// ask sends a request and decodes the reply.
func request[A any](ctx context.Context, b *Bus, name string, q any) (*A, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("bus: encode for %s: %w", name, err)
	}
	m, err := b.nc.RequestWithContext(ctx, name, data)
	if err != nil {
		return nil, fmt.Errorf("bus: ask %s: %w", name, err)
	}
	a := new(A)
	if err := json.Unmarshal(m.Data, a); err != nil {
		return nil, fmt.Errorf("bus: decode reply of %s: %w", name, err)
	}
	return a, nil
}

// Register opens a session.
func (b *Bus) Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	return request[wire.RegisterResponse](ctx, b, subject.Register, r)
}

// Renew extends a session.
func (b *Bus) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	return request[wire.HeartbeatResponse](ctx, b, subject.Heartbeat, r)
}

// CloseSession ends a session.
func (b *Bus) CloseSession(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error) {
	return request[wire.CloseResponse](ctx, b, subject.Close, r)
}

// Op asks for holds.
func (b *Bus) RequestLease(ctx context.Context, op *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	return request[wire.LeaseResponse](ctx, b, subject.LeaseRequest, op)
}

// Return gives units back.
func (b *Bus) Return(ctx context.Context, r *wire.Return) (*wire.ReturnResponse, error) {
	return request[wire.ReturnResponse](ctx, b, subject.Return, r)
}

// LoadKey reads a key's record.
func (b *Bus) LoadKey(ctx context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error) {
	return request[wire.LoadKeyResponse](ctx, b, subject.LoadKey, q)
}

// Balance reads the figures of an account and a key.
func (b *Bus) Balance(ctx context.Context, q *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	return request[wire.BalanceResponse](ctx, b, subject.Balance, q)
}

// PublishUsage stores a batch in the usage stream.
func (b *Bus) PublishUsage(ctx context.Context, session int64, batchID string, payload []byte) error {
	if _, err := b.js.Publish(ctx, subject.Usage(session), payload, jetstream.WithMsgID(batchID)); err != nil {
		return fmt.Errorf("bus: publish usage: %w", err)
	}
	return nil
}

func handle[Q any](b *Bus, m *nats.Msg, pass func(*Q)) {
	q := new(Q)
	if err := json.Unmarshal(m.Data, q); err != nil {
		b.log.Warn("unreadable message", slog.String("subject", m.Subject), slog.Any("error", err))
		return
	}
	pass(q)
}

func (b *Bus) reply(m *nats.Msg, answer any) {
	data, err := json.Marshal(answer)
	if err == nil && m.Reply != "" {
		err = m.Respond(data)
	}
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		b.log.Warn("reply", slog.String("subject", m.Subject), slog.Any("error", err))
	}
}
