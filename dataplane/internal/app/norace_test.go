//go:build !race

package app

// hours is how long the longest outages are.
const hours = "4h"
