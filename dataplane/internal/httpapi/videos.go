package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
)

// Videos keeps the records of video jobs.
type Videos interface {
	// Create records a job before the first provider is called. The error is a *videojob.RefusedError if the open jobs
	// of the account or key allow no further one.
	Create(ctx context.Context, v *event.Video) (*event.Video, error)
	// Find returns a job of an account, or videojob.ErrNotFound.
	Find(ctx context.Context, id, account string) (*event.Video, error)
	// RefreshForClient asks the provider for the state of a job, unless the job has ended or was asked for within the
	// last second, and records it. It returns a job even with an error: the last known state.
	RefreshForClient(ctx context.Context, v *event.Video) (*event.Video, error)
	// SaveCreated records the video object with which a provider has accepted a job. The error is videojob.ErrNoObject
	// if body is not such an object, and nil otherwise.
	SaveCreated(ctx context.Context, v *event.Video, body []byte) (*event.Video, error)
	// SetRoute records the route of the next attempt.
	SetRoute(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error)
	// Reject ends a job whose client gets an error. The reason is for operators, empty if it is certain that no provider
	// has the job.
	Reject(ctx context.Context, v *event.Video, reason string)
	// NewCall returns a GET call to the provider of a job.
	NewCall(v *event.Video, path string) (*provider.Call, error)
}

const (
	videoPath   = "/v1/videos/:id"
	contentPath = "/v1/videos/:id/content"
)

// maxLookups bounds the video jobs that one account reads from the control plane at the same time. There they share a
// queue with those of other accounts and of the pollers, who wait for at most so many of them.
const maxLookups = 16

// errLookups is the error for an account that reads too many jobs at the same time. The service is available to others, so it is
// no 503, which would alarm the operator.
var errLookups = apierr.New(
	http.StatusTooManyRequests,
	apierr.RateLimitExceeded,
	"This account reads too many video jobs at the same time. Please try again.",
)

// findVideo returns the job with the id in the path if it belongs to the account of the key.
func (s *Server) findVideo(x *exchange, c echo.Context) (*event.Video, error) {
	key, err := s.authenticateReader(x, c.Request())
	if err != nil {
		return nil, err
	}
	if !s.lookups.Enter(key.AccountID, maxLookups) {
		return nil, errLookups
	}
	defer s.lookups.Leave(key.AccountID)
	v, err := s.Videos.Find(c.Request().Context(), c.Param("id"), key.AccountID)
	if errors.Is(err, videojob.ErrNotFound) {
		return nil, errVideoNotFound
	}
	if err == nil {
		x.model = v.Model
	}

	return v, err
}

var errVideoNotFound = apierr.New(http.StatusNotFound, apierr.NotFound, "The video does not exist or is not ready.")

// getVideo answers with the state of a job, which is at most a second old.
func (s *Server) getVideo(c echo.Context) error {
	x := exchangeOf(c)
	v, err := s.findVideo(x, c)
	if err != nil {
		return err
	}
	if v, err = s.Videos.RefreshForClient(c.Request().Context(), v); err != nil {
		x.failure = err // the client gets the last known state
	}
	x.writeJSON(http.StatusOK, videojob.Object(v))
	return nil
}

// errDownloads is the error for an account that has too many downloads at the same time.
var errDownloads = apierr.New(http.StatusTooManyRequests, apierr.RateLimitExceeded,
	"This account has too many downloads at the same time. Please try again when one of them has ended.")

// contentHeaders are the headers of a download that are passed on from the provider to the client.
var contentHeaders = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified"}

// getVideoContent relays the content of a completed video.
func (s *Server) getVideoContent(c echo.Context) error {
	x := exchangeOf(c)
	v, err := s.findVideo(x, c)
	if err != nil {
		return err
	}

	r := c.Request()
	if v, err = s.Videos.RefreshForClient(r.Context(), v); err != nil {
		x.failure = err
	}
	if v.Status != event.VideoCompleted {
		return errVideoNotFound
	}

	call, err := s.Videos.NewCall(v, "/content")
	if err != nil {
		return err
	}

	call.Accept, call.Range = "*/*", r.Header.Get("Range")
	switch variant := r.URL.Query().Get("variant"); variant {
	case "":
	case "video", "thumbnail", "spritesheet":
		call.AddQuery("variant=" + variant)
	default:
		return format.Invalid("variant", "video, thumbnail or spritesheet")
	}

	if !s.downloads.Enter(v.AccountID, s.cfg.MaxDownloads) {
		return errDownloads
	}
	defer s.downloads.Leave(v.AccountID)
	answer, err := s.Providers.Do(r.Context(), call)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()

	switch answer.Status {
	case http.StatusNotFound, http.StatusGone, // providers delete videos after some time
		http.StatusConflict, http.StatusTooEarly: // or have the video a little later than its state
		return errVideoNotFound
	}

	if answer.Status >= 300 && answer.Status != http.StatusRequestedRangeNotSatisfiable {
		return provider.StatusFailure(call, answer, cleanerOf(call.Choice, v.Model))
	}

	switch {
	case answer.Status == http.StatusRequestedRangeNotSatisfiable:
		if values := answer.Header["Content-Range"]; values != nil {
			x.Header()["Content-Range"] = values
		}
		x.WriteHeader(answer.Status)
		return nil
	case videos.IsTextType(answer.Header.Get("Content-Type")):
		return provider.ReportedFailure(call.Format, answer.Status, answer.Header, nil, true, cleanerOf(call.Choice, v.Model))
	}

	first := readBuffers.Get().(*[readSize]byte)
	defer readBuffers.Put(first)
	n, err := readFirst(answer.Body, first[:])
	if isWhole := answer.Status != http.StatusPartialContent || call.Range == ""; isWhole && videos.IsText(first[:n]) {
		return provider.ReportedFailure(call.Format, answer.Status, answer.Header, nil, true, cleanerOf(call.Choice, v.Model))
	}

	return relayContent(x, answer, first, n, err)
}

// readFirst reads the first bytes of a body, as many as come at once.
func readFirst(body io.Reader, into []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = body.Read(into)
	}
	return n, err
}

// relayContent passes a download on while it arrives. in has the first n bytes of it, err is that of their reading.
func relayContent(x *exchange, answer *provider.Answer, in *[readSize]byte, n int, err error) error {
	h := x.Header()
	for _, name := range contentHeaders {
		if values := answer.Header[name]; values != nil {
			h[name] = values
		}
	}

	x.WriteHeader(answer.Status)
	if x.method == http.MethodHead {
		return nil
	}

	for ; ; n, err = answer.Body.Read(in[:]) {
		if n > 0 {
			x.conn.ExtendWrite(time.Now())
			if _, writeErr := x.Write(in[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			x.failure = err
			panic(http.ErrAbortHandler) // a truncated download must not look complete
		}
	}
}
