package session

import (
	"testing"
	"time"
)

// No time is told that depends on Postgres.
func TestBoundIsKnownOnlyIfItDoesNotDependOnPostgres(t *testing.T) {
	t.Parallel()
	const window = 60 * time.Second
	fresh := ActiveSession{Session: 2, Window: window}
	for name, test := range map[string]struct {
		reach Reach
		want  time.Duration
		known bool
	}{
		"no session lacks the change":     {Reach{Read: true}, 0, true},
		"the stream has it":               {Reach{Read: true, Stored: true, Waiting: []ActiveSession{{Session: 1, Window: time.Second}, fresh}}, 63500 * time.Millisecond, true},
		"the stream lacks it":             {Reach{Read: true, Waiting: []ActiveSession{fresh}}, 0, false},
		"sessions that Postgres has lost": {Reach{Read: true, Stored: true, Waiting: []ActiveSession{fresh, {}}}, 0, false},
		"the sessions are not read":       {Reach{Stored: true}, 0, false},
	} {
		if got, known := test.reach.Bound(); known != test.known || known && got != test.want {
			t.Errorf("%s: got %v, known %t; want %v, %t", name, got, known, test.want, test.known)
		}
	}
}
