package readon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOldestCallOfAnAccountGivesWay(t *testing.T) {
	t.Parallel()
	var calls Calls
	var cancelled []string
	begin := func(account string, slots int64, name string) *Call {
		return calls.Begin(account, slots, func() { cancelled = append(cancelled, name) })
	}
	first := begin("a", 2, "a1")
	begin("b", 1, "b1")
	begin("a", 2, "a2")
	begin("c", 0, "c1")
	begin("c", 0, "c2")
	begin("a", 2, "a3")
	first.End() // it was cancelled
	begin("b", 1, "b2").End()
	begin("b", 1, "b3")
	if diff := cmp.Diff([]string{"a1", "b1"}, cancelled); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
}

func TestBytesOfAllCallsAreBounded(t *testing.T) {
	t.Parallel()
	var calls Calls
	var cancelled []string
	begin := func(name string) *Call { return calls.Begin(name, 1, func() { cancelled = append(cancelled, name) }) }
	first, second, third := begin("a"), begin("b"), begin("c")
	first.Read(MaxBytes / 2)
	second.Read(MaxBytes / 2)
	third.Read(1)
	first.Read(MaxBytes)
	second.End()
	fourth := begin("d")
	fourth.Read(MaxBytes - 1)
	if diff := cmp.Diff([]string{"a"}, cancelled); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
	fourth.Read(1)
	if calls.bytes != MaxBytes || len(calls.running) != 1 {
		t.Errorf("%d bytes of %d calls", calls.bytes, len(calls.running))
	}
}
