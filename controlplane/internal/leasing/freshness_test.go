package leasing

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/wire"
)

// registrar registers every proxy.
type registrar struct{ Store }

func (registrar) Register(context.Context, *wire.RegisterRequest, time.Duration) (*wire.RegisterResponse, error) {
	return &wire.RegisterResponse{V: wire.Version, Status: wire.Done, Session: 1}, nil
}

// Planes of which only one can do it follow the rules without freshness.
func TestSessionNeedsFreshnessIfBothPlanesCanDoIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		window time.Duration
		able   bool
		want   int64
	}{{0, true, 0}, {10 * time.Second, false, 0}, {10 * time.Second, true, 10_000}} {
		s := New(Config{FreshnessWindow: test.window}, registrar{}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		response, err := s.Register(t.Context(), &wire.RegisterRequest{V: wire.Version, Freshness: test.able})
		if err != nil || response.FreshnessMS != test.want {
			t.Errorf("window %v, proxy that can do it: %t: got %d ms, %v; want %d", test.window, test.able, response.FreshnessMS, err, test.want)
		}
	}
}
