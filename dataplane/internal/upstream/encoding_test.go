package upstream

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// encoders returns writers that compress, by the name that an answer declares.
func encoders(t *testing.T) map[string]func(io.Writer) io.WriteCloser {
	t.Helper()
	return map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"X-GZIP":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"Deflate": func(w io.Writer) io.WriteCloser {
			z, err := flate.NewWriter(w, 5)
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
	}
}

func TestCompressedAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		content := strings.Repeat("an answer that nobody wanted compressed ", 1000)
		for name, encode := range encoders(t) {
			c, done := serve(t, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", name)
				w.WriteHeader(http.StatusBadRequest)
				z := encode(w)
				_, _ = io.WriteString(z, content)
				_ = z.Close()
			})
			call := to("")
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil || string(body) != content || answer.Length != -1 || answer.Header.Get("Content-Encoding")+answer.Header.Get("Content-Length") != "" {
				t.Errorf("%s: got %.40q of %d bytes, %v, header %v", name, body, len(body), err, answer.Header)
			}
			if err := answer.Body.Close(); err != nil {
				t.Error(err)
			}
			done()
		}
	})
}

// An event that the provider has flushed does not wait for the next one.
func TestCompressedStreamsArriveAtOnce(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		for name, encode := range encoders(t) {
			read := make(chan struct{})
			c, done := serve(t, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", name)
				z := encode(w)
				for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
					_, _ = io.WriteString(z, event)
					_ = z.(interface{ Flush() error }).Flush()
					_ = http.NewResponseController(w).Flush()
					<-read
				}
				_ = z.Close()
			})
			call := to("")
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(answer.Body, got); err != nil || string(got) != want {
					t.Errorf("%s: got %q, %v", name, got, err)
				}
				read <- struct{}{}
			}
			_ = answer.Body.Close()
			done()
		}
	})
}

func TestBodiesThatCannotBeDecodedAreEmptyOrBroken(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		var whole bytes.Buffer
		z := gzip.NewWriter(&whole)
		_, _ = io.WriteString(z, "content")
		_ = z.Close()
		for _, tt := range []struct {
			encoding, body string
			status         int
			broken         bool
		}{
			{"br", "data: secret\n\n", 200, false},
			{"gzip, gzip", whole.String(), 200, false},
			{"gzip", whole.String(), 206, false},
			{"gzip", "{}", 200, true},
			{"gzip", whole.String()[:20], 200, true},
			{"deflate", "\x78\x9cx", 200, true},
			{"gzip", "", 400, false},
			{"deflate", "", 400, false},
			{"zstd", "{}{}{}{}", 200, true},
		} {
			c, done := serve(t, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", tt.encoding)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			call := to("")
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if len(body) > 0 && !tt.broken || (err != nil) != tt.broken {
				t.Errorf("%s of %q: got %q, %v", tt.encoding, tt.body, body, err)
			}
			_ = answer.Body.Close()
			done()
		}
	})
}

// compressed returns the text as a gzip file.
func compressed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMarksAndUndeclaredCompressionAreRemovedFromTexts(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		const mark, json, event, video = "\xef\xbb\xbf", `{"a":"\u00ef\u00bb"}`, "data: 1\n\n", "video/mp4"
		for _, tt := range []struct {
			media, encoding, body, want string
			status                      int
			broken                      bool
		}{
			{media: "application/json", body: mark + json, want: json},
			{media: "text/event-stream; charset=utf-8", body: mark + event, want: event},
			{media: "", body: mark + json, want: json},
			{media: "application/problem+JSON", body: mark + json, want: json, status: 400},
			{media: "application/json", body: compressed(t, json), want: json},
			{media: "application/json", encoding: "identity", body: compressed(t, json), want: json, status: 529},
			{media: "Text/Event-Stream", body: compressed(t, mark+event), want: event},
			{media: "", body: compressed(t, event), want: event},
			{media: "application/json", encoding: "gzip", body: compressed(t, mark+json), want: json},
			{media: "application/json", body: compressed(t, json)[:25], broken: true},
			// Nothing is made of what only begins alike, or is no text.
			{media: "application/json", body: mark[:2], want: mark[:2]},
			{media: "application/json", body: mark, want: ""},
			{media: "application/json", body: "\x1f\x8b", want: "\x1f\x8b"},
			{media: "application/json", body: mark + mark + json, want: mark + json},
			{media: "text/plain", body: json + mark, want: json + mark},
			{media: video, body: compressed(t, json), want: compressed(t, json)},
			{media: video, body: mark + json, want: mark + json},
			{media: "text/plain", status: 206, body: mark + json, want: mark + json},
		} {
			for _, piece := range []int{1, 2, 4096} {
				c, done := serve(t, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
					w.Header()["Content-Type"] = nil
					if tt.media != "" {
						w.Header().Set("Content-Type", tt.media)
					}
					if tt.encoding != "" {
						w.Header().Set("Content-Encoding", tt.encoding)
					}
					w.WriteHeader(max(tt.status, 200))
					for rest := tt.body; rest != ""; rest = rest[min(piece, len(rest)):] {
						_, _ = io.WriteString(w, rest[:min(piece, len(rest))])
						_ = http.NewResponseController(w).Flush()
					}
				})
				call := to("")
				answer, err := c.Do(t.Context(), &call)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(answer.Body)
				if string(body) != tt.want && !tt.broken || (err != nil) != tt.broken {
					t.Errorf("%s %s %q in pieces of %d: got %q, %v; want %q", tt.media, tt.encoding, tt.body, piece, body, err, tt.want)
				}
				_ = answer.Body.Close()
				done()
			}
		}
	})
}
