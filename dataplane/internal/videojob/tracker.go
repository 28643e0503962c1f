// Package videojob follows video jobs after their request: it polls the provider,
// charges a completed job, and abandons a job that cannot complete any more.
//
// A job is charged before its record says that it is completed, under the request
// id of its creation. A proxy may die between the two, and several proxies may see
// the end of a job at once; settlement books the charge once all the same, because
// the request id is unique. What a failed job may have cost the operator is reported
// after its record says that it has failed, from that record alone (ReportLoss).
package videojob

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

var (
	// ErrNotFound means that the job does not exist or belongs to another account.
	ErrNotFound = errors.New("videojob: job not found")
	// ErrNoObject means that a provider's answer is not a video object.
	ErrNoObject = errors.New("videojob: the provider's answer is not a video object")
	// ErrUnavailable means that the job's record cannot be read or written now, or that the job cannot be charged now.
	ErrUnavailable = errors.New("videojob: control plane, catalog or spool is not available")
)

// Store has the records of video jobs. The control plane keeps them.
type Store interface {
	CreateVideo(ctx context.Context, v *event.Video) (*event.VideoResponse, error)
	GetVideo(ctx context.Context, q *event.VideoGetRequest) (*event.VideoResponse, error)
	UpdateVideo(ctx context.Context, v *event.Video) (*event.VideoResponse, error)
	// BackUpVideo stores a state on the bus, without the control plane. When it returns nil, the state is safe there. The
	// control plane records it when the job is read next, if the record has no id of the provider.
	BackUpVideo(ctx context.Context, v *event.Video) error
}

// Providers calls providers. An error of Do is a *provider.Failure.
type Providers interface {
	Do(ctx context.Context, call *provider.Call) (*provider.Answer, error)
}

// Charger stores the usage events of jobs that have ended: charges, and losses of the operator. When Charge returns nil, the event is
// in the spool.
type Charger interface {
	Charge(e event.Usage, doubt usagereport.Reason) error
	// CountUnknownState counts an answer about a job with a state of unknown meaning: the job is polled on, and ends uncharged
	// if the state was final.
	CountUnknownState(provider string)
}

const (
	// creationTimeout is how long a job may be without an id of the provider. A creation that was not confirmed in that
	// time never will be.
	creationTimeout = 15 * time.Minute
	// visibleAfter is how long after its creation a job may still be unknown to a provider whose reads lag behind its writes.
	visibleAfter = 2 * time.Minute
	// maxJobAge is how long a job may take.
	maxJobAge = 24 * time.Hour
	// maxObjectBytes bounds the video object of a provider.
	maxObjectBytes = 1 << 20
	// pollTimeout bounds one poll.
	pollTimeout = 30 * time.Second
)

// Tracker creates, polls and ends video jobs. It is safe for concurrent use. It must
// be stopped.
type Tracker struct {
	store     Store
	providers Providers
	charger   Charger
	catalog   *catalog.Store
	dialect   format.Dialect
	log       *slog.Logger
	now       func() time.Time
	looks     looks
	lines     lines

	// The outcomes of creations that are being stored in the background; storing has an element for each.
	ctx     context.Context //nolint:containedctx // it ends with the Tracker
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	storing chan struct{}
}

// New returns a Tracker. A nil now is time.Now.
func New(
	store Store,
	providers Providers,
	charger Charger,
	catalogStore *catalog.Store,
	dialect format.Dialect,
	log *slog.Logger,
	now func() time.Time,
) *Tracker {
	if now == nil {
		now = time.Now
	}

	t := &Tracker{
		store:     store,
		providers: providers,
		charger:   charger,
		catalog:   catalogStore,
		dialect:   dialect,
		log:       log,
		now:       now,
		storing:   make(chan struct{}, maxStoring),
		looks:     looks{at: map[string]time.Time{}},
		lines:     lines{accounts: map[string]*line{}},
	}
	t.ctx, t.stop = context.WithCancel(context.Background())

	return t
}

