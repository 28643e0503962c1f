package videos

import (
	"cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
)

// Status is the state of a job.
type Status string

// The states. Completed and Failed are final.
const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Failed     Status = "failed"
)

// Final reports whether the state cannot change any more.
func (s Status) Final() bool { return s == Completed || s == Failed }

// DefaultSeconds is the length of a video if neither the request nor the model states one.
const DefaultSeconds = 4

// Job is a provider's video object: the state of a job.
type Job struct {
	// ID is the provider's id.
	ID     string
	Status Status
	// UnknownStatus reports whether the provider's word for the state has no known meaning.
	UnknownStatus bool
	// Progress is in percent, 0 if not stated.
	Progress int64
	// Seconds is the length of the video, 0 if not stated.
	Seconds int64
	// Made is the length of what was made for a failed job, 0 if nothing is stated.
	Made int64
	// Size is the resolution, empty if not stated.
	Size string
	// CreatedUnix, CompletedUnix and ExpiresUnix are in seconds, 0 if not stated.
	CreatedUnix, CompletedUnix, ExpiresUnix int64
	// ErrorCode and ErrorMessage are the reason for a failure, in the provider's words.
	ErrorCode, ErrorMessage string
}

// ReadJob reads the object of a job; ok is false if body is none.
func ReadJob(body []byte) (j Job, ok bool) {
	var obj jsonspan.Object
	if obj.Parse(body) != nil {
		return j, false
	}

	j = Job{
		ID:            idOf(body),
		Size:          label(body, "size"),
		Progress:      number(body, "progress"),
		CreatedUnix:   number(body, "created_at"),
		CompletedUnix: number(body, "completed_at"),
		ExpiresUnix:   number(body, "expires_at"),
	}
	j.Seconds = lengthOf(body)
	word := jsonspan.FindText(body, "status")
	var known bool
	j.Status, known = statusOf(word)
	j.UnknownStatus = !known
	if j.Status == Failed { // whatever another job has there, it is no reason for a failure
		j.ErrorCode, j.ErrorMessage = reasonOf(body)
		j.Made = madeOf(body)
	}

	return j, j.ID != "" && word != ""
}

// idOf returns the provider's id, empty for none. Some count their jobs. It becomes a part of a path, where two texts would lead to
// another address.
func idOf(body []byte) string {
	raw, _ := jsonspan.Find(body, "id")
	if jsonspan.KindOf(raw) == jsonspan.KindNumber {
		if n, ok := jsonspan.Int64(raw); !ok || n <= 0 {
			return ""
		}
		return string(raw)
	}
	id := label(body, "id")
	if id == "." || id == ".." {
		return ""
	}
	return id
}

// The reason of a job that has failed without one.
const (
	failedCode    = "generation_failed"
	failedMessage = "The video could not be generated."
)

// reasonOf returns the reason of a failure: the member error is an object or a text, and some providers have a member of their own
// for the text.
func reasonOf(body []byte) (code, message string) {
	raw, _ := jsonspan.Find(body, "error")
	text, isText := jsonspan.Text(nil, raw)
	if message = string(text); !isText {
		code, message = jsonspan.FindText(raw, "code"), jsonspan.FindText(raw, "message")
		if value, _ := jsonspan.Find(raw, "code"); jsonspan.KindOf(value) == jsonspan.KindNumber {
			code = string(value)
		}
	}

	for _, name := range []string{"failure_reason", "fail_reason", "error_message", "message"} {
		message = cmp.Or(message, jsonspan.FindText(body, name))
	}
	return cmp.Or(code, failedCode), cmp.Or(message, failedMessage)
}

// label returns a text for the record of the job.
func label(raw []byte, name string) string {
	value, _ := jsonspan.Find(raw, name)
	s, _ := jsonspan.Text(nil, value)
	return format.Label(s)
}

func number(raw []byte, name string) int64 {
	value, _ := jsonspan.Find(raw, name)
	n, _ := jsonspan.Int64(value)
	return max(n, 0)
}
