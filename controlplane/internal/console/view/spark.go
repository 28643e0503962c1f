package view

import (
	"fmt"
	"strings"
)

// The size of a sparkline in its own units.
const (
	SparkWidth  = 120
	SparkHeight = 24
)

// Spark returns the path of a line through values, for an SVG of SparkWidth × SparkHeight; "" if fewer than two values are
// known. A nil value is unknown and leaves a gap.
func Spark(values []*float64) string {
	known, top := 0, 0.0
	for _, v := range values {
		if v != nil {
			known++
			top = max(top, *v)
		}
	}

	if known < 2 {
		return ""
	}
	if top == 0 {
		top = 1
	}

	var path strings.Builder
	pen := "M"
	for i, v := range values {
		if v == nil {
			pen = "M"
			continue
		}
		// One unit is left free at both edges for the width of the line.
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, float64(i)*SparkWidth/float64(len(values)-1), 1+(SparkHeight-2)*(1-*v/top))
		pen = "L"
	}

	return path.String()
}
