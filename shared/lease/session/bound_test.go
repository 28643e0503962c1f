package session

import (
	"testing"
	"time"
)

// No time is told that depends on Postgres.
func TestBoundIsKnownOnlyIfItDoesNotDependOnPostgres(t *testing.T) {
	t.Parallel()
	const ttl, window = 30 * time.Second, 60 * time.Second
	inTime := ActiveSession{Session: 1, Remaining: 10 * time.Second}
	fresh := ActiveSession{Session: 2, Remaining: -time.Minute, Window: window}
	for name, test := range map[string]struct {
		reach Reach
		want  time.Duration
		known bool
	}{
		"no session lacks the change":       {Reach{Read: true}, 0, true},
		"a deadline":                        {Reach{Read: true, Waiting: []ActiveSession{inTime}}, 12 * time.Second, true},
		"a window, and the stream has it":   {Reach{Read: true, Stored: true, Waiting: []ActiveSession{fresh}}, 63500 * time.Millisecond, true},
		"the longest of both":               {Reach{Read: true, Stored: true, Waiting: []ActiveSession{inTime, fresh}}, 63500 * time.Millisecond, true},
		"a window, and the stream lacks it": {Reach{Read: true, Waiting: []ActiveSession{inTime, fresh}}, 0, false},
		"sessions that Postgres has lost":   {Reach{Read: true, Stored: true, Waiting: []ActiveSession{{Remaining: ttl}}}, 0, false},
		"the sessions are not read":         {Reach{Stored: true}, 0, false},
	} {
		test.reach.TTL = ttl
		if got, known := test.reach.Bound(); known != test.known || known && got != test.want {
			t.Errorf("%s: got %v, known %t; want %v, %t", name, got, known, test.want, test.known)
		}
	}
}
