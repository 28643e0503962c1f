// Package video owns what happens to a video job after its request: asking its
// provider how far it is, billing it once when it is done, and giving it up
// when nothing can become of it.
//
// A job is billed before its record says that it has ended, under the request
// that made it: whoever sees the end may die in between or see it together
// with others, and settlement still takes the charge once.
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
	"reflect"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/price"
)

var (
	// ErrNotFound says that there is no such job, or it is another account's.
	ErrNotFound = errors.New("video: no such job")
	// ErrNoObject says that a provider's answer is no video object.
	ErrNoObject = errors.New("video: the provider's answer is no video object")
	// ErrUnavailable says that the job's record cannot be read or written now, or its charge not taken.
	ErrUnavailable = errors.New("video: cannot tell")
)

// Records keeps the jobs, at the control plane.
type Store interface {
	CreateVideo(ctx context.Context, v *event.Video) (*event.VideoReply, error)
	GetVideo(ctx context.Context, q *event.VideoGet) (*event.VideoReply, error)
	UpdateVideo(ctx context.Context, v *event.Video) (*event.VideoReply, error)
}

// Providers performs calls.
type Providers interface {
	Do(ctx context.Context, call provider.Call) (*provider.Answer, error)
}

// Biller takes the usage of a finished job. When it returns nil, the event is
// on its way and will not be lost.
type Biller interface{ Bill(e event.Usage) error }

const (
	// unsent is how long a job may have no provider id: a creation that was not confirmed in that time never will be.
	creationTimeout = 15 * time.Minute
	// lifetime is how long a job may take at all.
	maxJobAge = 24 * time.Hour
	// maxObject bounds a provider's video object.
	maxObjectBytes = 1 << 20
	// madeTries and madePause are how often, and with which pause, the record of a new provider job is tried to be written.
	saveTries         = 20
	saveRetryInterval = 500 * time.Millisecond
	// askTimeout bounds one question to a provider.
	pollTimeout = 30 * time.Second
)

// Tracker follows jobs. It is safe for concurrent use.
type Tracker struct {
	store     Store
	providers Providers
	biller    Biller
	catalog   *catalog.Store
	dialect   format.Dialect
	log       *slog.Logger
	now       func() time.Time
}

// New returns a Tracker. A nil clock is time.Now.
func New(records Store, providers Providers, biller Biller, models *catalog.Store, dialect format.Dialect, log *slog.Logger, now func() time.Time) *Tracker {
	if now == nil {
		now = time.Now
	}
	return &Tracker{store: records, providers: providers, biller: biller, catalog: models, dialect: dialect, log: log, now: now}
}

// Record notes a new job before its provider is called.
func (t *Tracker) Create(ctx context.Context, v *event.Video) (*event.Video, error) {
	return unpack(t.store.CreateVideo(ctx, v))
}

// Find reads a job of an account; an empty account finds any.
func (t *Tracker) Find(ctx context.Context, id, account string) (*event.Video, error) {
	return unpack(t.store.GetVideo(ctx, &event.VideoGet{V: event.Version, ID: id, AccountID: account}))
}

// errConflict comes with the record as it is now.
var errConflict = errors.New("video: the job has changed")

func unpack(reply *event.VideoReply, err error) (*event.Video, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case reply.Status == event.VideoNotFound:
		return nil, ErrNotFound
	case reply.Status == event.VideoConflict && reply.Video != nil:
		return reply.Video, errConflict
	case reply.Status != event.VideoDone || reply.Video == nil:
		return nil, ErrUnavailable
	}
	return reply.Video, nil
}

// save writes a changed job. If somebody else was faster, theirs stands.
func (t *Tracker) save(ctx context.Context, v *event.Video) (*event.Video, error) {
	saved, err := unpack(t.store.UpdateVideo(ctx, v))
	if errors.Is(err, errConflict) {
		return saved, nil
	}
	return saved, err
}

// Refresh asks the provider of a job how far it is, and bills and records what
// it says. It always returns the job as far as it is known: one that has ended
// as it is, and together with an error the one that was given.
func (t *Tracker) Refresh(ctx context.Context, v *event.Video) (*event.Video, error) {
	if v.Ended() {
		return v, nil
	}
	age := t.now().Sub(time.Unix(v.CreatedUnix, 0))
	if v.UpstreamID == "" {
		if age > creationTimeout {
			return t.abandon(ctx, v, "it is not known whether the provider took the job")
		}
		return v, nil // its creation is under way
	}
	// One that is too old is asked about once more: while nobody polled it, it may have been made.
	next, err := t.poll(ctx, v)
	if age > maxJobAge && !next.Ended() && !errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		return t.abandon(ctx, next, "the provider did not finish the job in time")
	}
	return next, err
}

// look asks the provider once.
func (t *Tracker) poll(ctx context.Context, v *event.Video) (*event.Video, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	body, err := t.fetchObject(ctx, v)
	if err != nil {
		var failure *provider.Failure
		if errors.As(err, &failure) && failure.Gone {
			return t.abandon(ctx, v, "the provider does not know the job any more")
		}
		return v, err
	}
	next, err := t.applyObject(ctx, v, body)
	return cmp.Or(next, v), err
}

func (t *Tracker) abandon(ctx context.Context, v *event.Video, why string) (*event.Video, error) {
	next, err := t.Abandon(ctx, v, why)
	return cmp.Or(next, v), err
}

// Made takes in the object that a provider made for a job. The record must have
// the provider's id, or the job is lost: writing it is tried again for a while.
func (t *Tracker) SaveCreated(ctx context.Context, v *event.Video, body []byte) (*event.Video, error) {
	for tries := 1; ; tries++ {
		made, err := t.applyObject(ctx, v, body)
		if !errors.Is(err, ErrUnavailable) || tries == saveTries {
			return made, err
		}
		if !sleep.For(ctx, saveRetryInterval) {
			return made, err
		}
	}
}

// see takes in a provider's object of a job.
func (t *Tracker) applyObject(ctx context.Context, v *event.Video, body []byte) (*event.Video, error) {
	answer := t.dialect.NewAnswer(format.AnswerConfig{ClientModel: v.Model, ID: v.ID})
	defer answer.Release()
	object, ok := answer.JSON(nil, body)
	if !ok {
		return v, ErrNoObject
	}
	state, ok := videos.ReadJob(body)
	if !ok {
		return v, ErrNoObject
	}
	next := *v
	next.Object, next.Status = t.clientObject(v, state, object), string(state.Status)
	if next.UpstreamID == "" {
		next.UpstreamID = state.ID
	}
	if next.Status == v.Status && next.UpstreamID == v.UpstreamID && sameJSON(next.Object, v.Object) {
		return v, nil
	}
	if next.Status == event.VideoCompleted {
		usage, _ := answer.Usage()
		if err := t.bill(&next, usage); err != nil {
			return t.saveUnbilled(ctx, v, next.UpstreamID, err)
		}
	}
	return t.save(ctx, &next)
}

// unbilled leaves a job open that could not be billed, to be asked about again.
// If it was new to us, its id must not be lost over that.
func (t *Tracker) saveUnbilled(ctx context.Context, v *event.Video, upstreamID string, err error) (*event.Video, error) {
	if v.UpstreamID != "" {
		return v, err
	}
	open := *v
	open.UpstreamID = upstreamID
	return t.save(ctx, &open)
}

// sameJSON compares objects of which one may have been stored: members in
// another order, other white space.
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

