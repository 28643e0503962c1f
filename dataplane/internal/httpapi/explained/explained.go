// Package explained has the parts of an explanation that need no server: the body of the explained request, the decision
// about its units, and the description of its routes.
package explained

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/failover"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/limit"
	"modelgateway/shared/wire"
)

// maxInput bounds the prompt of an explained request, in tokens.
const maxInput = 1_000_000

// Read writes the body of a request and reads it into object, like that of a client. The error is that of the parser, or
// an *apierr.Error.
func Read(d format.Dialect, q *wire.ExplainRequest, object *jsonspan.Object) (*format.Request, error) {
	short, err := estimate(d, q)
	if err != nil {
		return nil, err
	}
	missing := max(min(q.InputTokens, maxInput)-short, 0)
	return read(d, q, strings.Repeat("x", int(missing)*4), object)
}

// estimate returns the estimated tokens of the shortest prompt.
func estimate(d format.Dialect, q *wire.ExplainRequest) (int64, error) {
	object := jsonspan.Acquire()
	defer object.Release()
	request, err := read(d, q, "", object)
	if err != nil {
		return 0, err
	}
	defer request.Release()
	return request.EstimateInput(0), nil
}

func read(d format.Dialect, q *wire.ExplainRequest, prompt string, object *jsonspan.Object) (*format.Request, error) {
	values := members(d.Format(), q, prompt+"x") // some formats refuse an empty prompt
	if len(q.Parameters) > 0 {
		var further map[string]json.RawMessage
		if err := json.Unmarshal(q.Parameters, &further); err != nil {
			return nil, fmt.Errorf("read further parameters: %w", err)
		}
		for name, value := range further {
			values[name] = value
		}
	}

	body, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encode the body: %w", err)
	}
	if err := object.Parse(body); err != nil {
		return nil, err
	}

	request, refused := d.Read(object)
	if refused != nil {
		return nil, refused
	}

	return request, nil
}

// members returns the members of the body.
func members(f catalogkv.Format, q *wire.ExplainRequest, prompt string) map[string]any {
	values, limit := map[string]any{"model": q.Model}, "max_tokens"
	switch f {
	case catalogkv.Responses:
		values["input"], limit = prompt, "max_output_tokens"
	case catalogkv.Images, catalogkv.Videos:
		values["prompt"] = prompt
	case catalogkv.Messages:
		values[limit] = 1024 // clients must state it
		fallthrough
	case catalogkv.Chat:
		values["messages"] = []map[string]string{{"role": "user", "content": prompt}}
	}

	given := map[string]any{limit: q.MaxTokens, "n": q.N, "stream": q.Stream}
	maps.DeleteFunc(given, func(_ string, v any) bool { return v == int64(0) || v == false })
	maps.Copy(values, given)
	return values
}

// AppendWindows appends the needs of the current windows of the limits that apply to a model. The control plane has named the windows.
func AppendWindows(needs []wire.Need, q *wire.ExplainRequest, model string, cost int64) []wire.Need {
	for i := range q.Pools {
		s := &q.Pools[i]
		if l := limitOf(q, s); l != nil && l.AppliesTo(model) {
			needs = append(needs, wire.Need{Pool: s.Pool, Kind: wire.Limit, Amount: max(cost, 1)})
		}
	}
	return needs
}

// limitOf returns the limit whose window a pool is, nil for other pools.
func limitOf(q *wire.ExplainRequest, s *wire.PoolState) *limit.Limit {
	i := slices.IndexFunc(q.Record.Limits, func(l limit.Limit) bool { return l.ID == s.Limit })
	if i < 0 {
		return nil
	}
	return &q.Record.Limits[i]
}

