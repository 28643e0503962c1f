package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/video"
	"modelgateway/shared/apierr"
	contract "modelgateway/shared/catalog"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Videos follows video jobs.
type Videos interface {
	Record(ctx context.Context, v *event.Video) (*event.Video, error)
	Find(ctx context.Context, id, account string) (*event.Video, error)
	Refresh(ctx context.Context, v *event.Video) (*event.Video, error)
	Made(ctx context.Context, v *event.Video, body []byte) (*event.Video, error)
	Move(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error)
	Reject(ctx context.Context, v *event.Video) (*event.Video, error)
	GiveUp(ctx context.Context, v *event.Video, why string) (*event.Video, error)
	Call(v *event.Video, path string) (*provider.Call, error)
}

const (
	videoPath   = "/v1/videos/:id"
	contentPath = "/v1/videos/:id/content"
	// maxVideoObject bounds what a provider answers about a job.
	maxVideoObject = 1 << 20
)

// createVideo makes a job. It takes no slot and holds nothing: that there is
// something left is looked at once.
func (s *Server) createVideo(c echo.Context) error {
	j := &job{s: s, x: exchangeOf(c), r: c.Request(), dialect: videos.Dialect{}}
	j.x.endpoint = contract.Videos.Path()
	if err := j.open(); err != nil {
		return err
	}
	defer j.body.release()
	object := jsonspan.Acquire()
	defer object.Release()
	if err := j.readVideo(object); err != nil {
		return err
	}
	defer j.request.Release()
	if err := j.check(); err != nil {
		return err
	}
	hold, err := s.Admission.Acquire(j.r.Context(), admission.Request{Key: j.x.key, Event: j.event()})
	if err != nil {
		return err
	}
	hold.Release()
	if err := j.recheck(); err != nil {
		return err
	}
	choices := s.Picker.Order(j.routes, j.x.key.AccountID)
	if len(choices) == 0 {
		return j.noRoute()
	}
	v, err := j.submit(choices)
	if err != nil {
		return err
	}
	j.x.writeJSON(http.StatusAccepted, video.Object(v))
	return nil
}

// readVideo reads the request, which official clients send as a form.
func (j *job) readVideo(object *jsonspan.Object) error {
	body := *j.body.buffer
	if contentType := j.r.Header.Get("Content-Type"); videos.IsForm(contentType) {
		request, refused := videos.ReadForm(contentType, body)
		if refused != nil {
			return refused
		}
		j.request = request
		return nil
	}
	return j.read(object)
}

// submit records the job, then has a provider take it. Another route is tried
// only while it is certain that no provider has the job.
func (j *job) submit(choices []route.Choice) (*event.Video, error) {
	// The job goes on without the client: it is recorded and may be made already.
	ctx := j.background()
	v, err := j.s.Videos.Record(ctx, j.newVideo(choices[0]))
	if err != nil {
		return nil, err
	}
	last := j.noRoute()
	for i, choice := range choices {
		if i == maxAttempts {
			break
		}
		try, ok := j.s.Picker.Begin(choice.ID)
		if !ok {
			continue // its breaker has opened since, or somebody else tries it
		}
		if choice.ID != v.Route {
			if v, err = j.s.Videos.Move(ctx, v, choice); err != nil {
				try.End()
				return nil, err
			}
		}
		made, err := j.create(ctx, v, choice)
		var failure *provider.Failure
		if !errors.As(err, &failure) {
			if err == nil {
				try.Succeeded()
				j.s.Picker.Restore(choice.ID)
				j.s.Picker.Restore(choice.Secret.ID)
			}
			try.End()
			return made, err
		}
		last = failure
		j.judge(choice, failure, &try)
		try.End()
		if !failure.Answered && !failure.Unsent {
			_, err := j.s.Videos.GiveUp(ctx, v, "it is not known whether the provider took the job")
			return nil, errors.Join(failure, err)
		}
		if !failure.Failover {
			break
		}
	}
	_, err = j.s.Videos.Reject(ctx, v)
	return nil, errors.Join(last, err)
}

func (j *job) newVideo(choice route.Choice) *event.Video {
	return &event.Video{
		V: event.Version, ID: ident.Video.New(), RequestID: j.x.id, AccountID: j.x.key.AccountID, KeyID: j.x.key.KeyID, Model: j.model.ID,
		Provider: choice.Provider.ID, Route: choice.ID, Credential: choice.Secret.ID, UpstreamModel: choice.UpstreamModel,
		Status: event.VideoQueued, Size: j.request.Size, Seconds: j.request.Seconds, CreatedUnix: j.x.started.Unix(), PriceVersion: j.sheet.Version, Sheet: j.sheet,
	}
}