// clean copies an object, with the provider's words about a failure cleaned.
func (t *Tracker) clientObject(v *event.Video, state videos.Job, object []byte) []byte {
	object = append([]byte(nil), object...)
	if state.ErrorMessage == "" {
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
	reason, err := json.Marshal(objectError{Code: cleaner.Clean(state.ErrorCode), Message: cleaner.Clean(state.ErrorMessage)})
	if err != nil {
		return failedObject(v)
	}
	var edit jsonspan.Edit
	edit.Begin(parsed)
	edit.Set("error", reason)
	return edit.Append(nil)
}

// bill reports the job's cost under the request that made it.
func (t *Tracker) bill(v *event.Video, usage price.Usage) error {
	rule := event.RuleReported
	if usage.Seconds == 0 {
		usage.Seconds, rule = v.Seconds, event.RuleEstimated
	}
	if usage.Size == "" {
		usage.Size = v.Size
	}
	sheet := v.Sheet
	if sheet == nil {
		return fmt.Errorf("video: job %s has no price sheet", v.ID)
	}
	cost, err := price.Cost(&usage, sheet)
	if err != nil {
		return fmt.Errorf("video: price job %s: %w", v.ID, err)
	}
	if err := t.biller.Bill(event.Usage{
		V: event.Version, RequestID: v.RequestID, AccountID: v.AccountID, KeyID: v.KeyID, Model: v.Model, Format: string(catalogkv.Videos),
		Provider: v.Provider, Route: v.Route, ProviderRequestID: v.UpstreamID, Status: event.Completed, HTTPStatus: http.StatusOK,
		StartedMS: v.CreatedUnix * 1000, FinishedMS: t.now().UnixMilli(), Usage: usage, Rule: rule, Estimated: rule == event.RuleEstimated,
		PriceVersion: v.PriceVersion, PriceMultiplier: sheet.Multiplier, Cost: cost, VideoJob: v.ID,
	}); err != nil {
		return fmt.Errorf("%w: bill job %s: %w", ErrUnavailable, v.ID, err) // for now: the job must not be given up over it
	}
	return nil
}

// Move records that another route takes the job, before it is called.
func (t *Tracker) SetRoute(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error) {
	next := *v
	next.Provider, next.Route, next.Credential, next.UpstreamModel = choice.Provider.ID, choice.ID, choice.Credential.ID, choice.UpstreamModel
	return t.save(ctx, &next)
}

// Reject ends a job that no provider took. Its client was told why.
func (t *Tracker) Reject(ctx context.Context, v *event.Video) (*event.Video, error) {
	next := *v
	next.Status, next.Object = event.VideoFailed, failedObject(v)
	return t.save(ctx, &next)
}

// GiveUp ends a job without a charge; the control plane raises the alarm.
func (t *Tracker) Abandon(ctx context.Context, v *event.Video, why string) (*event.Video, error) {
	next := *v
	next.Status, next.Error = event.VideoFailed, why
	next.Object = failedObject(v)
	return t.save(ctx, &next)
}

// ask reads the provider's object of a job.
func (t *Tracker) fetchObject(ctx context.Context, v *event.Video) ([]byte, error) {
	call, err := t.NewCall(v, catalogkv.Videos.Path()+"/"+v.UpstreamID)
	if err != nil {
		return nil, err
	}
	answer, err := t.providers.Do(ctx, *call)
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

// Call makes a GET to the provider and with the credential that made the job:
// no other account there knows it.
func (t *Tracker) NewCall(v *event.Video, path string) (*provider.Call, error) {
	snapshot := t.catalog.Snapshot()
	if snapshot == nil {
		return nil, ErrUnavailable
	}
	p := snapshot.Provider(v.Provider)
	if p == nil {
		return nil, fmt.Errorf("video: provider %s of the job is not in the catalog", v.Provider)
	}
	for _, credential := range p.Credentials {
		if credential.ID == v.Credential {
			r := &catalog.Route{Route: catalogkv.Route{ID: v.Route, Provider: v.Provider, UpstreamModel: v.UpstreamModel}, Provider: p}
			return &provider.Call{Choice: route.Choice{Route: r, Credential: credential}, Format: catalogkv.Videos, Method: http.MethodGet, Path: path}, nil
		}
	}
	return nil, fmt.Errorf("video: credential %s of the job is not in the catalog", v.Credential)
}
