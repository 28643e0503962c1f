package trafficapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
	"modelgateway/shared/pulse"
)

const (
	mediaEvents = "text/event-stream"
	mediaLines  = "application/x-ndjson"
	// stall bounds how long a client may take to receive one event.
	stall = 20 * time.Second
	// coverageEvery is how often a tail tells how many proxies it is of. It also shows that the stream is alive.
	coverageEvery = 5 * time.Second
	// checkEvery is how often a stream checks that its reader may still read.
	checkEvery = 5 * time.Second
)

// stream is a response without a known end: lines of JSON or server-sent events.
type stream struct {
	ctx      context.Context //nolint:containedctx // a response is written without one
	stopping <-chan struct{}
	events   bool
	// run sends until its context ends, which is when the client has gone, the server stops or the time is over.
	run func(ctx context.Context, send func(name string, value any) error) error
}

func (h *Handlers) newStream(ctx context.Context, accept *string) *stream {
	return &stream{ctx: ctx, stopping: h.Stopping, events: strings.Contains(convert.Text(accept), mediaEvents)}
}

// write sends the stream. Its end is no error, whatever the reason.
func (s *stream) write(w http.ResponseWriter) error {
	ctx, cancel := context.WithTimeout(s.ctx, traffic.MaxWatch)
	defer cancel()
	go s.watch(ctx, cancel)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's read deadline would end the stream
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	header, media := w.Header(), mediaLines
	if s.events {
		media = mediaEvents
	}

	header.Set("Content-Type", media)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)

	// The stream ends when the client has gone, the server stops, or the time is over: none of them is an error.
	_ = s.run(ctx, func(name string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		if s.events {
			text = append(append([]byte("event: "+name+"\ndata: "), text...), '\n')
		}
		_ = control.SetWriteDeadline(time.Now().Add(stall))
		if _, err := w.Write(append(text, '\n')); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
		if err := control.Flush(); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
		return nil
	})

	return nil
}

// watch calls end when the server stops, and when the reader's token is revoked or their session has ended.
func (s *stream) watch(ctx context.Context, end func()) {
	defer end()
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	reader := admin.PrincipalOf(ctx)
	for {
		select {
		case <-s.stopping:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			if reader.Ended(ctx) {
				return
			}
		}
	}
}

// trafficStream and tailStream are the streams as responses of their operations.
type (
	trafficStream struct {
		*stream
		done func()
	}
	tailStream struct {
		*stream
		tail *traffic.Tail
	}
)

func (s trafficStream) VisitStreamTrafficResponse(w http.ResponseWriter) error {
	defer s.done()
	return s.write(w)
}

func (s tailStream) VisitTailRequestsResponse(w http.ResponseWriter) error {
	defer s.tail.Close()
	return s.write(w)
}

