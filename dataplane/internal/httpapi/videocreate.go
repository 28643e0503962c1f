package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/httpapi/failover"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// maxVideoObject bounds a provider's answer about a video job, in bytes.
const maxVideoObject = 1 << 20

// createVideo creates a video job. A video job has no slot and no reservation: it is enough that the account's balance
// and the key limit have units left at the time of the request.
func (s *Server) createVideo(c echo.Context) error {
	x := exchangeOf(c)
	defer x.turn.End()
	received, err := s.receive(x, c.Request(), videos.Dialect{})
	if err != nil {
		return err
	}
	defer received.body.Done()
	object := jsonspan.Acquire()
	defer object.Release()
	parsed, err := received.parseVideo(object)
	if err != nil {
		return err
	}
	defer parsed.request.Release()
	priced, err := parsed.price()
	x.turn.End() // what follows waits for others
	if err != nil {
		return err
	}
	if err := priced.admitVideo(); err != nil {
		return err
	}

	routable, err := priced.routable()
	if err != nil {
		return err
	}

	job, err := (&videoCreation{routableRequest: routable}).run()
	if err != nil {
		return err
	}

	x.writeJSON(http.StatusAccepted, videojob.Object(job))
	return nil
}

// parseVideo reads a body that is JSON or, as official clients send it, a form.
func (r *receivedRequest) parseVideo(object *jsonspan.Object) (parsedRequest, error) {
	contentType := r.incoming.Header.Get("Content-Type")
	if !videos.IsForm(contentType) {
		return r.parse(object)
	}
	request, refused := videos.ReadForm(contentType, r.body.Bytes())
	if refused != nil {
		return parsedRequest{}, refused
	}
	return parsedRequest{*r, request}, nil
}

// admitVideo checks that the account's balance and the key limit have units left. It reserves nothing.
func (p *pricedRequest) admitVideo() error {
	reservation, err := p.admit()
	if err != nil {
		return err
	}
	reservation.Release()
	return nil
}

// videoCreation is an admitted request for a video that calls its routes. It continues without its client: the job is
// recorded, and a provider may already work on it.
type videoCreation struct {
	routableRequest
	job *event.Video
	// unknown is true if a provider may have accepted the job although no call has succeeded.
	unknown bool
}

// run records the job and calls routes until a provider accepts it. It attempts another route only while it is certain
// that no provider has accepted the job. With an error, the job has ended and is never charged.
func (v *videoCreation) run() (*event.Video, error) {
	ctx := v.detached()
	var err error
	if v.job, err = v.server.Videos.Create(ctx, v.newJob(v.choices[0])); err != nil {
		return nil, err
	}

	failures, err := v.server.tries.Try(v.tryRequest(), v)
	switch {
	case failures == nil && err == nil:
		return v.job, nil
	case failures != nil:
		if err = v.noRoute(); failures.Last != nil {
			err = failures.ForClient()
		}
	}

	reason := ""
	if v.unknown {
		reason = "it is not known whether the provider accepted the job"
	}

	v.server.Videos.Reject(ctx, v.job, reason)
	return nil, err
}

func (v *videoCreation) newJob(choice route.Choice) *event.Video {
	return &event.Video{
		V:             event.Version,
		ID:            ident.Video.New(),
		RequestID:     v.x.id,
		AccountID:     v.key.AccountID,
		KeyID:         v.key.KeyID,
		Model:         v.model.ID,
		Provider:      choice.Provider.ID,
		Route:         choice.ID,
		Credential:    choice.Credential.ID,
		UpstreamModel: choice.UpstreamModel,
		Status:        event.VideoQueued,
		Size:          v.request.Size,
		Seconds:       v.quote.Usage.Seconds,
		ExpectedCost:  v.quote.Cost,
		CreatedUnix:   v.x.started.Unix(),
		PriceVersion:  v.sheet.Version,
		Sheet:         v.sheet,
	}
}

func (v *videoCreation) Context() context.Context { return v.detached() }

// Ready implements failover.Caller. Nothing holds a reservation of the key, so a revocation does not end the creation by itself.
func (v *videoCreation) Ready() error { return v.server.Admission.Check(v.detached(), v.key) }

