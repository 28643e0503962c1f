// Package bus is the proxy's side of NATS. It sends requests to the control plane,
// delivers pushed messages to their handlers, watches the catalog bucket, publishes
// usage events, and receives tasks from the work queue of video jobs.
//
// It translates between messages and the types of other packages. It makes no
// decisions.
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

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/certfile"
	"modelgateway/shared/event"
	"modelgateway/shared/pulse"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// Config has the address of NATS and the credentials for it.
type Config struct {
	URL, User, Password string
	// CAFile and CertFile turn on TLS. If they are empty, the scheme of the URL decides.
	CAFile, CertFile, KeyFile string
	// Name is the proxy's name. It is part of the subjects of its messages.
	Name string
	// Options are further options of the NATS client, for tests.
	Options []nats.Option
}

// Handlers are called with the messages that the control plane sends. They must be
// safe for concurrent use.
type Handlers struct {
	// KeyChange may call ack, to acknowledge the change.
	KeyChange func(c wire.KeyChange, ack func(wire.Ack))
	Recall    func(r wire.Recall)
	Settled   func(s event.Settled)
	// Reserved and Describe return the response of the current session, or false without a session: then the proxy does
	// not reply.
	Reserved func(q wire.ReservedRequest) (wire.ReservedResponse, bool)
	Describe func() (wire.DescribeResponse, bool)
	// Check calls a provider and returns what came, or false if another proxy was asked. It may take long.
	Check func(q *checkwire.Request) (checkwire.Response, bool)
	// Explain returns how a request would be answered, or false without a session.
	Explain func(q *wire.ExplainRequest) (wire.ExplainResponse, bool)
	// Tail opens or renews a tail of finished requests. It calls send from any goroutine until the tail ends.
	Tail func(q pulse.Tail, send func(pulse.Lines))
}

// Bus is a connection to NATS. It is safe for concurrent use.
type Bus struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	log      *slog.Logger
	server   *certfile.Peer
	proxy    string // its name
	handlers Handlers
	// Tests change these.
	bucketCheckInterval, fetchTimeout time.Duration

	mu      sync.Mutex
	recalls *nats.Subscription // of the current session
}

// Connect returns a Bus that connects, and reconnects, in the background for as
// long as necessary. Requests fail while there is no connection. Subscriptions
// made before take effect with the connection.
func Connect(cfg Config, log *slog.Logger) (*Bus, error) {
	options := []nats.Option{
		nats.Name("dataplane " + cfg.Name), nats.CustomInboxPrefix(subject.Inbox(cfg.Name)),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		// A message that cannot be sent now must not be sent later: its sender repeats it.
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { log.Info("connected to NATS") }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("disconnected from NATS", slog.Any("error", err)) }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("reconnected to NATS") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("NATS client reported an error", slog.Any("error", err))
		}),
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

	server := &certfile.Peer{}
	options = append(options, func(o *nats.Options) error {
		if o.TLSConfig == nil { // with one, the client takes the longer jitter of TLS, also for a connection without TLS
			o.ReconnectJitterTLS = o.ReconnectJitter
		}
		o.TLSConfig = server.Watch(o.TLSConfig)
		return nil
	})
	nc, err := nats.Connect(cfg.URL, append(options, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}
	if !nc.IsConnected() {
		log.Warn("NATS is not reachable yet; the proxy keeps trying to connect", slog.Any("error", nc.LastError()))
	}

	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus: create JetStream client: %w", err)
	}

	return &Bus{
		nc:                  nc,
		js:                  js,
		log:                 log,
		server:              server,
		proxy:               cfg.Name,
		bucketCheckInterval: bucketCheckInterval,
		fetchTimeout:        fetchTimeout,
	}, nil
}

// Name returns the name of the proxy.
func (b *Bus) Name() string { return b.proxy }

// Connected reports whether there is a connection to NATS.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Reconnects returns how many times a lost connection was made again.
func (b *Bus) Reconnects() uint64 { return b.nc.Stats().Reconnects }

