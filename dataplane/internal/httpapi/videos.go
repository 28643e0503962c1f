package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

// Videos keeps the records of video jobs.
type Videos interface {
	Create(ctx context.Context, v *event.Video) (*event.Video, error)
	Find(ctx context.Context, id, account string) (*event.Video, error)
	Refresh(ctx context.Context, v *event.Video) (*event.Video, error)
	SaveCreated(ctx context.Context, v *event.Video, body []byte) (*event.Video, error)
	SetRoute(ctx context.Context, v *event.Video, choice route.Choice) (*event.Video, error)
	Reject(ctx context.Context, v *event.Video) (*event.Video, error)
	Abandon(ctx context.Context, v *event.Video, why string) (*event.Video, error)
	NewCall(v *event.Video, path string) (*provider.Call, error)
}

const (
	videoPath   = "/v1/videos/:id"
	contentPath = "/v1/videos/:id/content"
)

// findVideo returns the job with the id in the path if it belongs to the account of the key.
func (s *Server) findVideo(x *exchange, c echo.Context) (*event.Video, error) {
	key, err := s.authenticate(x, c.Request())
	if err != nil {
		return nil, err
	}
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

// getVideo answers with the state of a job. It asks the provider first, unless the job has ended.
func (s *Server) getVideo(c echo.Context) error {
	x := exchangeOf(c)
	x.endpoint = videoPath
	v, err := s.findVideo(x, c)
	if err != nil {
		return err
	}
	if v, err = s.Videos.Refresh(c.Request().Context(), v); err != nil {
		x.failure = err // the client gets the last known state
	}
	x.writeJSON(http.StatusOK, videojob.Object(v))
	return nil
}

// contentHeaders are the headers of a provider's answer that the client of a download gets.
var contentHeaders = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified"}

// getVideoContent relays the content of a completed video.
func (s *Server) getVideoContent(c echo.Context) error {
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
	call, err := s.Videos.NewCall(v, catalogkv.Videos.Path()+"/"+v.UpstreamID+"/content")
	if err != nil {
		return err
	}
	call.Accept, call.Range = "*/*", r.Header.Get("Range")
	switch variant := r.URL.Query().Get("variant"); variant {
	case "":
	case "video", "thumbnail", "spritesheet":
		call.Query = "variant=" + variant
	default:
		return format.Invalid("variant", "video, thumbnail or spritesheet")
	}
	answer, err := s.Providers.Do(r.Context(), *call)
	if err != nil {
		return err
	}
	if answer.Status == http.StatusNotFound || answer.Status == http.StatusGone {
		_ = answer.Body.Close() // providers delete videos after some time
		return errVideoNotFound
	}
	if answer.Status >= 300 && answer.Status != http.StatusRequestedRangeNotSatisfiable {
		return provider.StatusFailure(call, answer, cleanerOf(call.Choice, v.Model))
	}
	defer func() { _ = answer.Body.Close() }()
	return relayContent(x, answer)
}

// relayContent passes a download on as it comes.
func relayContent(x *exchange, answer *provider.Answer) error {
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
	b := getBuffer()
	defer putBuffer(b)
	if cap(*b) < readSize {
		*b = make([]byte, readSize)
	}
	if _, err := io.CopyBuffer(onlyWriter{x}, onlyReader{answer.Body}, (*b)[:cap(*b)]); err != nil {
		x.failure = err
		panic(http.ErrAbortHandler) // a truncated download must not look complete
	}
	return nil
}

// onlyWriter and onlyReader hide ReadFrom and WriteTo, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

type onlyReader struct{ io.Reader }