func (h *Handlers) StreamTraffic(
	ctx context.Context,
	_ *gen.Call,
	r gen.StreamTrafficRequestObject,
) (gen.StreamTrafficResponseObject, error) {
	reader := admin.PrincipalOf(ctx).Name
	if err := h.Tails.Watchers.Enter(reader); err != nil {
		return nil, err
	}

	s := h.newStream(ctx, r.Params.Accept)
	s.run = func(ctx context.Context, send func(string, any) error) error {
		ticker := time.NewTicker(pulse.Interval)
		defer ticker.Stop()
		for {
			if err := send("traffic", trafficView(h.Live.Now())); err != nil {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return trafficStream{s, func() { h.Tails.Watchers.Leave(reader) }}, nil
}

func (h *Handlers) TailRequests(ctx context.Context, _ *gen.Call, r gen.TailRequestsRequestObject) (gen.TailRequestsResponseObject, error) {
	p := r.Params
	filter := pulse.Filter{
		Account: convert.Text(p.AccountID),
		Project: convert.Text(p.ProjectID),
		Key:     convert.Text(p.KeyID),
		Model:   convert.Text(p.Model),
		Route:   convert.Text(p.Route),
		Code:    convert.Text(p.Code),
		Class:   convert.Value(p.StatusClass),
	}
	var invalid validation.Errors
	convert.ReadOwner(&invalid, p.AccountID, p.KeyID)
	if filter.Project != pulse.NoProject {
		convert.ReadProject(&invalid, p.ProjectID)
	}
	if p.StatusClass != nil && (filter.Class < 2 || filter.Class > 5) {
		invalid.Add("status_class", "must be 2, 4 or 5")
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}

	tail, err := h.Tails.Open(admin.PrincipalOf(ctx).Name, filter)
	if err != nil {
		return nil, err
	}

	s := h.newStream(ctx, p.Accept)
	s.run = func(ctx context.Context, send func(string, any) error) error { return h.follow(ctx, tail, send) }
	return tailStream{s, tail}, nil
}

// follow sends the events of a tail.
func (h *Handlers) follow(ctx context.Context, tail *traffic.Tail, send func(string, any) error) error {
	event := func(e gen.TailEvent) error { return send(string(e.Type), e) }
	ticker := time.NewTicker(coverageEvery)
	defer ticker.Stop()
	if err := event(h.coverage()); err != nil {
		return err
	}

	for {
		select {
		case <-tail.Ready():
		case <-ticker.C:
			if err := event(h.coverage()); err != nil {
				return err
			}
		case <-ctx.Done():
			return event(gen.TailEvent{Type: gen.TailEventTypeEnd})
		}

		lines, dropped := tail.Take()
		for i := range lines {
			line := lineView(&lines[i])
			if err := event(gen.TailEvent{Type: gen.TailEventTypeRequest, Request: &line}); err != nil {
				return err
			}
		}

		if dropped > 0 {
			if err := event(gen.TailEvent{Type: gen.TailEventTypeDropped, Dropped: &dropped}); err != nil {
				return err
			}
		}
	}
}

func (h *Handlers) coverage() gen.TailEvent {
	c := h.Live.Coverage()
	e := gen.TailEvent{Type: gen.TailEventTypeCoverage, Heard: &c.Heard, Silent: &c.Silent}
	if c.Silent > 0 {
		e.Unheard = convert.All(slices.DeleteFunc(c.Proxies, func(p traffic.Proxy) bool { return !p.Silent }), proxyView)
	}
	return e
}

func lineView(l *traffic.Line) gen.RequestLine {
	view := gen.RequestLine{
		At:         time.UnixMilli(l.EndedMS).UTC(),
		Proxy:      l.Proxy,
		RequestID:  l.RequestID,
		Method:     l.Method,
		Endpoint:   convert.Optional(l.Endpoint),
		Status:     l.Status,
		Outcome:    l.Outcome,
		Code:       convert.Optional(l.Code),
		AccountID:  convert.Optional(l.Account),
		ProjectID:  convert.Optional(l.Project),
		KeyID:      convert.Optional(l.Key),
		Model:      convert.Optional(l.Model),
		Stream:     l.Stream,
		End:        convert.Optional(l.End),
		ProviderID: convert.Optional(l.Provider),
		RouteID:    convert.Optional(l.Route),
		Attempts:   l.Attempts,
		DurationUs: l.DurationUS,
		Short:      shortView(l.Short),
	}
	if l.Attempts > 0 {
		view.UpstreamUs, view.FirstByteUs = &l.UpstreamUS, &l.FirstByteUS
	}
	if l.Charged {
		view.InputTokens, view.OutputTokens, view.Cost = &l.InputTokens, &l.OutputTokens, convert.Optional(money.Nano(l.CostNano).String())
	}

	return view
}

func shortView(s *pulse.Short) *gen.Short {
	if s == nil {
		return nil
	}

	amount := func(n int64) string {
		if s.Pool.Money() {
			return money.Nano(n).String()
		}
		return strconv.FormatInt(n, 10)
	}

	view := &gen.Short{
		Pool:      gen.ShortPool(s.Pool),
		Reason:    s.Reason,
		Wanted:    amount(s.Wanted),
		Available: amount(s.Free),
		Reserved:  amount(s.Reserved),
		LimitID:   convert.Optional(s.LimitID),
	}
	if s.Scope != "" {
		view.LimitScope = new(gen.LimitScope(s.Scope))
	}
	if s.ResetsMS != 0 {
		view.LimitResetsAt = new(time.UnixMilli(s.ResetsMS).UTC())
	}

	return view
}
