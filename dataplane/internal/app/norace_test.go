//go:build !race

package app

import "time"

// hours is how long the longest outages are.
const hours = 4 * time.Hour
