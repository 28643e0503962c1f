package videojob

import (
	"encoding/json"
	"strconv"

	"modelgateway/shared/event"
)

// object is a video object as clients get it. The gateway makes one for a job of
// which it has no object of a provider.
type object struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Model       string       `json:"model"`
	Status      string       `json:"status"`
	Progress    int          `json:"progress"`
	CreatedAt   int64        `json:"created_at"`
	CompletedAt *int64       `json:"completed_at"`
	ExpiresAt   *int64       `json:"expires_at"`
	Size        *string      `json:"size"`
	Seconds     *string      `json:"seconds"`
	Error       *objectError `json:"error"`
}

type objectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Object returns the video object of a job for its client, as JSON.
func Object(v *event.Video) []byte {
	if len(v.Object) > 0 {
		return v.Object
	}
	return encode(newObject(v))
}

// newObject returns an object with the state that the job's record has.
func newObject(v *event.Video) object {
	o := object{
		ID:        v.ID,
		Object:    "video",
		Model:     v.Model,
		Status:    v.Status,
		CreatedAt: v.CreatedUnix,
	}
	if v.Size != "" {
		o.Size = &v.Size
	}
	if v.Seconds > 0 {
		seconds := strconv.FormatInt(v.Seconds, 10)
		o.Seconds = &seconds
	}
	return o
}

// failedObject returns the object of a job that ended without a video and without
// an error object of its provider.
func failedObject(v *event.Video) []byte {
	o := newObject(v)
	o.Status = event.VideoFailed
	o.Error = &objectError{Code: "generation_failed", Message: "The video could not be generated. You were not charged."}
	return encode(o)
}

func encode(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil { // cannot happen: the object has strings and integers only
		panic("videojob: encode object: " + err.Error())
	}
	return b
}