// Call implements failover.Caller: it moves the job to the route, calls the provider and records its answer.
func (v *videoCreation) Call(choice route.Choice, _ *route.Attempt, _ bool) error {
	v.x.attempts++
	v.x.provider, v.x.route = choice.Provider.ID, choice.ID
	ctx := v.detached()
	if choice.ID != v.job.Route {
		moved, err := v.server.Videos.SetRoute(ctx, v.job, choice)
		if err != nil {
			return err
		}
		v.job = moved
	}

	span := v.x.trace.Attempt(catalogkv.Videos, choice.Provider.ID, choice.ID, choice.UpstreamModel)
	created, err := v.submit(ctx, choice)
	span.End(failover.ReasonOf(err), nil)

	if v.isLost(err) && choice.Provider.RecognisesRepeats && v.Ready() == nil {
		v.server.Log.LogAttrs(
			ctx,
			slog.LevelInfo,
			"repeating the creation of a video job whose answer was lost",
			slog.String("request_id", v.x.id),
			slog.String("video_id", v.job.ID),
			slog.String("provider", choice.Provider.ID),
			slog.Any("error", err),
		)
		created, err = v.submit(ctx, choice)
		v.isLost(err)
	}

	if err != nil {
		if failure := failover.FailureOf(err); failure != nil && v.unknown {
			failure.Failover = false // a second provider must not make the same video
		}
		return err
	}

	v.job = created
	return nil
}

// Skipped implements failover.Caller. The event that charges a video is made when the video is ready, by any proxy, and has no attempts.
func (v *videoCreation) Skipped(route.Choice, string) {}

// isLost reports whether the answer of a provider was lost, so that it may have accepted the job, and notes it: no later
// failure means that the provider does not have the job.
func (v *videoCreation) isLost(err error) bool {
	failure := failover.FailureOf(err)
	lost := failure != nil && !failure.Answered && !failure.Unsent
	v.unknown = v.unknown || lost
	return lost
}

// submit sends the job to one provider and records its answer.
func (v *videoCreation) submit(ctx context.Context, choice route.Choice) (*event.Video, error) {
	body := v.upstreamBody(choice, 0)
	defer body.Release()

	target := choice.Target(catalogkv.Videos, false)
	call := provider.Call{
		Choice:         choice,
		Format:         catalogkv.Videos,
		Path:           target.Path,
		Query:          target.Query,
		Body:           body,
		ContentType:    v.request.ContentType(),
		IdempotencyKey: v.job.ID,
	}

	sent := time.Now()
	answer, err := v.server.Providers.Do(ctx, &call)
	waited := time.Since(sent)
	v.x.upstream += waited
	v.server.Metrics.RecordUpstream(choice.Provider.ID, waited)
	if err != nil {
		return nil, err
	}
	if answer.Status < 200 || answer.Status > 299 {
		return nil, provider.StatusFailure(&call, answer, v.cleaner(choice))
	}
	defer func() { _ = answer.Body.Close() }()
	object, err := io.ReadAll(io.LimitReader(answer.Body, maxVideoObject))
	if err != nil {
		return nil, lostJob(&call, err)
	}

	created, err := v.server.Videos.SaveCreated(ctx, v.job, object)
	if errors.Is(err, videojob.ErrNoObject) {
		return nil, v.notAnObject(&call, answer, object, err)
	}

	v.server.Metrics.RecordAttempt(choice.Provider.ID, choice.ID, "ok")
	return created, err
}

// notAnObject returns the failure of a successful answer that is no video object. If it reports an error of a known kind,
// the provider has refused the job; otherwise it may have accepted it.
func (v *videoCreation) notAnObject(call *provider.Call, answer *provider.Answer, body []byte, err error) *provider.Failure {
	reported := provider.ReportedFailure(call.Format, answer.Status, answer.Header, body, true, v.cleaner(call.Choice))
	if reported.Class == classify.Unavailable.String() {
		return lostJob(call, err)
	}
	return reported
}

// lostJob returns the failure of a provider that has accepted a job but not reported its id.
func lostJob(call *provider.Call, err error) *provider.Failure {
	f := provider.TruncatedFailure(call, err)
	f.Answered = false
	return f
}
