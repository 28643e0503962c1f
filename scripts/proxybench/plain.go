package proxybench

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// plain is the minimal proxy: it checks the key, reads the whole prompt, and copies the
// answer. It flushes after each read of a stream.
type plain struct {
	target    *url.URL
	key       [sha256.Size]byte
	transport *http.Transport
	prompts   sync.Pool
	buffers   sync.Pool
}

// Plain returns a minimal proxy in front of a provider, for one key.
func Plain(target *url.URL, key string) http.Handler {
	return &plain{
		target: target,
		key:    sha256.Sum256([]byte(key)),
		transport: &http.Transport{
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
			WriteBufferSize:     16 << 10,
			ReadBufferSize:      16 << 10,
		},
		prompts: sync.Pool{New: func() any { return new(bytes.Buffer) }},
		buffers: sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }},
	}
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if sha256.Sum256([]byte(key)) != p.key {
		http.Error(w, "no such key", http.StatusUnauthorized)
		return
	}

	prompt := p.prompts.Get().(*bytes.Buffer)
	defer p.prompts.Put(prompt) // the provider has read the whole prompt by then
	prompt.Reset()
	if _, err := prompt.ReadFrom(r.Body); err != nil {
		return // the client has closed the connection
	}

	to := *p.target
	to.Path = r.URL.Path
	out := (&http.Request{
		Method:        r.Method,
		URL:           &to,
		Host:          p.target.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Authorization": {"Bearer provider"}, "Content-Type": r.Header["Content-Type"], "User-Agent": {"plain"}},
		Body:          io.NopCloser(bytes.NewReader(prompt.Bytes())),
		ContentLength: int64(prompt.Len()),
	}).WithContext(r.Context())
	answer, err := p.transport.RoundTrip(out)
	if err != nil {
		http.Error(w, "no answer", http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	p.relay(w, answer)
}

func (p *plain) relay(w http.ResponseWriter, answer *http.Response) {
	for _, name := range []string{"Content-Type", "Content-Length"} {
		if v := answer.Header[name]; v != nil {
			w.Header()[name] = v
		}
	}

	w.WriteHeader(answer.StatusCode)
	buffer := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buffer)

	for {
		n, err := answer.Body.Read(*buffer)
		_, _ = w.Write((*buffer)[:n])
		if answer.ContentLength < 0 {
			_ = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return
		}
	}
}
