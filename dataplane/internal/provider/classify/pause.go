package classify

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// minPause and maxPause bound the pause that the client gets.
	minPause = time.Second
	maxPause = 60 * time.Second
	// maxProviderPause bounds the pause that is read from an answer.
	maxProviderPause = 366 * 24 * time.Hour
)

// pauseHeaders are read in this order. The reset headers give the time when a budget is
// full again, which can be long after the time when one request fits, so they are read
// last, after the prose.
var (
	pauseHeaders = []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "Retry-After"}
	resetHeaders = []string{
		"X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Reset-After", "X-Ratelimit-Reset", "Ratelimit-Reset",
		"Anthropic-Ratelimit-Requests-Reset", "Anthropic-Ratelimit-Tokens-Reset",
		"Anthropic-Ratelimit-Input-Tokens-Reset", "Anthropic-Ratelimit-Output-Tokens-Reset",
	}
)

// findPause returns the pause that an answer gives, 0 if it gives none. It reads headers
// first, then members of the body, then prose.
func findPause(h http.Header, u unwrapped, now time.Time) time.Duration {
	for _, name := range pauseHeaders {
		if d, ok := parsePause(memberName(name), h.Get(name), now); ok {
			return d
		}
	}

	for _, f := range u.pauses {
		if d, ok := parsePause(f.name, f.text, now); ok {
			return d
		}
	}

	for _, l := range u.levels {
		if d, ok := pauseInProse(l.text, now); ok {
			return d
		}
	}

	return latestReset(h, now)
}

// latestReset returns the longest time until the reset of a used-up budget. Budgets that are not used up are ignored.
func latestReset(h http.Header, now time.Time) time.Duration {
	var longest time.Duration
	for _, name := range resetHeaders {
		text := h.Get(name)
		if text == "" {
			continue
		}
		if left := h.Get(strings.Replace(name, "Reset", "Remaining", 1)); left != "" && left != "0" &&
			!strings.Contains(name, "Anthropic") {
			continue
		}
		if d, ok := parsePause(memberName(name), text, now); ok {
			longest = max(longest, d)
		}
	}
	return longest
}

// clampPause rounds a pause up to whole seconds within minPause and maxPause.
func clampPause(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	rounded := (d + time.Second - 1).Truncate(time.Second)
	return min(max(rounded, minPause), maxPause)
}

// parsePause parses the value of a header or member. A bare number means seconds, unless
// the name ends with a unit of milliseconds or the number is so large that it is a Unix
// time.
func parsePause(name, text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return pauseNumber(name, n, now)
	}
	if at, ok := parseMoment(text); ok {
		return positive(at.Sub(now))
	}
	if d, rest, ok := leadingDuration(text); ok && strings.TrimSpace(rest) == "" {
		return positive(d)
	}
	return pauseInProse(text, now)
}

func pauseNumber(name string, n float64, now time.Time) (time.Duration, bool) {
	switch {
	case math.IsNaN(n) || math.IsInf(n, 0) || n < 0:
		return 0, false
	case n > 1e12:
		return positive(time.UnixMilli(int64(math.Min(n, 1e15))).Sub(now))
	case n > 1e9:
		return positive(time.Unix(int64(n), 0).Sub(now))
	case strings.HasSuffix(name, "ms") || strings.HasSuffix(name, "milliseconds"):
		return positive(time.Duration(n * float64(time.Millisecond)))
	default:
		return positive(time.Duration(math.Min(n, maxProviderPause.Seconds()) * float64(time.Second)))
	}
}

// positive turns a pause of zero or in the past into the shortest pause, so that it
// differs from no pause.
func positive(d time.Duration) (time.Duration, bool) {
	return min(max(d, time.Nanosecond), maxProviderPause), true
}

