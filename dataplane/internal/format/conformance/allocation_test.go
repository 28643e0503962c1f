package conformance

import (
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/catalogkv"
)

// An event allocates no memory, whether it is rewritten or not.
func TestEventAllocatesNothing(t *testing.T) {
	for name, s := range streams() {
		for _, model := range []string{"m", "another-model"} {
			a := answerFor(t, s.f, model, false)
			var splitter sse.Splitter
			splitter.Feed(s.events)
			ev, ok := splitter.Next()
			if !ok {
				t.Fatal("no event")
			}
			dst, kind := a.Event(make([]byte, 0, 1024), ev)
			if kind != format.Content {
				t.Errorf("%s: the event is %v", name, kind)
			}
			if n := testing.AllocsPerRun(100, func() { dst, _ = a.Event(dst[:0], ev) }); n != 0 {
				t.Errorf("%s as %s: %v allocations an event", name, model, n)
			}
		}
	}
}

func TestRequestAllocatesIndependentlyOfItsSize(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector sync.Pool drops objects at random")
	}
	for name, body := range requestBodies() {
		obj := parse(t, string(body))
		d := dialects[catalogkv.Chat]
		target := format.Target{Model: "upstream-name", Policy: d.Policy(), IdentityFunc: func(string) string { return "u_0123456789" }}
		dst := make([]byte, 0, len(body)+1024)
		n := testing.AllocsPerRun(20, func() {
			r, e := d.Read(obj)
			if e != nil {
				t.Fatal(e)
			}
			if e := r.Check(d.Policy(), format.Rules{}); e != nil {
				t.Fatal(e)
			}
			dst = r.AppendUpstream(dst[:0], target)
			d.NewAnswer(format.AnswerConfig{Request: r}).Release()
			r.Release()
		})
		if n > 8 {
			t.Errorf("%s: %v allocations a request", name, n)
		}
	}
}