// Judge decides about the units that a request needs, as the control plane does, from what the pools have. The error is
// an *admission.RefusedError.
func Judge(q *wire.ExplainRequest, needs []wire.Need) error {
	pools := allocator.New()
	for _, s := range q.Pools {
		pools.Pools[s.Pool] = &allocator.Pool{
			ID:        s.Pool,
			Kind:      s.Kind,
			Unlimited: s.Unlimited,
			Total:     s.Total,
			Free:      s.Free,
			Settled:   s.Settled,
		}
	}

	decision := pools.Judge(needs)
	if decision.Granted {
		return nil
	}

	refused := &admission.RefusedError{Decision: decision}
	for _, n := range needs {
		if n.Pool == decision.Pool {
			refused.Wanted = n.Amount
		}
	}
	for i := range q.Pools {
		if s := &q.Pools[i]; s.Pool == decision.Pool {
			refused.Limit = limitOf(q, s)
			if s.EndMS != 0 {
				refused.ResetsAt = time.UnixMilli(s.EndMS)
			}
		}
	}

	return refused
}

// NoVideo returns why no further video job is created that is expected to cost an amount, which is decided after a route was chosen:
// nil, or a *videojob.RefusedError.
func NoVideo(q *wire.ExplainRequest, cost int64) error {
	refusal := q.Video
	if cost == 0 {
		refusal = q.FreeVideo
	}
	if refusal == nil {
		return nil
	}
	return &videojob.RefusedError{VideoRefusal: *refusal}
}

// Routes describes the routes of a model.
type Routes struct {
	Picker   *route.Picker
	Snapshot *catalog.Snapshot
	Model    *catalog.Model
	Format   catalogkv.Format
	// Stream reports whether the request is for a stream.
	Stream bool
	// Candidates are the routes that accept the parameters, Choices those of them to call, best first.
	Candidates []*catalog.Route
	Choices    []route.Choice
}

// All returns the routes that support the format: first those to try, in their order.
func (r *Routes) All() (all []wire.ExplainRoute) {
	for i := range r.Choices {
		c := &r.Choices[i]
		if slices.ContainsFunc(all, func(shown wire.ExplainRoute) bool { return shown.Route == c.ID }) {
			continue // with another credential, if the first one is refused
		}
		view := describe(&c.Route.Route)
		view.URL = r.urlOf(c.Route)
		switch {
		case len(all) >= failover.MaxAttempts:
			view.Skipped = wire.SkippedBeyondAttempts
		case i > 0 && c.Cooling():
			view.Skipped = event.SkippedCooldown
		default:
			view.Credential = c.Credential.ID
		}
		all = append(all, view)
	}

	for i := range r.Model.Model.Routes {
		entry := &r.Model.Model.Routes[i]
		if !slices.Contains(entry.Formats, r.Format) ||
			slices.ContainsFunc(r.Choices, func(c route.Choice) bool { return c.ID == entry.ID }) {
			continue
		}
		view := describe(entry)
		view.Skipped = r.whySkipped(entry)
		if known := r.Snapshot.Route(entry.ID); known != nil {
			view.URL = r.urlOf(known)
		}
		all = append(all, view)
	}

	return all
}

// urlOf returns the address that a call of a route goes to.
func (r *Routes) urlOf(of *catalog.Route) string {
	return of.Provider.URL(of.Target(r.Format, r.Stream))
}

func (r *Routes) whySkipped(entry *catalogkv.Route) string {
	callable := r.Model.Routes[r.Format]
	if i := slices.IndexFunc(callable, func(c *catalog.Route) bool { return c.ID == entry.ID }); i >= 0 {
		if slices.Contains(r.Candidates, callable[i]) {
			return r.Picker.WhySkipped(callable[i])
		}
		return wire.SkippedParameters
	}
	switch provider := r.Snapshot.Provider(entry.Provider); {
	case !entry.Enabled:
		return wire.SkippedDisabled
	case provider == nil || !provider.Enabled:
		return wire.SkippedProviderDisabled
	default:
		return event.SkippedNoCredential
	}
}

func describe(r *catalogkv.Route) wire.ExplainRoute {
	return wire.ExplainRoute{
		Route:         r.ID,
		Provider:      r.Provider,
		UpstreamModel: r.UpstreamModel,
		Priority:      r.Priority,
		Weight:        max(r.Weight, 1),
	}
}