func parseMoment(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, time.RFC1123, time.RFC850, time.ANSIC, time.RFC1123Z, "2006-01-02 15:04:05 MST", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// Patterns of durations in prose: without blanks ("1h43m56s"), with blanks ("2 minutes 30
// seconds"), in Chinese, or in Russian.
const (
	numberText    = `\d+(?:\.\d+)?`
	latinDuration = numberText + `\s*(?:milliseconds?|millis|msecs?|ms|microseconds?|us|seconds?|secs?|s|sekunden?|secondes?|segundos?|second[oi]|minutes?|minuten?|minutos?|minut[oi]|mins?|m|hours?|hrs?|h|stunden?|heures?|horas?|or[ae]|days?|d)\b`
	rusDuration   = numberText + `\s*(?:мс|секунд[уы]?|сек|с|минут[уы]?|мин|час(?:а|ов)?|д(?:ень|ня|ней))(?:[^\p{L}]|$)`
	hanDuration   = numberText + `\s*(?:毫秒|秒钟|秒|分钟|分|小时|天|초|분|시간)`
	durationText  = `(?:` + numberText + `(?:ms|[dhms]))+\b|` + latinDuration + `(?:(?:\s|,|and)*` + latinDuration + `)*|(?:` + hanDuration + `)+|` + rusDuration
)

var (
	onePart = lazily(`^[\s,]*(?:and\s+)?(\d+(?:\.\d+)?)\s*([a-zµ]+|[а-я]+|毫秒|秒钟|秒|分钟|分|小时|天|초|분|시간)`)
	// prosePauses are the phrases that contain a pause, the most specific first.
	prosePauses = []*expression{
		lazily(
			`(?i)(?:try|retry|again|wait|available|reset|resets|back|expires?|resume|send|regain)[^.\n]{0,60}?\b(?:in|after|for|within|at least)\s*:?\s*(?:about |approximately |~)?(` + durationText + `)`,
		),
		lazily(`(?i)\bwait\s+(?:about |at least |approximately |~)?(` + durationText + `)`),
		lazily(`(?i)(?:retry[ _-]?after|retry[ _-]?delay|reset[ _-]?delay|reset[ _-]?after|retry in)\W{0,4}(` + durationText + `)`),
		lazily(`(?:请在|请于|请等待|请|等待|在)\s*(` + durationText + `)\s*(?:后|之后|再)`),
		lazily(`(` + durationText + `)\s*(?:后|之后)\s*(?:再|重)`),
		lazily(`(?i)(?:через|подождите|спустя)\s*(` + durationText + `)`),
		lazily(`(?i)(?:versuchen|warten|erneut)\b[^\n.]{0,20}?\b(?:in|nach|noch)?\s*(` + durationText + `)`),
		lazily(`(?i)(?:essayez|intente|inténtelo|tente|riprov\p{L}*|patientez|espere|aguarde|attend\p{L}*)[^\n.]{0,30}?\s(` + durationText + `)`),
		lazily(`(` + durationText + `)\s*(?:後|待って|후|뒤)`),
	}
	proseNumbers = []struct {
		pattern *expression
		unit    time.Duration
	}{
		{lazily(`(?i)retry[ _-]?after[ _-]?ms\W{0,4}(\d+(?:\.\d+)?)`), time.Millisecond},
		{lazily(`(?i)retry[ _-]?(?:after|delay|in)(?:[ _-]?seconds)?\W{0,4}(\d+(?:\.\d+)?)(?:[^\w.:/-]|\.?\s|\.?$)`), time.Second},
	}
	proseMoment = lazily(
		`(?i)(?:reset|retry|again|until|available|regain)[^\n]{0,80}?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?UTC|Z|[+-]\d\d:\d\d)?)`,
	)
)

// pauseInProse finds a pause in a sentence.
func pauseInProse(text string, now time.Time) (time.Duration, bool) {
	if len(text) > maxProse {
		text = text[:maxProse]
	}

	for _, re := range prosePauses {
		if m := re.get().FindStringSubmatch(text); m != nil {
			if d, _, ok := leadingDuration(m[1]); ok {
				return positive(d)
			}
		}
	}

	for _, p := range proseNumbers {
		if m := p.pattern.get().FindStringSubmatch(text); m != nil {
			if n, err := strconv.ParseFloat(m[1], 64); err == nil && n < 1e9 {
				return positive(time.Duration(n * float64(p.unit)))
			}
		}
	}

	if m := proseMoment.get().FindStringSubmatch(text); m != nil {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04 UTC", "2006-01-02 15:04"} {
			if at, err := time.Parse(layout, m[1]); err == nil {
				return positive(at.Sub(now))
			}
		}
	}

	return 0, false
}

// leadingDuration parses the duration at the start of a text, such as "1h43m56.5s", "6ms",
// "2 minutes 30 seconds" or "30 秒", and returns the rest of the text.
func leadingDuration(text string) (d time.Duration, rest string, ok bool) {
	rest = strings.ToLower(strings.TrimSpace(text))
	for {
		m := onePart.get().FindStringSubmatch(rest)
		if m == nil {
			return d, rest, ok
		}
		n, err := strconv.ParseFloat(m[1], 64)
		unit := unitOf(m[2])
		if err != nil || unit == 0 {
			return d, rest, ok
		}
		part := math.Min(n*unit.Seconds(), maxProviderPause.Seconds())
		d = min(d+time.Duration(part*float64(time.Second)), maxProviderPause)
		rest, ok = rest[len(m[0]):], true
	}
}

func unitOf(name string) time.Duration {
	switch name {
	case "ms", "msec", "msecs", "millis", "millisecond", "milliseconds", "毫秒", "мс":
		return time.Millisecond
	case "us", "µs", "microsecond", "microseconds":
		return time.Microsecond
	case "s", "sec", "secs", "second", "seconds", "sekunde", "sekunden", "seconde", "secondes", "segundo", "segundos", "secondo", "secondi",
		"秒", "秒钟", "초", "с", "сек", "секунд", "секунду", "секунды":
		return time.Second
	case "m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos", "minuti", "分", "分钟", "분", "мин", "минут", "минуту", "минуты":
		return time.Minute
	case "h", "hr", "hrs", "hour", "hours", "stunde", "stunden", "heure", "heures", "hora", "horas", "ora", "ore", "小时", "시간", "час", "часа", "часов":
		return time.Hour
	case "d", "day", "days", "天", "день", "дня", "дней":
		return 24 * time.Hour
	default:
		return 0
	}
}
