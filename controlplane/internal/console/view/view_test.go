package view

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTimesAndNumbers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 3, 9, 0, 0, 0, time.UTC)
	for got, want := range map[string]string{
		Ago(now.Add(-90*time.Second), now): "1 min ago", Ago(now, now): "now", Ago(now.Add(-50*time.Hour), now): "2 d ago", Ago(now.Add(time.Hour), now): "in 1 h",
		UTC(now):         "2026-03-03 09:00:00.000 UTC",
		Milliseconds(84): "84 ms", Milliseconds(4_260): "4.2 s", Milliseconds(61_000): "1 min 1 s",
		Hours(0): "under 1 h", Hours(71): "71 h", Hours(72): "3 d", Hours(9000): "over 1 year",
		Count(1_204_117): "1\u202f204\u202f117", Count(-100): "−100",
		ShortID("acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3"): "acc_0192f0…a2b3", ShortID("example"): "example",
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

func TestIDTime(t *testing.T) {
	t.Parallel()
	at, ok := IDTime("req_0192f0c1d2e37a4b8c5d6e7f8091a2b3")
	if want := time.UnixMilli(0x0192f0c1d2e3); !ok || !at.Equal(want) {
		t.Errorf("got %s, %v; want %s", at, ok, want)
	}
	for _, id := range []string{"", "req_", "req_none", "req_0192f0c1d2e34a4b8c5d6e7f8091a2b3", "req_0192f0c1d2e37a4b8c5d6e7f8091a2b3ff"} {
		if _, ok := IDTime(id); ok {
			t.Errorf("%q has a time", id)
		}
	}
}

func TestNegative(t *testing.T) {
	t.Parallel()
	for decimal, want := range map[string]bool{"-0.01": true, "-0.000": false, "0": false, "12": false} {
		if got := Negative(decimal); got != want {
			t.Errorf("Negative(%q) = %v", decimal, got)
		}
	}
}

// Amounts keep their text; only the widths are computed, also from more digits than a float has.
func TestBarDrawsShares(t *testing.T) {
	t.Parallel()
	got := Bar(Part{Kind: "free", Text: "750000000000000000.000000001"}, Part{Kind: "held", Text: "250000000000000000"}, Part{Kind: "bad", Text: "-1"})
	want := []Part{{Kind: "free", Text: "750000000000000000.000000001", Width: 750}, {Kind: "held", Text: "250000000000000000", From: 750, Width: 250}, {Kind: "bad", Text: "-1", From: 1000}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAddressesAreCutAfterSlashes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]string{
		"https://api.example.com/v1/messages": {"https://api.example.com/", "v1/", "messages"},
		"https://api.example.com":             {"https://api.example.com"},
		"/v1/models":                          {"/", "v1/", "models"},
	} {
		if got := Segments(address); !slices.Equal(got, want) {
			t.Errorf("%s: got %q; want %q", address, got, want)
		}
	}
}
