//go:build race

package app

import "time"

// hours is how long the longest outages are: less than without the race detector, which makes them take ten times as long.
const hours = 30 * time.Minute
