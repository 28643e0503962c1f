// Package view turns values of the admin API into what pages show: times, states, ids, durations
// and bars. It knows neither HTTP nor the API's client.
//
// Money is never computed with: every digit of the API's text is shown.
package view

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Badge is a state: a word with a colour and a sign, so that nobody depends on colours.
type Badge struct{ Kind, Word string }

// states are the kinds of the states of the API.
var states = map[string]string{
	"ok":          "good",
	"active":      "good",
	"completed":   "good",
	"enabled":     "good",
	"live":        "good",
	"ready":       "good",
	"settled":     "good",
	"delivered":   "good",
	"explained":   "good",
	"suspended":   "warn",
	"warning":     "warn",
	"pending":     "warn",
	"running":     "info",
	"draining":    "warn",
	"queued":      "info",
	"in_progress": "info",
	"expiring":    "warn",
	"paused":      "warn",
	"half_open":   "warn",
	"client_gone": "warn",
	"maintenance": "warn",
	"cancelled":   "warn",
	"disabled":    "idle",
	"revoked":     "idle",
	"expired":     "idle",
	"fenced":      "warn",
	"failure":     "bad",
	"failed":      "bad",
	"open":        "bad",
	"overdue":     "bad",
	"unknown":     "bad",
	"stuck":       "bad",
	"refused":     "bad",
}

// State returns the badge of a state of the API.
func State(state string) Badge {
	kind := states[state]
	if kind == "" {
		kind = "idle"
	}
	return Badge{kind, strings.ReplaceAll(state, "_", " ")}
}

// HTTPStatus returns the badge of a status code.
func HTTPStatus(code int) Badge {
	kind := "bad"
	switch {
	case code < 400:
		kind = "good"
	case code < 500:
		kind = "warn"
	}
	return Badge{kind, strconv.Itoa(code)}
}

// Ago returns how long ago a time was, such as "3 min ago".
func Ago(at, now time.Time) string {
	d := now.Sub(at)
	if d < 0 {
		return "in " + span(-d)
	}
	if d < time.Second {
		return "now"
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d d", int(d.Hours()/24))
	}
}

// UTC returns the exact time.
func UTC(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// Milliseconds returns a duration, such as "84 ms" or "4.2 s".
func Milliseconds(ms int64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("%d ms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%d.%d s", ms/1000, ms%1000/100)
	default:
		return fmt.Sprintf("%d min %d s", ms/60_000, ms%60_000/1000)
	}
}

// Rule returns a sentence about a billing rule of the API.
func Rule(rule string) string {
	switch rule {
	case "reported":
		return "those that the provider reported."
	case "estimated":
		return "estimated from what was sent and delivered."
	case "none":
		return "none: nothing is charged for this request."
	}
	return rule + "."
}

// Doubt returns a sentence about why the provider's report of the usage was not taken as it was.
func Doubt(reason string) string {
	switch reason {
	case "missing":
		return "The provider reported none."
	case "interrupted":
		return "The answer broke off before the provider reported them."
	case "unreadable":
		return "The provider reported what is no number."
	case "no_input":
		return "The provider reported no input, although there was output."
	case "low_input":
		return "The provider reported far less input than the text of the request has."
	case "low_output":
		return "The provider reported less than half of the output that was delivered."
	case "high_input", "high_output", "high_other":
		return "The provider reported more than the request allows."
	case "unpriced":
		return "The provider reported quantities that have no price."
	case "ambiguous":
		return "The report has several meanings, of which the cheapest was taken."
	}
	return reason + "."
}

// Hours returns how long something lasts, such as "5 h" or "12 d"; "under 1 h" for nothing.
func Hours(hours int64) string {
	switch {
	case hours < 1:
		return "under 1 h"
	case hours < 72:
		return strconv.FormatInt(hours, 10) + " h"
	case hours >= 365*24:
		return "over 1 year"
	default:
		return Count(hours/24) + " d"
	}
}

// Count returns a number in groups of three digits, such as "1 204 117".
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	return sign + grouped(digits)
}

// Segments cuts an address after the slashes of its path, where it may be broken.
func Segments(address string) []string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return strings.SplitAfter(address, "/")
	}
	parts := strings.SplitAfter(rest, "/")
	parts[0] = scheme + "://" + parts[0]
	return parts
}

// ShortID returns the beginning and the end of an id, such as "acc_0192f0…a2b3".
func ShortID(id string) string {
	kind, rest, ok := strings.Cut(id, "_")
	if !ok || len(rest) <= 12 {
		return id
	}
	return kind + "_" + rest[:6] + "…" + rest[len(rest)-4:]
}

// objects are the pages of objects by the kind of their ids.
var objects = map[string]string{
	"acc":   "accounts",
	"key":   "keys",
	"prj":   "projects",
	"lim":   "limits",
	"req":   "requests",
	"whe":   "webhooks",
	"dlv":   "deliveries",
	"video": "video-jobs",
	"chk":   "money/checks",
}

// Object returns the address of the page about an id, which words may stand before; "" if there is none.
func Object(text string) string {
	id := text[strings.LastIndexByte(text, ' ')+1:]
	kind, rest, ok := strings.Cut(id, "_")
	if page := objects[kind]; ok && page != "" && strings.Trim(rest, "0123456789abcdef") == "" {
		return "/console/" + page + "/" + id
	}
	return ""
}

// Negative reports whether a decimal is below zero.
func Negative(decimal string) bool {
	return strings.HasPrefix(decimal, "-") && strings.Trim(decimal, "-0.") != ""
}

// Part is one part of a bar, with its position and width in thousandths of the bar.
type Part struct {
	Kind, Name, Text string
	From, Width      int
}

// Bar returns the parts of a whole, from decimals; parts that are below zero have no width. Nothing else is computed from
// the decimals, and the widths are only drawn.
func Bar(parts ...Part) []Part {
	sum := new(big.Rat)
	values := make([]*big.Rat, len(parts))
	for i, p := range parts {
		v, ok := new(big.Rat).SetString(p.Text)
		if !ok || v.Sign() < 0 {
			v = new(big.Rat)
		}
		values[i] = v
		sum.Add(sum, v)
	}

	if sum.Sign() == 0 {
		return parts
	}

	at := 0
	for i := range parts {
		share, _ := new(big.Rat).Quo(values[i], sum).Float64()
		parts[i].From, parts[i].Width = at, int(share*1000+0.5)
		at += parts[i].Width
	}

	return parts
}

// IDTime returns the time in an id, which is a kind and a UUID of version 7; false if it is none.
func IDTime(id string) (at time.Time, ok bool) {
	_, text, _ := strings.Cut(id, "_")
	if uuid, err := hex.DecodeString(text); err != nil || len(uuid) != 16 || uuid[6]>>4 != 7 {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(text[:12], 16, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}
