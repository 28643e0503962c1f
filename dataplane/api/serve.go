package api

import (
	"fmt"
	"net/http"
	"sync"

	"modelgateway/shared/platform/apidoc/apipage"
)

// Register adds the document, /openapi.yaml, and the page rendered from it,
// /docs, to a mux. Neither needs a key.
func Register(mux *http.ServeMux) {
	page := sync.OnceValues(func() ([]byte, error) { // rendered at the first request
		site, err := apipage.New(Document)
		if err != nil {
			return nil, fmt.Errorf("api: %w", err)
		}
		return site.Page(), nil
	})

	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(Document) // fails if the client has disconnected
	})

	mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		text, err := page()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", apipage.Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(text) // fails if the client has disconnected
	})
}