// create calls one provider and records what it answers.
func (j *job) create(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error) {
	j.x.provider, j.x.route = choice.Provider.ID, choice.ID
	body := j.outgoing(choice)
	defer body.Release()
	call := provider.Call{
		Choice: choice, Format: contract.Videos, Path: contract.Videos.Path(), Body: body, ContentType: j.request.ContentType(), IdempotencyKey: v.ID,
	}
	sent := time.Now()
	answer, err := j.s.Providers.Do(ctx, call)
	j.x.upstream += time.Since(sent)
	if err != nil {
		return nil, err
	}
	if answer.Status < 200 || answer.Status > 299 {
		return nil, provider.Refused(&call, answer, j.cleaner(choice))
	}
	defer func() { _ = answer.Body.Close() }()
	object, err := io.ReadAll(io.LimitReader(answer.Body, maxVideoObject))
	if err != nil {
		broken := provider.Broken(&call, err)
		broken.Answered = false // it has the job, and its id was lost
		return nil, broken
	}
	j.s.Metrics.attempt(choice.Provider.ID, "ok")
	made, err := j.s.Videos.Made(ctx, v, object)
	if errors.Is(err, video.ErrNoObject) {
		broken := provider.Broken(&call, err)
		broken.Answered = false
		return nil, broken
	}
	return made, err
}

// findVideo reads the job that the path names, if it is the account's.
func (s *Server) findVideo(x *exchange, c echo.Context) (*event.Video, error) {
	if err := s.authenticate(x, c.Request()); err != nil {
		return nil, err
	}
	v, err := s.Videos.Find(c.Request().Context(), c.Param("id"), x.key.AccountID)
	if errors.Is(err, video.ErrNotFound) {
		return nil, errVideoNotFound
	}
	if err == nil {
		x.model = v.Model
	}
	return v, err
}

var errVideoNotFound = apierr.New(http.StatusNotFound, apierr.NotFound, "There is no such video, or it is not ready.")

// video tells how a job stands, by asking its provider unless it has ended.
func (s *Server) video(c echo.Context) error {
	x := exchangeOf(c)
	x.endpoint = videoPath
	v, err := s.findVideo(x, c)
	if err != nil {
		return err
	}
	if v, err = s.Videos.Refresh(c.Request().Context(), v); err != nil {
		x.failure = err // the client gets what was known last
	}
	x.writeJSON(http.StatusOK, video.Object(v))
	return nil
}

// passed are the headers of a provider that reach the client of a download.
var passed = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified"}

// content passes a finished video on as it comes.
func (s *Server) content(c echo.Context) error {
	x := exchangeOf(c)
	x.endpoint = contentPath
	v, err := s.findVideo(x, c)
	if err != nil {
		return err
	}
	r := c.Request()
	if v, err = s.Videos.Refresh(r.Context(), v); err != nil {
		x.failure = err
	}
	if v.Status != event.VideoCompleted {
		return errVideoNotFound
	}
	call, err := s.Videos.Call(v, contract.Videos.Path()+"/"+v.UpstreamID+"/content")
	if err != nil {
		return err
	}
	call.Accept, call.Range = "*/*", r.Header.Get("Range")
	if variant := r.URL.Query().Get("variant"); variant == "video" || variant == "thumbnail" || variant == "spritesheet" {
		call.Query = "variant=" + variant
	} else if variant != "" {
		return format.Invalid("variant", "video, thumbnail or spritesheet")
	}
	answer, err := s.Providers.Do(r.Context(), *call)
	if err != nil {
		return err
	}
	if answer.Status == http.StatusNotFound || answer.Status == http.StatusGone {
		_ = answer.Body.Close() // providers keep it for some time only
		return errVideoNotFound
	}
	if answer.Status >= 300 && answer.Status != http.StatusRequestedRangeNotSatisfiable {
		return provider.Refused(call, answer, s.cleanerOf(call.Choice, v.Model))
	}
	defer func() { _ = answer.Body.Close() }()
	h := x.Header()
	for _, name := range passed {
		if values := answer.Header[name]; values != nil {
			h[name] = values
		}
	}
	x.WriteHeader(answer.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	b := getBuffer()
	defer putBuffer(b)
	if cap(*b) < readSize {
		*b = make([]byte, readSize)
	}
	if _, err := io.CopyBuffer(onlyWriter{x}, onlyReader{answer.Body}, (*b)[:cap(*b)]); err != nil {
		x.failure = err
		panic(http.ErrAbortHandler) // a download that ends early must not look whole
	}
	return nil
}

// onlyWriter and onlyReader keep io.CopyBuffer to its buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }
