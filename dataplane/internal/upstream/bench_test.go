package upstream

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"modelgateway/dataplane/internal/provider"
)

// BenchmarkCall measures calls on a connection that is reused each time.
func BenchmarkCall(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, size := range []int{1 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("tls=%v/prompt=%d", secure, size), func(b *testing.B) {
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, `{"ok":true}`)
				})
				server := httptest.NewUnstartedServer(handler)
				if secure {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				c := New(Limits{})
				defer c.Close()
				call := call(server.URL)
				if secure {
					_, roots := testCertificate()
					trust(b, c, call.Provider, roots)
				}
				prompt := bytes.Repeat([]byte("x"), size)
				b.ReportAllocs()
				for b.Loop() {
					call.Body = provider.NewBody(prompt, nil)
					answer, err := c.Do(b.Context(), &call)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
					call.Body.Release()
				}
			})
		}
	}
}
