package httpapi

import (
	"net/http"
	"time"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/pace"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/room"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/event"
)

// relay passes a provider's successful answer on to the client.
type relay struct {
	*generationRequest
	call    *provider.Call
	answer  *provider.Answer
	attempt *route.Attempt
	// reader reads the answer's usage and rewrites the answer for the client.
	reader format.Answer
	// first is the limit of a stream for the beginning of its output, nil for none.
	first *pace.FirstToken
	// held is the room of an answer in one piece.
	held room.Answer
}

// maxAnswer bounds a non-streaming answer in bytes. Such an answer can contain images.
const maxAnswer = 256 << 20

// run relays the answer, as a stream or not.
func (r *relay) run() error {
	if !r.request.Stream {
		return r.relayJSON()
	}
	switch isStream, err := r.answer.IsStream(); {
	case err != nil && r.leave.Gone():
		return r.relayStream() // the client has left before it was known, and pays for what has begun
	case err != nil:
		return provider.TruncatedFailure(r.call, err)
	case isStream:
		return r.relayStream()
	}
	return r.relayJSON()
}

// relayJSON relays an answer in one piece. It records the outcome before it writes the answer.
func (r *relay) relayJSON() error {
	r.held = r.server.Answers.Begin(r.key.AccountID, r)
	defer r.held.Release()
	reading := time.Now()
	b, err := buffer.ReadAll(r.answer.Body, r.answer.Length, maxAnswer, &r.held)
	r.x.upstream += time.Since(reading)
	switch {
	case refused.IsBusy(err):
		return r.lost(err)
	case err != nil:
		return provider.TruncatedFailure(r.call, err)
	}
	defer r.held.Put(b)
	body := *b
	rewritten, err := r.held.Rewritten(len(body), outgoingSize(len(body)))
	if err != nil {
		return r.lost(err)
	}
	defer r.held.Put(rewritten)
	out, ok := r.reader.JSON((*rewritten)[:0], body)
	if len(out) > 0 && &out[0] != &body[0] {
		*rewritten = out // JSON may have reallocated it
	}

	switch {
	case !ok:
		return r.reportedFailure()
	case r.request.Stream:
		return provider.NoStreamFailure(r.call) // a client that waits for events cannot read it
	}

	if reported, ok := r.reader.Usage(); ok {
		r.noteReport(&reported)
	}
	usage, doubt := r.usage(true)
	r.finish(outcome{
		status:     event.Completed,
		rule:       ruleOf(doubt),
		doubt:      doubt,
		usage:      usage,
		providerID: r.reader.ProviderID(),
		answered:   http.StatusOK,
	})

	before, cost, after := r.toldCharge().JSON(out)
	r.x.writeJSON(http.StatusOK, before, cost, after)
	return nil
}

// Yield implements room.Owner. It gives up the request body: the answer is worth more than another attempt.
func (r *relay) Yield() { r.body.Done() }

// lost returns the error for an answer that had no room. The provider has been paid for it, and the account may be the
// reason, so the account is charged what it was expected to cost.
func (r *relay) lost(err error) error {
	r.finish(outcome{
		status:   event.Failed,
		rule:     event.RuleEstimated,
		doubt:    usagereport.Interrupted,
		usage:    r.quote.Usage,
		answered: errBusy.Status,
	})
	return errBusy.WithCause(err)
}

// reportedFailure classifies the error that the provider sent inside a successful answer.
func (r *relay) reportedFailure() *provider.Failure {
	return provider.ReportedFailure(r.call.Format, r.answer.Status, r.answer.Header, r.reader.Failure(), true, r.cleaner(r.call.Choice))
}
