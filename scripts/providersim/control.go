package providersim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func isControl(path string) bool { return strings.HasPrefix(path, "/_sim/") }

// control serves the control paths, which need no credential and are not in the journal.
func (s *Sim) control(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, "/_sim/images/"); ok {
		s.serveImage(w, id)
		return
	}

	if id, ok := strings.CutPrefix(r.URL.Path, "/_sim/rules/"); ok && r.Method == http.MethodDelete {
		if !s.rules.remove(id) {
			controlError(w, http.StatusNotFound, "no such rule")
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}

	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/_sim/") {
	case "GET rules":
		writeJSON(w, http.StatusOK, s.rules.all())
	case "POST rules":
		s.postRule(w, r)
	case "DELETE rules":
		s.ClearRules()
		w.WriteHeader(http.StatusNoContent)
	case "GET journal":
		s.getJournal(w, r)
	case "DELETE journal":
		s.ClearJournal()
		w.WriteHeader(http.StatusNoContent)
	case "GET stats":
		writeJSON(w, http.StatusOK, s.Stats())
	case "GET directives":
		writeJSON(w, http.StatusOK, Directives())
	case "POST reset":
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	default:
		controlError(w, http.StatusNotFound, "no such control path")
	}
}

func (s *Sim) postRule(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rule); err != nil {
		controlError(w, http.StatusBadRequest, err.Error())
		return
	}
	id, err := s.AddRule(rule)
	if err != nil {
		controlError(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusCreated, map[string]string{"id": id})
}

// getJournal answers ?since=SEQ&model=M&format=ndjson&wait_ms=N. wait_ms is how long it
// waits for the end of running requests.
func (s *Sim) getJournal(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	since, err := optionalInt(q.Get("since"))
	if err != nil {
		controlError(w, http.StatusBadRequest, "since is not a number")
		return
	}

	wait, err := optionalInt(q.Get("wait_ms"))
	if err != nil {
		controlError(w, http.StatusBadRequest, "wait_ms is not a number")
		return
	}

	if wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Millisecond)
		defer cancel()
		_ = s.WaitIdle(ctx) // entries of running requests are not Done
	}

	entries := s.journal.since(since, q.Get("model"))
	if q.Get("format") == "ndjson" {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = w.Write(ndjson(entries))
		return
	}

	writeJSON(w, http.StatusOK, entries)
}

func optionalInt(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read number: %w", err)
	}
	return n, nil
}

func controlError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"error": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(mustJSON(v), '\n'))
}
