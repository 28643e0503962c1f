package videojob

import (
	"encoding/json"
	"strconv"

	"modelgateway/shared/event"
)

// object is a video object of our own making, for a job of which no provider's
// is known.
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

// Object is the job as the client sees it.
func Object(v *event.Video) []byte {
	if len(v.Object) > 0 {
		return v.Object
	}
	return encode(newObject(v))
}

func newObject(v *event.Video) object {
	o := object{ID: v.ID, Object: "video", Model: v.Model, Status: v.Status, CreatedAt: v.CreatedUnix}
	if v.Size != "" {
		o.Size = &v.Size
	}
	if v.Seconds > 0 {
		seconds := strconv.FormatInt(v.Seconds, 10)
		o.Seconds = &seconds
	}
	return o
}

// failedObject is the object of a job that the gateway gave up.
func failedObject(v *event.Video) []byte {
	o := newObject(v)
	o.Status = event.VideoFailed
	o.Error = &objectError{Code: "generation_failed", Message: "The video could not be generated. You were not charged."}
	return encode(o)
}

func encode(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil { // strings and integers always marshal
		panic("video: encode object: " + err.Error())
	}
	return b
}