// Stop ends the attempts to store outcomes of creations and waits for them. An
// outcome that is not stored is lost: its job ends without a charge.
func (t *Tracker) Stop() {
	t.stop()
	t.tasks.Wait()
}

// Find returns a job of an account. An empty account finds the job of any account.
func (t *Tracker) Find(ctx context.Context, id, account string) (*event.Video, error) {
	return unpack(t.store.GetVideo(ctx, &event.VideoGetRequest{V: event.Version, ID: id, AccountID: account}))
}

// errConflict means that another proxy has changed the record. The current record is
// returned with it.
var errConflict = errors.New("videojob: the record was changed by another proxy")

// unpack returns the job of a reply of the control plane.
func unpack(reply *event.VideoResponse, err error) (*event.Video, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case reply.Status == event.VideoNotFound:
		return nil, ErrNotFound
	case reply.Status == event.VideoRefused && reply.Refusal != nil:
		return nil, &RefusedError{*reply.Refusal}
	case reply.Status == event.VideoConflict && reply.Video != nil:
		return reply.Video, errConflict
	case reply.Status != event.VideoDone || reply.Video == nil:
		return nil, ErrUnavailable
	}
	return reply.Video, nil
}

// save writes a changed job. If another proxy has changed the record since it was
// read, it returns that record and writes nothing.
func (t *Tracker) save(ctx context.Context, v *event.Video) (*event.Video, error) {
	saved, err := unpack(t.store.UpdateVideo(ctx, v))
	if errors.Is(err, errConflict) {
		return saved, nil
	}
	return saved, err
}

// Refresh polls the provider of a job, records the new state, and charges the job
// if it is completed. It returns a job that has ended as it is. It always returns a
// job: with an error, the last known state.
func (t *Tracker) Refresh(ctx context.Context, v *event.Video) (*event.Video, error) {
	if v.Ended() {
		return v, nil
	}

	age := t.now().Sub(time.Unix(v.CreatedUnix, 0))
	if v.UpstreamID == "" {
		if age > creationTimeout {
			return t.abandon(ctx, v, "it is not known whether the provider accepted the job")
		}
		return v, nil // the creation is under way
	}

	// A job that is too old is polled once more: it may have completed while no proxy polled it.
	next, err := t.poll(ctx, v)
	if age > maxJobAge && !next.Ended() && !errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		return t.abandon(ctx, next, "the provider did not finish the job in time")
	}

	return next, err
}

// RefreshForClient is Refresh for a client that asks for the state: if this proxy
// has asked the provider within the last second, or is asking it now, the job is
// returned as it is recorded. All clients share the provider's rate limits.
func (t *Tracker) RefreshForClient(ctx context.Context, v *event.Video) (*event.Video, error) {
	if !v.Ended() && !t.looks.begin(v.ID, t.now()) {
		return v, nil
	}
	return t.Refresh(ctx, v)
}

// poll polls the provider once.
func (t *Tracker) poll(ctx context.Context, v *event.Video) (*event.Video, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	body, err := t.fetchObject(ctx, v)
	if err != nil {
		var failure *provider.Failure
		if errors.As(err, &failure) && failure.Gone && t.now().Sub(time.Unix(v.CreatedUnix, 0)) >= visibleAfter {
			return t.abandon(ctx, v, "the provider does not know the job any more")
		}
		return v, err
	}
	next, err := t.applyObject(ctx, v, body)
	return cmp.Or(next, v), err
}

// applyObject records the state that a provider's object of the job has, and charges
// the job if it is completed.
func (t *Tracker) applyObject(ctx context.Context, v *event.Video, body []byte) (*event.Video, error) {
	next, usage, err := t.readObject(v, body)
	if err != nil {
		return v, err
	}
	if next.Status == v.Status && sameJSON(next.Object, v.Object) {
		return v, nil
	}
	if next.Status == event.VideoCompleted {
		if err := t.charge(next, usage); err != nil {
			return v, err
		}
	}
	return t.save(ctx, next)
}

