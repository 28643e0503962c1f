package httpapi

import (
	"errors"
	"time"

	"modelgateway/dataplane/internal/affinity"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/httpapi/explained"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/upload"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/wire"
)

// Explain returns how a request would be answered now. It makes the checks of a request with the code that makes them for
// real ones, on a body that it writes itself; it reserves nothing, calls no provider and records nothing.
func (s *Server) Explain(q *wire.ExplainRequest) wire.ExplainResponse {
	e := explanation{
		server: s,
		query:  q,
		key:    &auth.Key{KeyRecord: q.Record},
		answer: wire.ExplainResponse{V: wire.Version},
	}
	e.x = &exchange{server: s, started: time.Now()}
	e.run()
	return e.answer
}

// explanation is the course of an explained request.
type explanation struct {
	server *Server
	query  *wire.ExplainRequest
	x      *exchange
	key    *auth.Key
	answer wire.ExplainResponse
}

// refuse notes the answer of a step if the step refuses the request.
func (e *explanation) refuse(step wire.ExplainStep, err error) {
	if err == nil {
		return
	}

	public := publicError(err)
	e.answer.Refusals = append(e.answer.Refusals, wire.ExplainRefusal{
		Step:       step,
		Status:     public.Status,
		Code:       string(public.Code),
		Message:    public.Message,
		Param:      public.Param,
		RetryAfter: int64(public.RetryAfterSeconds()),
		Reason:     wire.RefusalReason(refused.Why(err)),
	})
}

// run makes the steps in the order of those of a request. It continues after a refusal as long as the next step has a meaning.
func (e *explanation) run() {
	e.refuse(wire.ExplainKey, e.key.Usable())

	snapshot, dialect := e.server.Catalog.Snapshot(), e.server.dialect(catalogkv.Format(e.query.Format))
	if snapshot == nil || dialect == nil {
		e.refuse(wire.ExplainBody, errStarting) // no catalog yet, or a format that a later release of the control plane has added
		return
	}

	e.answer.CatalogRevision = snapshot.Rev
	e.refuse(wire.ExplainSystemMaintenance, refused.Maintenance(snapshot.Settings.Maintenance, e.x.started))
	object := jsonspan.Acquire()
	defer object.Release()
	request, err := explained.Read(dialect, e.query, object)
	if err != nil {
		if _, public := errors.AsType[*apierr.Error](err); !public {
			err = upload.NotJSON(err)
		}
		e.refuse(wire.ExplainBody, err)
		return
	}
	defer request.Release()

	received := receivedRequest{
		server:         e.server,
		x:              e.x,
		key:            e.key,
		dialect:        dialect,
		initialCatalog: snapshot,
	}
	p := pricedRequest{parsedRequest: parsedRequest{received, request}, pricedCatalog: snapshot}
	if p.model, err = e.server.findModel(e.x, e.key, snapshot, request.Model, dialect.Format()); err != nil {
		e.refuse(wire.ExplainModel, err)
		return
	}

	e.refuse(wire.ExplainModelMaintenance, refused.Maintenance(p.model.Maintenance, e.x.started))
	e.decide(&p)
}

// decide makes the steps that need the model.
func (e *explanation) decide(p *pricedRequest) {
	routes := explained.Routes{
		Picker:   e.server.Picker,
		Snapshot: p.pricedCatalog,
		Model:    p.model,
		Format:   p.dialect.Format(),
		Stream:   p.request.Stream,
	}
	if err := p.quoted(); err != nil {
		e.refuse(wire.ExplainParameters, err)
	} else {
		e.answer.PriceVersion, e.answer.PriceMultiplier = p.sheet.Version, int64(p.sheet.Multiplier)
		e.admit(p)
		a := routableRequest{pricedRequest: *p, routableCatalog: p.pricedCatalog, routes: p.candidates}
		a.choices = e.server.Picker.Order(a.routes, affinity.Key(e.key.AccountID, "", a.request))
		if len(a.choices) == 0 {
			e.refuse(wire.ExplainRoutes, a.noRoute())
		}
		routes.Candidates, routes.Choices = a.routes, a.choices
		e.refuse(wire.ExplainAdmission, explained.NoVideo(e.query, e.answer.Reservation))
	}

	e.answer.Routes = routes.All()
}

// admit decides about the units that the request needs.
func (e *explanation) admit(p *pricedRequest) {
	q := p.admission()
	e.answer.InputTokens, e.answer.Reservation, e.answer.Needs = p.quote.Input, int64(q.ExpectedCost),
		explained.AppendWindows(q.AppendNeeds(nil), e.query, p.model.ID, int64(q.ExpectedCost))
	err := e.server.Admission.Ready()
	if err == nil {
		err = explained.Judge(e.query, e.answer.Needs)
	}
	e.refuse(wire.ExplainAdmission, err)
}

// dialect returns the dialect of a format, nil if there is none.
func (s *Server) dialect(f catalogkv.Format) format.Dialect {
	if f == catalogkv.Videos {
		return videos.Dialect{}
	}
	for _, d := range s.Dialects {
		if d.Format() == f {
			return d
		}
	}
	return nil
}
