package videos

import (
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
		ID:            label(body, "id"),
		Size:          label(body, "size"),
		Progress:      number(body, "progress"),
		CreatedUnix:   number(body, "created_at"),
		CompletedUnix: number(body, "completed_at"),
		ExpiresUnix:   number(body, "expires_at"),
		ErrorCode:     jsonspan.FindText(body, "error", "code"),
		ErrorMessage:  jsonspan.FindText(body, "error", "message"),
	}
	j.Seconds = lengthOf(body)
	word := jsonspan.FindText(body, "status")
	var known bool
	j.Status, known = statusOf(word)
	j.UnknownStatus = !known
	if j.Status == Failed {
		j.Made = madeOf(body)
	}

	return j, j.ID != "" && word != ""
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
