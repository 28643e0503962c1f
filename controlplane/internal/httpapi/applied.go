package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

const (
	waitParam    = "wait"
	timeoutParam = "timeout"
	defaultWait  = 10 * time.Second
	maxWait      = time.Minute

	appliedHeader        = "Applied"
	appliedByHeader      = "Applied-By"
	appliedPendingHeader = "Applied-Pending"

	etagHeader = "ETag"
)

// waitApplied executes a request. If it has wait=applied, the response of a success
// is delayed until every live proxy has applied the changes, or the timeout has
// passed. The changes are made in any case; only the headers of the response report
// how far they have propagated.
func (p *pipeline) waitApplied(c echo.Context, call *gen.Call, handle func() error) error {
	timeout, wanted, err := readWait(c)
	if err != nil {
		return err
	}
	if !wanted {
		return handle()
	}

	start := time.Now()
	direct := c.Response().Writer
	held := &heldResponse{ResponseWriter: direct}
	c.Response().Writer = held
	err = handle()
	c.Response().Writer = direct
	if err != nil {
		return err
	}

	if held.status >= http.StatusOK && held.status < http.StatusMultipleChoices {
		ctx := c.Request().Context()
		waiting, cancel := context.WithTimeout(ctx, timeout-time.Since(start))
		defer cancel()
		applied, err := p.applied.Wait(waiting, call.Changes)
		if err != nil && !clientGone(ctx) {
			p.log.WarnContext(ctx, "waiting for the proxies to apply a change failed", "route", c.Path(), "error", err)
		}
		setAppliedHeaders(direct.Header(), applied, err)
	}

	return held.send()
}

func setAppliedHeaders(h http.Header, applied fleet.Applied, err error) {
	h.Set(appliedHeader, strconv.FormatBool(err == nil && len(applied.Pending) == 0))
	if err != nil {
		return
	}
	for header, names := range map[string][]string{appliedByHeader: applied.By, appliedPendingHeader: applied.Pending} {
		if len(names) > 0 {
			h.Set(header, strings.Join(names, ", "))
		}
	}
}

var timeoutForm = regexp.MustCompile(`^[0-9]{1,6}(ms|s)$`)

// readWait parses the parameters wait and timeout.
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
		if timeout = span; err != nil || !timeoutForm.MatchString(text) || span > maxWait {
			invalid.Add(timeoutParam, "must be a duration such as 5s or 250ms, %s at most", maxWait)
		}
	}
	return timeout, wanted, invalid.Err()
}

// heldResponse buffers a response until it is sent.
type heldResponse struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *heldResponse) WriteHeader(status int) { h.status = status }

func (h *heldResponse) Write(b []byte) (int, error) {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	return h.body.Write(b)
}

func (h *heldResponse) send() error {
	if h.status == 0 {
		return errors.New("httpapi: an operation wrote no response")
	}
	h.ResponseWriter.WriteHeader(h.status)
	_, err := h.ResponseWriter.Write(h.body.Bytes())
	return err
}
