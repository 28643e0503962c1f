package httpapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/change"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/validation"
)

const (
	waitParam    = "wait"
	timeoutParam = "timeout"
	defaultWait  = 10 * time.Second
	longestWait  = time.Minute

	appliedHeader        = "Applied"
	appliedByHeader      = "Applied-By"
	appliedPendingHeader = "Applied-Pending"

	etagHeader = "ETag"
)

// waitApplied has a change that was asked for with wait=applied answer when
// every live proxy acts by it, or when its time is up. The change is made in
// any case, so the answer is the same but for the headers that say how far it
// has got.
func waitApplied(waiter *fleet.Waiter, log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			timeout, wanted, err := readWait(c)
			if err != nil {
				return err
			}
			if !wanted {
				return next(c)
			}
			began := time.Now()
			ctx, changes := change.Track(c.Request().Context())
			c.SetRequest(c.Request().WithContext(ctx))
			direct := c.Response().Writer
			answer := &held{ResponseWriter: direct}
			c.Response().Writer = answer
			err = next(c)
			c.Response().Writer = direct
			if err != nil {
				return err
			}
			if answer.status >= http.StatusOK && answer.status < http.StatusMultipleChoices {
				waiting, cancel := context.WithTimeout(ctx, timeout-time.Since(began))
				defer cancel()
				applied, err := waiter.Wait(waiting, changes)
				if err != nil && !ended(ctx) {
					log.WarnContext(ctx, "not known how far a change has got", "route", c.Path(), "error", err)
				}
				tellApplied(direct.Header(), applied, err)
			}
			return answer.send()
		}
	}
}

func tellApplied(h http.Header, applied fleet.Applied, err error) {
	h.Set(appliedHeader, strconv.FormatBool(err == nil && len(applied.Pending) == 0))
	if err != nil {
		return
	}
	h.Set(appliedByHeader, strconv.Itoa(applied.By))
	if len(applied.Pending) > 0 {
		h.Set(appliedPendingHeader, strings.Join(applied.Pending, ", "))
	}
}

var timeoutForm = regexp.MustCompile(`^[0-9]{1,6}(ms|s)$`)

// readWait reads the parameters of waiting.
func readWait(c echo.Context) (timeout time.Duration, wanted bool, err error) {
	query := c.QueryParams()
	timeout, wanted = defaultWait, query.Has(waitParam)
	var invalid validation.Errors
	if wanted && query.Get(waitParam) != "applied" {
		invalid.Add(waitParam, `must be "applied"`)
	}
	if query.Has(timeoutParam) {
		text := query.Get(timeoutParam)
		span, err := time.ParseDuration(text)
		if timeout = span; err != nil || !timeoutForm.MatchString(text) || span > longestWait {
			invalid.Add(timeoutParam, "must be a duration such as 5s or 250ms, %s at most", longestWait)
		}
	}
	return timeout, wanted, invalid.Err()
}

// held keeps an answer back until it is sent.
type held struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *held) WriteHeader(status int) { h.status = status }

// Write implements http.ResponseWriter.
func (h *held) Write(b []byte) (int, error) {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	return h.body.Write(b)
}

func (h *held) send() error {
	if h.status == 0 {
		return errors.New("httpapi: an operation has not answered")
	}
	h.ResponseWriter.WriteHeader(h.status)
	_, err := h.ResponseWriter.Write(h.body.Bytes())
	return err
}

type answerKey struct{}

// withAnswer gives operations the headers of their answer.
func withAnswer(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, answerKey{}, h)
}

// setETag has the answer carry the tag of what it shows.
func setETag(ctx context.Context, tag etag.Tag) {
	if h, ok := ctx.Value(answerKey{}).(http.Header); ok {
		h.Set(etagHeader, string(tag))
	}
}
