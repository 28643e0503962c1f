package session

import (
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/lease/session"
)

func TestRemainingTimeOfASessionRunsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &Session{clock: func() session.Instant {
			elapsed := time.Since(began)
			return session.Instant{Mono: elapsed, Boot: elapsed + time.Second}
		}}
		if got := s.Remaining(); got != 0 {
			t.Errorf("%s left before the session is registered", got)
		}
		s.refresh(s.clock().Add(10 * time.Second))
		time.Sleep(4 * time.Second)
		if got := s.Remaining(); got != 6*time.Second {
			t.Errorf("%s left; want 6s", got)
		}
		time.Sleep(time.Minute)
		if got := s.Remaining(); got != 0 {
			t.Errorf("%s left after the end", got)
		}
	})
}
