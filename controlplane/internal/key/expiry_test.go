package key_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/key"
)

func TestNextExpiryEvent(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ expiresIn, want time.Duration }{
		"in a year":               {365 * day, 358 * day},
		"in more than seven days": {7*day + 1, 1},
		"in seven days":           {7 * day, 6 * day},
		"in more than a day":      {day + time.Second, time.Second},
		"in a day":                {day, day},
		"in a second":             {time.Second, time.Second},
		"now":                     {0, -1},
		"long ago":                {-day, -1},
	} {
		got := key.NextExpiryEvent(new(now.Add(test.expiresIn)), now)
		switch {
		case test.want < 0 && got != nil:
			t.Errorf("%s: an event at %s; want none", name, got)
		case test.want >= 0 && (got == nil || !got.Equal(now.Add(test.want))):
			t.Errorf("%s: the next event is at %v; want %s", name, got, now.Add(test.want))
		}
	}
	if got := key.NextExpiryEvent(nil, now); got != nil {
		t.Errorf("a key that does not expire: an event at %s", got)
	}
}
