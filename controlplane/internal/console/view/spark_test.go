package view

import "testing"

func TestSparkLeavesGapsForUnknownValues(t *testing.T) {
	t.Parallel()
	if got := Spark([]*float64{new(0.0), new(1.0), nil, new(2.0), new(1.0)}); got != "M0.0 23.0L30.0 12.0M90.0 1.0L120.0 12.0" {
		t.Errorf("got %s", got)
	}
	for _, values := range [][]*float64{nil, {nil}, {new(1.0)}, {new(1.0), nil}} {
		if got := Spark(values); got != "" {
			t.Errorf("of fewer than two values: got %s", got)
		}
	}
	if got := Spark([]*float64{new(0.0), new(0.0)}); got != "M0.0 23.0L120.0 23.0" {
		t.Errorf("of zeros: got %s", got)
	}
}