// readObject returns the state that a provider's object of the job has, with the
// usage that the object reports.
func (t *Tracker) readObject(v *event.Video, body []byte) (*event.Video, price.Usage, error) {
	answer := t.dialect.NewAnswer(format.AnswerConfig{ClientModel: v.Model, ID: v.ID})
	defer answer.Release()
	object, ok := answer.JSON(nil, body)
	if !ok {
		return nil, price.Usage{}, ErrNoObject
	}

	state, ok := videos.ReadJob(body)
	if !ok {
		return nil, price.Usage{}, ErrNoObject
	}

	if state.UnknownStatus {
		t.charger.CountUnknownState(v.Provider)
	}

	next := *v
	next.Object, next.Status = t.clientObject(v, state, object), string(state.Status)
	next.MadeSeconds = state.Made
	if next.UpstreamID == "" {
		next.UpstreamID = state.ID
	}

	usage, _ := answer.Usage()
	return &next, usage, nil
}

// sameJSON reports whether two objects are equal but for white space and the order
// of members: Postgres changes both.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// clientObject returns a copy of an object whose error does not identify the
// provider.
func (t *Tracker) clientObject(v *event.Video, state videos.Job, object []byte) []byte {
	object = append([]byte(nil), object...)
	if state.ErrorCode == "" && state.ErrorMessage == "" {
		return object
	}

	cleaner := classify.Cleaner{UpstreamModels: []string{v.UpstreamModel}, ClientModel: v.Model}
	if snapshot := t.catalog.Snapshot(); snapshot != nil {
		if p := snapshot.Provider(v.Provider); p != nil {
			cleaner.Hidden = []string{p.Name, p.BaseURL}
		}
	}

	parsed := jsonspan.Acquire()
	defer parsed.Release()
	if parsed.Parse(object) != nil {
		return failedObject(v)
	}

	reason := objectError{Code: cleaner.Clean(state.ErrorCode), Message: cleaner.Clean(state.ErrorMessage)}
	if concernsAccount(reason) {
		return failedObject(v)
	}
	failure, err := json.Marshal(reason)
	if err != nil {
		return failedObject(v)
	}

	var edit jsonspan.Edit
	edit.Begin(parsed)
	edit.Set("error", failure)
	return edit.Append(nil)
}

// concernsAccount reports whether a job has failed because the provider refuses the gateway's account, of which a client must not
// read.
func concernsAccount(reason objectError) bool {
	body, err := json.Marshal(map[string]objectError{"error": reason})
	if err != nil {
		return true
	}
	verdict := classify.Classify(classify.Answer{Format: string(catalogkv.Videos), Status: http.StatusBadRequest, Body: body})
	return verdict.Class == classify.GatewayRefused
}

// charge charges a completed job under the request id of its creation. If the
// provider reports no length that can be true, or no size, that of the request is charged. Usage without a
// price is reported with the expected cost.
func (t *Tracker) charge(v *event.Video, usage price.Usage) error {
	rule, reported := event.RuleReported, usage.Seconds
	var doubt usagereport.Reason
	if usage.Seconds, doubt = usagereport.JudgeVideo(reported, v.Seconds); doubt.Estimated() {
		rule = event.RuleEstimated
		t.log.Error(
			"the provider reports no credible length of a completed video: the requested or default length is charged",
			slog.String("video_id", v.ID),
			slog.String("provider", v.Provider),
			slog.Int64("reported", reported),
			slog.Int64("seconds", v.Seconds),
		)
	}

	if usage.Size == "" {
		usage.Size = v.Size
	}

	if usage.Seconds != v.Seconds {
		t.log.Warn(
			"a completed video has another length than was requested: the length that was made is charged",
			slog.String("video_id", v.ID),
			slog.String("provider", v.Provider),
			slog.Int64("requested", v.Seconds),
			slog.Int64("seconds", usage.Seconds),
		)
	}

	sheet := cmp.Or(v.Sheet, &price.Sheet{})
	cost, err := price.Cost(&usage, sheet)
	if err != nil {
		// Settlement has no price either and puts the event into quarantine, where operators see it. A job that stayed open
		// instead would end uncharged, and its client would never get the video.
		cost = v.ExpectedCost
		t.log.Error(
			"the usage of a completed video has no price: its charge goes into quarantine",
			slog.String("video_id", v.ID),
			slog.String("model", v.Model),
			slog.Int64("seconds", usage.Seconds),
			slog.String("size", usage.Size),
			slog.Any("error", err),
		)
	}

	e := t.newEvent(v)
	e.Status, e.HTTPStatus = event.Completed, http.StatusOK
	e.Usage, e.Rule, e.Estimated, e.Doubt = usage, rule, rule == event.RuleEstimated, string(doubt)
	e.Cost, e.Limits, e.MaxSeconds = cost, v.Limits, v.Seconds
	return t.report(&e, doubt)
}

