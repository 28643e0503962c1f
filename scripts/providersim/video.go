package providersim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// createVideo creates a job. A repeated idempotency key gets the existing job.
func (x *exchange) createVideo() error {
	key := x.r.Header.Get("Idempotency-Key")
	if x.d.refuse {
		return x.refuse(invalid("moderation_blocked", "prompt", "The request was refused by the safety system."))
	}

	job := x.sim.videos.create(key, &videoJob{
		id:      x.id("video_"),
		model:   x.answerModel(),
		prompt:  x.members.text("prompt", ""),
		size:    x.members.text("size", "720x1280"),
		seconds: videoSeconds(x.members, x.d),
		created: x.sim.cfg.Now(),
		d:       x.d,
	})
	x.entry.AnswerID = job.ID
	if x.d.lostCreate {
		return errCut
	}

	return x.json(http.StatusOK, mustJSON(job))
}

// videoSeconds returns the length in a job's object.
func videoSeconds(m members, d *directives) int64 {
	if d.seconds != unset {
		return d.seconds
	}
	n, err := strconv.ParseInt(m.text("seconds", ""), 10, 64)
	if err != nil {
		return DefaultVideoSeconds
	}
	return n
}

// routeVideo returns the handler of a path below one job.
func (x *exchange) routeVideo(rest string) (func() error, *fault) {
	id, content := strings.CutSuffix(rest, "/content")
	if strings.Contains(id, "/") {
		return nil, &fault{status: http.StatusNotFound, code: "unknown_url", message: "There is no such path."}
	}

	x.entry.AnswerID = id
	if job, _, ok := x.sim.videos.get(id); ok {
		x.entry.Model = job.Model // for the rules and the journal
	}

	switch {
	case x.r.Method == http.MethodGet && content:
		return func() error { return x.videoContent(id) }, nil
	case x.r.Method == http.MethodGet:
		return func() error { return x.pollVideo(id) }, nil
	case x.r.Method == http.MethodDelete && !content:
		return func() error { return x.deleteVideo(id) }, nil
	}

	return nil, &fault{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "The method is not allowed here."}
}

func videoNotFound() *fault {
	return &fault{
		status:  http.StatusNotFound,
		kind:    "invalid_request_error",
		code:    "not_found",
		param:   "video_id",
		message: "Video not found.",
	}
}

func (x *exchange) pollVideo(id string) error {
	job, ok := x.sim.videos.poll(id, x.sim.cfg.Now())
	if !ok {
		return x.refuse(videoNotFound())
	}

	x.w.Header().Set("Openai-Poll-After-Ms", "10")
	if err := x.json(http.StatusOK, mustJSON(job)); err != nil {
		return err
	}

	if job.finished {
		n, err := strconv.ParseInt(job.Seconds, 10, 64)
		if err != nil {
			return fmt.Errorf("parse seconds of %s: %w", id, err)
		}
		x.report(nil, Counts{Seconds: n})
	}

	return nil
}

func (x *exchange) deleteVideo(id string) error {
	if !x.sim.videos.remove(id) {
		return x.refuse(videoNotFound())
	}
	return x.json(http.StatusOK, mustJSON(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, "video.deleted", true}))
}

