package httpapi

import (
	"time"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

// readDay reads a UTC day, the zero time where there is none.
func readDay(invalid *validation.Errors, path string, text *gen.Day) time.Time {
	if text == nil {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, *text)
	if err != nil || day.Year() < 1 {
		invalid.Add(path, "must be a day such as 2026-10-01")
	}
	return day
}

// dayView is a UTC day as it is written, nil for none.
func dayView(day time.Time, wanted bool) *gen.Day {
	if !wanted {
		return nil
	}
	text := day.Format(time.DateOnly)
	return &text
}
