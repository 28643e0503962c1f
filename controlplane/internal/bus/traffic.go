package bus

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/pulse"
	"modelgateway/shared/subject"
)

var _ traffic.TailBus = (*Bus)(nil)

// ServeTraffic calls receive with each report of a proxy about its traffic. Every replica gets all of them.
func (b *Bus) ServeTraffic(receive func(*pulse.Report)) error {
	sub, err := b.nc.Subscribe(subject.FromAll(subject.Pulse), func(m *nats.Msg) {
		if len(m.Data) > pulse.MaxReport {
			b.log.Warn("report of a proxy is too large and was dropped", slog.String("subject", m.Subject), slog.Int("bytes", len(m.Data)))
			return
		}
		decode(b, m, func(r *pulse.Report) {
			if proxy := subject.Sender(m.Subject); r.Proxy != proxy {
				b.log.Warn("report under the name of another proxy was dropped", slog.String("proxy", proxy), slog.String("name", r.Proxy))
				return
			}
			if err := r.Check(); err != nil {
				b.log.Warn("implausible report of a proxy was dropped", slog.String("proxy", r.Proxy), slog.Any("error", err))
				return
			}
			receive(r)
		})
	})
	if err != nil {
		return fmt.Errorf("bus: subscribe to reports: %w", err)
	}

	b.subs = append(b.subs, sub)
	return nil
}

func (b *Bus) Tail(q pulse.Tail, handle func(proxy string, l *pulse.Lines)) (ask func(pulse.Tail) error, stop func(), err error) {
	answer := subject.NewAnswer(rand.Text())
	sub, err := b.nc.Subscribe(subject.FromAll(answer), func(m *nats.Msg) {
		decode(b, m, func(l *pulse.Lines) {
			if l.ID == q.ID {
				handle(subject.Sender(m.Subject), l)
			}
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("bus: subscribe to a tail: %w", err)
	}

	ask = func(q pulse.Tail) error {
		data, err := json.Marshal(q)
		if err != nil {
			return fmt.Errorf("bus: encode the request for a tail: %w", err)
		}
		if err := b.nc.PublishRequest(subject.Tail, answer, data); err != nil {
			return fmt.Errorf("bus: ask for a tail: %w", err)
		}
		return nil
	}
	return ask, func() { _ = sub.Unsubscribe() }, nil // it fails only on a closed connection
}
