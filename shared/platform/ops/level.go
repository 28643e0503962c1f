package ops

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
)

// maxLevelText bounds the body of a request for another level, in bytes.
const maxLevelText = 64

// serveLevel answers GET with the lowest level that is logged, and sets it to the one in the body of a PUT. A PUT must
// come from the process's own machine, for example through kubectl port-forward: the ops listener has no
// authentication.
func serveLevel(mux *http.ServeMux, level *slog.LevelVar, log *slog.Logger) {
	mux.HandleFunc("GET /loglevel", func(w http.ResponseWriter, _ *http.Request) { writeLevel(w, level) })
	mux.HandleFunc("PUT /loglevel", func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			http.Error(w, "the level is only set from the same machine, for example through kubectl port-forward", http.StatusForbidden)
			return
		}

		text, err := io.ReadAll(io.LimitReader(r.Body, maxLevelText))
		if err != nil {
			http.Error(w, "the body was not read", http.StatusBadRequest)
			return
		}

		var wanted slog.Level
		if err := wanted.UnmarshalText([]byte(strings.TrimSpace(string(text)))); err != nil {
			http.Error(w, "the body must be debug, info, warn or error", http.StatusBadRequest)
			return
		}

		before := level.Level()
		level.Set(wanted)
		// At the higher of the two levels, and so in the log in any case: it explains why other lines begin or end.
		log.Log(r.Context(), max(before, wanted, slog.LevelInfo), "log level changed", "from", before.String(), "to", wanted.String())
		writeLevel(w, level)
	})
}

func writeLevel(w http.ResponseWriter, level *slog.LevelVar) {
	_, _ = io.WriteString(w, level.Level().String()+"\n") // fails if the caller has hung up
}