// videoList is the list of jobs, newest first unless order=asc.
type videoList struct {
	Object  string  `json:"object"`
	Data    []Video `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func (x *exchange) listVideos() error {
	q := x.r.URL.Query()
	limit, err := optionalInt(q.Get("limit"))
	if err != nil || limit < 0 || limit > 100 {
		return x.refuse(Videos.refused("invalid_value", "limit", "expected 1 to 100"))
	}
	if limit == 0 {
		limit = 20
	}
	list := videoList{Object: "list"}
	list.Data, list.HasMore = x.sim.videos.list(q.Get("after"), q.Get("order") == "asc", int(limit))
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return x.json(http.StatusOK, mustJSON(list))
}

// videoContent serves the content of a completed job and supports range requests.
func (x *exchange) videoContent(id string) error {
	variant := x.r.URL.Query().Get("variant")
	if variant == "" {
		variant = "video"
	}

	kind, ok := videoVariants[variant]
	if !ok {
		return x.refuse(Videos.refused("invalid_value", "variant", "supported values are video, thumbnail, spritesheet"))
	}

	job, d, ok := x.sim.videos.get(id)
	switch {
	case !ok:
		return x.refuse(videoNotFound())
	case !job.finished:
		return x.refuse(&fault{
			status:  http.StatusNotFound,
			kind:    "invalid_request_error",
			code:    "not_found",
			message: "Video is not ready yet.",
		})
	case d.expired:
		return x.refuse(&fault{
			status:  http.StatusNotFound,
			kind:    "invalid_request_error",
			code:    "expired",
			message: "Video content has expired.",
		})
	}

	if err := x.pause(x.d.delay); err != nil {
		return err
	}

	h := x.w.Header()
	h.Set("Content-Type", kind.contentType)
	h.Set("Etag", strconv.Quote(id+"-"+variant))
	x.providerHeaders(h)

	out := &contentWriter{
		x:     x,
		slow:  d.slow || x.d.slow,
		chunk: max(d.chunk, x.d.chunk),
		cut:   x.d.cut,
	}
	http.ServeContent(out, x.r, "", job.createdAt, &pattern{head: kind.head, size: d.content})

	return out.end()
}

var videoVariants = map[string]struct{ contentType, head string }{
	"video":       {"video/mp4", "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"},
	"thumbnail":   {"image/webp", "RIFF\x1a\x00\x00\x00WEBPVP8L"},
	"spritesheet": {"image/webp", "RIFF\x1a\x00\x00\x00WEBPVP8L"},
}

// contentWriter applies directives to the bytes of http.ServeContent. It withholds the last
// byte until the journal is complete, as finish does.
type contentWriter struct {
	x     *exchange
	slow  bool
	chunk time.Duration
	cut   int64
	sent  int64
	last  []byte // withheld
	err   error
}

func (c *contentWriter) Header() http.Header { return c.x.w.Header() }

func (c *contentWriter) WriteHeader(status int) {
	c.x.entry.Status = status
	c.x.w.WriteHeader(status)
}

func (c *contentWriter) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}

	n := len(b)
	piece := n
	if c.slow {
		piece = 4 << 10
	}

	for len(b) > 0 && c.err == nil {
		now := b[:min(piece, len(b))]
		b = b[len(now):]
		c.err = c.pass(now)
	}

	if c.err != nil {
		return 0, c.err
	}

	return n, nil
}

func (c *contentWriter) pass(b []byte) error {
	if c.cut != unset && c.sent+int64(len(b)) >= c.cut {
		rest := append(c.last, b...)[:int64(len(c.last))+c.cut-c.sent]
		c.last = nil
		if err := c.x.write(rest, true); err != nil {
			return err
		}
		return errCut
	}

	c.sent += int64(len(b))
	all := slices.Concat(c.last, b)
	c.last = []byte{all[len(all)-1]}
	if err := c.x.write(all[:len(all)-1], c.slow); err != nil {
		return err
	}
	if !c.slow {
		return nil
	}

	return c.x.pause(c.chunk)
}

func (c *contentWriter) end() error {
	if c.err != nil {
		return c.err
	}
	return c.x.finish(c.last)
}

// pattern is content of any size that needs no memory: head, then bytes computed from their
// position.
type pattern struct {
	head string
	size int64
	at   int64
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.at >= p.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.size-p.at))
	for i := range b[:n] {
		b[i] = p.byteAt(p.at + int64(i))
	}
	p.at += int64(n)
	return n, nil
}

func (p *pattern) byteAt(i int64) byte {
	if i < int64(len(p.head)) {
		return p.head[i]
	}
	return byte(i % 251) // a prime, so that shifted content differs
}

func (p *pattern) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += p.at
	case io.SeekEnd:
		offset += p.size
	}
	if offset < 0 {
		return 0, errors.New("seek before start")
	}
	p.at = offset
	return offset, nil
}

// splitForm returns the fields of a multipart form as members of a JSON object. A file for
// input_reference becomes an object with a data URL.
func splitForm(h http.Header, body []byte) (members, error) {
	_, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("parse content type: %w", err)
	}

	m := make(members)
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read part: %w", err)
		}

		value, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("read part %q: %w", p.FormName(), err)
		}

		name, raw := formMember(p, value)
		if _, duplicate := m[name]; duplicate {
			return nil, fmt.Errorf("field %q appears twice", name)
		}

		m[name] = raw
	}
}

func formMember(p *multipart.Part, value []byte) (string, json.RawMessage) {
	name := p.FormName()
	if p.FileName() != "" {
		return name, mustJSON(map[string]string{"image_url": fmt.Sprintf("data:,%d bytes", len(value))})
	}
	if base, inner, ok := strings.Cut(name, "["); ok {
		return base, mustJSON(map[string]string{strings.TrimSuffix(inner, "]"): string(value)})
	}
	return name, mustJSON(string(value))
}
