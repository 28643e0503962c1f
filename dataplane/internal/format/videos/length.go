package videos

import (
	"bytes"
	"slices"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/usagereport"
)

// lengths are the names of a length in seconds, the most exact first.
var lengths = []string{
	"seconds", "duration", "duration_seconds", "durationSeconds", "duration_secs", "duration_in_seconds", "video_duration",
	"output_video_duration", "video_seconds", "n_seconds", "video_length",
}

// milliseconds are the names of a length in thousandths of a second.
var milliseconds = []string{"duration_ms", "duration_millis", "durationMs", "duration_milliseconds"}

// parts are the members of a job that describe its video, each an object or a list with one. Its metadata is none of them: where
// an operator forwards that of clients, a job repeats it, and a client could state the length that it pays for.
var parts = []string{"video", "videos", "usage", "output", "outputs", "result", "data", "content", "task_result", "generation"}

// maxParts bounds how deep a length is looked for.
const maxParts = 3

// lengthOf returns the length of the video, which providers state under many names and in many places, zero for none. A
// length that cannot be read is none.
func lengthOf(body []byte) int64 { return lengthIn(body, maxParts) }

// madeOf returns the length of what was made for a job that has failed, zero for nothing. What such a job states about itself is what
// was asked for, so that only the parts that describe a video or its usage count.
func madeOf(body []byte) int64 { return lengthOfParts(body, maxParts) }

func lengthIn(object []byte, depth int) int64 {
	for _, name := range lengths {
		if raw, ok := jsonspan.Find(object, name); ok {
			if n := readLength(raw, "s"); n > 0 {
				return n
			}
		}
	}

	for _, name := range milliseconds {
		if raw, ok := jsonspan.Find(object, name); ok {
			if n := readLength(raw, "ms"); n > 0 {
				return n
			}
		}
	}

	if depth == 0 {
		return 0
	}

	return lengthOfParts(object, depth)
}

// lengthOfParts returns the length that the parts of an object state.
func lengthOfParts(object []byte, depth int) int64 {
	for _, name := range parts {
		part, _ := jsonspan.Find(object, name)
		for item := range jsonspan.Elements(part) {
			if n := lengthIn(item, depth-1); n > 0 {
				return n
			}
			break // further ones are versions of the same video
		}
		if n := lengthIn(part, depth-1); n > 0 {
			return n
		}
	}

	return 0
}

// measured is how far the length of a file, in thousandths of a second, is above the length that was asked for at most: its
// last frames and its sound end a little later. More than that is a second that was made.
const measured = 150

// readLength returns a length in whole seconds, zero if raw is none. unit is that of a length without one.
func readLength(raw []byte, unit string) int64 {
	number := raw
	if jsonspan.KindOf(raw) == jsonspan.KindString {
		text, _ := jsonspan.Text(nil, raw)
		text = bytes.ToLower(bytes.TrimSpace(text))
		number = bytes.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
		if len(number) < len(text) {
			unit = string(text[len(number):])
		}
		number = bytes.TrimSpace(number)
	}

	switch unit {
	case "ms":
	case "s", "sec", "secs", "second", "seconds":
		if bytes.ContainsAny(number, "eE") {
			return 0
		}
		number = append(slices.Clip(number), "e3"...)
	default:
		return 0
	}

	n, ok := usagereport.Count(number)
	whole := n / 1000
	switch {
	case !ok:
		return 0
	case whole > 0 && n-whole*1000 <= measured:
		return whole
	}
	return (n + 999) / 1000
}