// CertificateExpiry returns the time at which the certificate of the server expires, or an error without TLS. It does not use
// nats.Conn.TLSConnectionState, which reads the state of the connection without its lock.
func (b *Bus) CertificateExpiry() (time.Time, error) {
	at, err := b.server.Expiry()
	if err != nil {
		return time.Time{}, fmt.Errorf("bus: %w", err)
	}
	return at, nil
}

// Subscribe subscribes to the messages for every proxy and sets the handlers. It
// is called once, before SubscribeSession and SubscribeSettled.
func (b *Bus) Subscribe(h Handlers) error {
	b.handlers = h
	_, err := b.nc.Subscribe(subject.KeyChange, func(m *nats.Msg) {
		handle(b, m, func(c *wire.KeyChange) {
			h.KeyChange(*c, func(a wire.Ack) { b.reply(m, a) })
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to key changes: %w", err)
	}

	_, err = b.nc.Subscribe(subject.Reserved, func(m *nats.Msg) {
		handle(b, m, func(q *wire.ReservedRequest) {
			if reserved, ok := h.Reserved(*q); ok {
				b.reply(m, reserved)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to requests for reservations: %w", err)
	}

	_, err = b.nc.Subscribe(subject.Describe, func(m *nats.Msg) {
		handle(b, m, func(*wire.DescribeRequest) {
			if description, ok := h.Describe(); ok {
				b.reply(m, description)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to requests for descriptions: %w", err)
	}

	_, err = b.nc.Subscribe(subject.Explain, func(m *nats.Msg) {
		handle(b, m, func(q *wire.ExplainRequest) {
			if explained, ok := h.Explain(q); ok {
				b.reply(m, explained)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to requests for explanations: %w", err)
	}

	_, err = b.nc.Subscribe(subject.Check, func(m *nats.Msg) {
		handle(b, m, func(q *checkwire.Request) {
			if checked, ok := h.Check(q); ok {
				b.reply(m, checked)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to checks of providers: %w", err)
	}

	_, err = b.nc.Subscribe(subject.Tail, func(m *nats.Msg) {
		handle(b, m, func(q *pulse.Tail) { h.Tail(*q, func(l pulse.Lines) { b.reply(m, l) }) })
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to tails: %w", err)
	}

	return nil
}

// SendPulse sends an encoded pulse.Report to the control planes.
func (b *Bus) SendPulse(data []byte) error {
	if err := b.nc.Publish(subject.From(subject.Pulse, b.proxy), data); err != nil {
		return fmt.Errorf("bus: send report of the traffic: %w", err)
	}
	return nil
}

// SubscribeSession subscribes to the recalls and watermarks of a session, and
// unsubscribes from the recalls of the session before. It stays subscribed to the
// watermarks of earlier sessions: their usage may not be settled yet.
func (b *Bus) SubscribeSession(id wire.SessionID) error {
	recalls, err := b.nc.Subscribe(subject.Recall(int64(id)), func(m *nats.Msg) {
		handle(b, m, func(r *wire.Recall) { b.handlers.Recall(*r) })
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to recalls: %w", err)
	}

	settled, err := b.subscribeSettled(id)
	if err != nil {
		unsubscribe(recalls)
		return err
	}

	if err := b.nc.FlushTimeout(time.Second); err != nil {
		unsubscribe(recalls)
		unsubscribe(settled)
		return fmt.Errorf("bus: confirm subscriptions of the session: %w", err)
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

// SubscribeSettled subscribes to the watermarks of a session of an earlier
// process.
func (b *Bus) SubscribeSettled(id wire.SessionID) error {
	_, err := b.subscribeSettled(id)
	return err
}

func (b *Bus) subscribeSettled(id wire.SessionID) (*nats.Subscription, error) {
	sub, err := b.nc.Subscribe(subject.Settled(int64(id)), func(m *nats.Msg) {
		handle(b, m, func(s *event.Settled) { b.handlers.Settled(*s) })
	})
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to watermarks: %w", err)
	}
	return sub, nil
}

// Close sends buffered messages and closes the connection.
func (b *Bus) Close() {
	_ = b.nc.FlushTimeout(time.Second) // best effort
	b.nc.Close()
}

// send sends a request under the name of the proxy and decodes the response.
func send[Response any](ctx context.Context, b *Bus, name string, request any) (*Response, error) {
	to := subject.From(name, b.proxy)
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("bus: encode request to %s: %w", to, err)
	}
	m, err := b.nc.RequestWithContext(ctx, to, data)
	if err != nil {
		return nil, fmt.Errorf("bus: request to %s: %w", to, err)
	}
	response := new(Response)
	if err := json.Unmarshal(m.Data, response); err != nil {
		return nil, fmt.Errorf("bus: decode response of %s: %w", to, err)
	}
	return response, nil
}

// Register opens a session.
func (b *Bus) Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	return send[wire.RegisterResponse](ctx, b, subject.Register, r)
}

// Heartbeat extends a session.
func (b *Bus) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	return send[wire.HeartbeatResponse](ctx, b, subject.Heartbeat, r)
}

// CloseSession closes a session.
func (b *Bus) CloseSession(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error) {
	return send[wire.CloseResponse](ctx, b, subject.Close, r)
}

// RequestLease asks for the units that the waiting requests of an account need. The
// error is admission.ErrNoControlPlane if it is known at once that nobody takes the
// message.
func (b *Bus) RequestLease(ctx context.Context, r *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	if !b.nc.IsConnected() { // the message would wait in the client's buffer
		return nil, fmt.Errorf("%w: NATS is not connected", admission.ErrNoControlPlane)
	}
	response, err := send[wire.LeaseResponse](ctx, b, subject.LeaseRequest, r)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%w: %w", admission.ErrNoControlPlane, err)
	}
	return response, err
}

// Return returns units.
func (b *Bus) Return(ctx context.Context, r *wire.Return) (*wire.ReturnResponse, error) {
	return send[wire.ReturnResponse](ctx, b, subject.Return, r)
}

// LoadKey reads the record of a key.
func (b *Bus) LoadKey(ctx context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error) {
	return send[wire.LoadKeyResponse](ctx, b, subject.LoadKey, q)
}

// Balance reads the balance of an account and the spend of a key.
func (b *Bus) Balance(ctx context.Context, q *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	return send[wire.BalanceResponse](ctx, b, subject.Balance, q)
}

// PublishUsage publishes a batch of usage events and waits for the acknowledgement
// of the usage stream.
func (b *Bus) PublishUsage(ctx context.Context, session int64, batchID string, payload []byte) error {
	if _, err := b.js.Publish(ctx, subject.Usage(b.proxy, session), payload, jetstream.WithMsgID(batchID)); err != nil {
		return fmt.Errorf("bus: publish usage: %w", err)
	}
	return nil
}

// handle decodes a message and calls a handler with it. A message that cannot be
// decoded is logged and dropped.
func handle[Message any](b *Bus, m *nats.Msg, handler func(*Message)) {
	message := new(Message)
	if err := json.Unmarshal(m.Data, message); err != nil {
		b.log.Warn("message cannot be decoded", slog.String("subject", m.Subject), slog.Any("error", err))
		return
	}
	handler(message)
}

// reply replies to a pushed message under the name of the proxy, if its sender
// expects a reply.
func (b *Bus) reply(m *nats.Msg, response any) {
	to, expected := subject.Answer(m.Reply, b.proxy)
	if !expected {
		return
	}
	data, err := json.Marshal(response)
	if err == nil {
		err = b.nc.Publish(to, data)
	}
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		b.log.Warn("reply to a message failed", slog.String("subject", m.Subject), slog.Any("error", err))
	}
}
