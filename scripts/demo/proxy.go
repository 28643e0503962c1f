package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// proxyName is the name under which past usage is settled. It is no proxy of the stack.
const proxyName = "demo-past"

const (
	callTimeout   = 10 * time.Second
	retryInterval = 50 * time.Millisecond
	// eventsPerBatch is the number of events in a message of the usage stream.
	eventsPerBatch = 500
)

// proxy is a proxy that has served requests in the past and reports them now. It keeps to the protocol (docs/protocol):
// it has a session, is granted a lease of every amount that it charges, numbers its events, and closes the session after
// all of them are settled. So settlement checks each event like any other, and nothing is left behind.
type proxy struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	boot    string
	session wire.SessionID
	applied int64
}

func openProxy(url string) (*proxy, error) {
	nc, err := nats.Connect(url, nats.Name("demo"), nats.CustomInboxPrefix(subject.Inbox(proxyName)))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	p := &proxy{nc: nc, boot: rand.Text()}
	if p.js, err = jetstream.New(nc); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return p, nil
}

func (p *proxy) disconnect() { p.nc.Close() }

// models returns the models of the catalog by id, as the proxies have them.
func (p *proxy) models(ctx context.Context) (map[string]catalogkv.Model, error) {
	bucket, err := p.js.KeyValue(ctx, subject.CatalogBucket)
	if err != nil {
		return nil, fmt.Errorf("open the catalog: %w", err)
	}

	keys, err := bucket.Keys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the catalog: %w", err)
	}

	models := map[string]catalogkv.Model{}
	for _, key := range keys {
		if kind, _, ok := subject.ParseCatalogKey(key); !ok || kind != subject.KindModel {
			continue
		}
		entry, err := bucket.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		var model catalogkv.Model
		if err := json.Unmarshal(entry.Value(), &model); err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		if len(model.Prices) > 0 && len(model.Routes) > 0 {
			models[model.ID] = model
		}
	}

	return models, nil
}

// ask sends a request under the name of the proxy.
func ask[Response any](ctx context.Context, p *proxy, name string, request any) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := p.nc.RequestWithContext(ctx, subject.From(name, proxyName), data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	response := new(Response)
	if err := json.Unmarshal(m.Data, response); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return response, nil
}

// settle reports the events in one session and returns when they are settled. spending is what the requests of each
// account cost by key.
func (p *proxy) settle(ctx context.Context, spending map[string]map[string]money.Nano, events []event.Usage) error {
	registered, err := ask[wire.RegisterResponse](ctx, p, subject.Register, wire.RegisterRequest{
		V:        wire.Version,
		Name:     proxyName,
		BootID:   p.boot,
		Build:    "demo",
		Capacity: int64(len(events)),
		ClockMS:  time.Now().UnixMilli(),
	})
	if err != nil {
		return err
	}
	if registered.Status != wire.Done {
		return fmt.Errorf("the session is refused: %s", registered.Status)
	}

	p.session, p.applied = registered.Session, registered.Revision
	number := int64(0)
	for account, keys := range spending {
		number++
		if err := p.lease(ctx, number, account, keys); err != nil {
			return err
		}
	}

	for from := 0; from < len(events); from += eventsPerBatch {
		to := min(from+eventsPerBatch, len(events))
		if err := p.heartbeat(ctx, int64(to)); err != nil {
			return err
		}
		if err := p.publish(ctx, events[from:to], int64(from)); err != nil {
			return err
		}
	}

	return p.close(ctx, int64(len(events)))
}

// lease gets what the requests of an account have cost. No request runs any more, so none takes a slot.
func (p *proxy) lease(ctx context.Context, number int64, account string, keys map[string]money.Nano) error {
	request := wire.LeaseRequest{
		V:       wire.Version,
		Session: p.session,
		BootID:  p.boot,
		Account: account,
		Number:  number,
	}

	for key, cost := range keys {
		pools, err := ask[wire.BalanceResponse](
			ctx,
			p,
			subject.Balance,
			wire.BalanceRequest{V: wire.Version, AccountID: account, KeyID: key},
		)
		if err != nil {
			return err
		}
		needs := []wire.Need{{Pool: pools.BalancePool, Kind: wire.Balance, Amount: int64(cost)}}
		if pools.Limited {
			needs = append(needs, wire.Need{Pool: pools.LimitPool, Kind: wire.Limit, Amount: int64(cost)})
		}
		request.Needs = append(request.Needs, needs)
	}

	return p.repeat(ctx, "lease of "+account, func() (bool, error) {
		response, err := ask[wire.LeaseResponse](ctx, p, subject.LeaseRequest, request)
		if err != nil {
			return false, err
		}
		for _, decision := range response.Decisions {
			if response.Status == wire.Done && !decision.Granted {
				return false, fmt.Errorf("the lease is refused: %s", decision.Reason)
			}
		}
		if response.Status != wire.Done && response.Status != wire.Wait {
			return false, fmt.Errorf("the lease is refused: %s", response.Status)
		}
		return response.Status == wire.Done, nil
	})
}

// heartbeat extends the session. The proxy has no key records, so every key change is applied at once.
func (p *proxy) heartbeat(ctx context.Context, started int64) error {
	response, err := ask[wire.HeartbeatResponse](ctx, p, subject.Heartbeat, wire.HeartbeatRequest{
		V:               wire.Version,
		Session:         p.session,
		BootID:          p.boot,
		AppliedRevision: p.applied,
		Started:         started,
	})
	if err != nil {
		return err
	}
	if response.Status != wire.Done {
		return fmt.Errorf("the session is not extended: %s", response.Status)
	}

	for _, change := range response.Changes {
		p.applied = max(p.applied, change.Revision)
	}

	return nil
}

// publish publishes events of which n have been published before.
func (p *proxy) publish(ctx context.Context, events []event.Usage, n int64) error {
	batch := event.Batch{V: event.Version, BatchID: rand.Text(), Session: int64(p.session)}
	for _, e := range events {
		n++
		e.Session, e.Seq = int64(p.session), n
		raw, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("encode an event: %w", err)
		}
		batch.Events = append(batch.Events, raw)
	}

	payload, err := json.Marshal(batch)
	if err != nil {
		return fmt.Errorf("encode a batch: %w", err)
	}
	if _, err := p.js.Publish(ctx, subject.Usage(proxyName, int64(p.session)), payload, jetstream.WithMsgID(batch.BatchID)); err != nil {
		return fmt.Errorf("publish usage: %w", err)
	}

	return nil
}

// close ends the session when its events are settled. What the leases still hold returns to the accounts.
func (p *proxy) close(ctx context.Context, events int64) error {
	return p.repeat(ctx, "end of the session", func() (bool, error) {
		response, err := ask[wire.CloseResponse](ctx, p, subject.Close, wire.CloseRequest{
			V:          wire.Version,
			Session:    p.session,
			BootID:     p.boot,
			FinalCount: events,
		})
		if err != nil {
			return false, err
		}
		return response.Status == wire.Done, nil
	})
}

// repeat calls do until it reports true.
func (p *proxy) repeat(ctx context.Context, what string, do func() (bool, error)) error {
	for {
		done, err := do()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: it takes too long", what), ctx.Err())
		case <-time.After(retryInterval):
		}
	}
}
