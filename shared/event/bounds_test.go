package event_test

import (
	"math"
	"strings"
	"testing"

	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Whatever the billing rule, no member that is summed up or that is part of a key has a value that one proxy can make as great as it
// likes.
func TestEventsBeyondWhatIsStoredAreRefused(t *testing.T) {
	t.Parallel()
	spoiled := func(spoil func(u *price.Usage)) (own, attempt func(e *event.Usage)) {
		return func(e *event.Usage) { spoil(&e.Usage) }, func(e *event.Usage) {
			e.Attempts = []event.Attempt{{Route: "rte_0"}, {Route: "rte_1", Class: "timeout"}}
			spoil(&e.Attempts[1].Usage)
		}
	}
	type refused struct {
		spoil func(e *event.Usage)
		want  string
	}
	var tests []refused
	usage := func(want string, spoil func(u *price.Usage)) {
		own, attempt := spoiled(spoil)
		tests = append(tests, refused{own, "event: usage." + want}, refused{attempt, "attempts.usage." + want})
	}
	for i, kind := range price.Kinds {
		for _, n := range []int64{-1, 1<<32 + 1, math.MaxInt64, math.MinInt64} {
			usage(string(kind.Line)+" is", func(u *price.Usage) { *u.Counts()[i] = n })
		}
	}
	usage("secondary.output is -7", func(u *price.Usage) { u.Secondary.Output = -7 })
	usage("secondary.images is", func(u *price.Usage) { u.Secondary.Images = math.MaxInt64 })
	usage("size has 4097 bytes", func(u *price.Usage) { u.Size = strings.Repeat("1", 4097) })
	usage("secondary.kind has 513 bytes", func(u *price.Usage) { u.Secondary.Kind = strings.Repeat("k", 513) })
	usage("secondary.model has 4097 bytes", func(u *price.Usage) { u.Secondary.Model = strings.Repeat("m", 4097) })
	usage("quality is no text", func(u *price.Usage) { u.Quality = "\xff" })
	for _, tier := range []string{"Priority", "auto", "a b", "é", strings.Repeat("a", 33), "a\x00"} {
		usage("service_tier: ", func(u *price.Usage) { u.ServiceTier = tier })
	}
	long := strings.Repeat("m", 513)
	tests = append(tests,
		refused{func(e *event.Usage) { e.Model = long }, "model has 513 bytes"},
		refused{func(e *event.Usage) { e.Format = long }, "format has 513 bytes"},
		refused{func(e *event.Usage) { e.Provider = long }, "provider has 513 bytes"},
		refused{func(e *event.Usage) { e.Route = long }, "route has 513 bytes"},
		refused{func(e *event.Usage) { e.Credential = long }, "credential has 513 bytes"},
		refused{func(e *event.Usage) { e.Status = event.Status(long) }, "unknown status"},
		refused{func(e *event.Usage) { e.Status = "refused" }, `unknown status "refused"`},
		refused{func(e *event.Usage) { e.Status = "" }, `unknown status ""`},
		refused{func(e *event.Usage) { e.Reservation = event.MaxCost + 1 }, "reservation 1000000000000001 is above"},
		refused{func(e *event.Usage) { e.Reservation = math.MaxInt64 }, "is above"},
		refused{func(e *event.Usage) { e.Rule = long }, "rule has 513 bytes"},
		refused{func(e *event.Usage) { e.Doubt = long }, "doubt has 513 bytes"},
		refused{func(e *event.Usage) { e.VideoJob = long }, "video_job has 513 bytes"},
		refused{func(e *event.Usage) { e.ProviderRequestID = strings.Repeat("p", 4097) }, "provider_request_id has 4097 bytes"},
		refused{func(e *event.Usage) { e.HTTPStatus = 1 << 33 }, "http_status is"},
		refused{func(e *event.Usage) { e.FirstByteMS = math.MaxInt64 }, "first_byte_ms is"},
		refused{func(e *event.Usage) { e.Limits = make([]int64, 10) }, "10 limits"},
		refused{func(e *event.Usage) { e.Attempts = make([]event.Attempt, event.MaxAttempts+1) }, "11 attempts"},
		refused{func(e *event.Usage) { e.Attempts = []event.Attempt{{Route: long}} }, "attempts.route has 513 bytes"},
		refused{func(e *event.Usage) { e.Attempts = []event.Attempt{{Class: long}} }, "attempts.class has 513 bytes"},
		refused{func(e *event.Usage) { e.Attempts = []event.Attempt{{MS: -1}} }, "attempts.ms is -1"},
	)
	for _, tt := range tests {
		for _, rule := range []string{event.RuleReported, event.RuleEstimated, event.RuleNone} {
			e := full()
			e.Rule = rule
			tt.spoil(&e)
			if err := e.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
		}
	}

	honest := full()
	honest.Usage.Output, honest.Usage.ServiceTier, honest.FirstByteMS = 1<<32, "priority", 1<<40
	honest.Reservation = event.MaxCost
	honest.Model, honest.Limits, honest.Attempts = strings.Repeat("m", 512), make([]int64, 9), make([]event.Attempt, event.MaxAttempts)
	if err := honest.Validate(); err != nil {
		t.Errorf("an event at the bounds: %v", err)
	}
}