// abandon ends a job without a charge because it cannot complete any more. The
// control plane raises an alarm with the reason. With an error it returns the job as
// it was.
func (t *Tracker) abandon(ctx context.Context, v *event.Video, reason string) (*event.Video, error) {
	next, err := t.save(ctx, failedState(v, reason))
	return cmp.Or(next, v), err
}

// failedState returns the state of a job that ended without a video. The reason is
// for operators, empty if none of them has to know.
func failedState(v *event.Video, reason string) *event.Video {
	next := *v
	next.Status, next.Error, next.Object = event.VideoFailed, reason, failedObject(v)
	return &next
}

// fetchObject reads the provider's object of a job.
func (t *Tracker) fetchObject(ctx context.Context, v *event.Video) ([]byte, error) {
	call, err := t.NewCall(v, "")
	if err != nil {
		return nil, err
	}

	answer, err := t.providers.Do(ctx, call)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, provider.StatusFailure(call, answer, classify.Cleaner{})
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxObjectBytes))
	if err != nil {
		return nil, provider.TruncatedFailure(call, err)
	}

	return body, nil
}

// credentialName returns the name of the job's credential; empty if the catalog has it no more.
func (t *Tracker) credentialName(v *event.Video) string {
	snapshot := t.catalog.Snapshot()
	if snapshot == nil {
		return ""
	}
	if p := snapshot.Provider(v.Provider); p != nil {
		for _, c := range p.Credentials {
			if c.ID == v.Credential {
				return c.Name
			}
		}
	}
	return ""
}

// NewCall returns a GET call to the provider of a job, with the credential that
// created it: the job belongs to the provider account of that credential. below is
// appended to the path of the job.
func (t *Tracker) NewCall(v *event.Video, below string) (*provider.Call, error) {
	snapshot := t.catalog.Snapshot()
	if snapshot == nil {
		return nil, ErrUnavailable
	}

	p := snapshot.Provider(v.Provider)
	if p == nil {
		return nil, fmt.Errorf("videojob: provider %s of the job is not in the catalog", v.Provider)
	}

	for _, credential := range p.Credentials {
		if credential.ID == v.Credential {
			r := catalogkv.Route{ID: v.Route, Provider: v.Provider, UpstreamModel: v.UpstreamModel}
			if current := snapshot.Route(v.Route); current != nil {
				r.Addresses = current.Addresses
			}
			choice := route.Choice{Route: catalog.NewRoute(r, p), Credential: credential}
			target := choice.Target(catalogkv.Videos, false)
			return &provider.Call{
				Choice: choice,
				Format: catalogkv.Videos,
				Method: http.MethodGet,
				Path:   target.Path + "/" + url.PathEscape(v.UpstreamID) + below,
				Query:  target.Query,
			}, nil
		}
	}

	return nil, fmt.Errorf("videojob: credential %s of the job is not in the catalog", v.Credential)
}
