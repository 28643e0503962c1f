package event

import (
	"encoding/json"

	"modelgateway/shared/price"
)

// The states of a video job, as clients see them.
const (
	VideoQueued     = "queued"
	VideoInProgress = "in_progress"
	VideoCompleted  = "completed"
	VideoFailed     = "failed"
)

// Video is the record of one video job, as kept by the control plane and
// passed to whichever proxy is asked for it.
type Video struct {
	V int `json:"v"`
	// ID is the gateway's id of the job; UpstreamID the provider's, empty until it is known.
	ID         string `json:"id"`
	UpstreamID string `json:"upstream_id,omitempty"`
	// RequestID is the request that made the job, and under which it is billed.
	RequestID string `json:"request_id"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
	Model     string `json:"model"`
	// Provider, Route and Credential are the way that the job was made; it is polled on the same.
	Provider      string `json:"provider"`
	Route         string `json:"route"`
	Credential    string `json:"credential"`
	UpstreamModel string `json:"upstream_model"`
	Status        string `json:"status"`
	// Size and Seconds are the client's wish, for a provider that reports none.
	Size         string `json:"size,omitempty"`
	Seconds      int64  `json:"seconds,omitempty"`
	CreatedUnix  int64  `json:"created_unix"`
	PriceVersion int64  `json:"price_version"`
	// Sheet is the price sheet of PriceVersion with the account's multiplier: the job is billed by it even if catalog or
	// account have moved on.
	Sheet *price.Sheet `json:"sheet,omitempty"`
	// Object is the job as the client last saw it: the provider's object, rewritten.
	Object json.RawMessage `json:"object,omitempty"`
	// Error tells why the gateway itself gave the job up.
	Error string `json:"error,omitempty"`
	// Rev counts the updates of the record: an update names the Rev that it changes.
	Rev int64 `json:"rev"`
}

// Ended tells that the job's status is final.
func (v *Video) Ended() bool { return v.Status == VideoCompleted || v.Status == VideoFailed }

// VideoGet asks for a job of an account; an empty AccountID asks on behalf of
// the poller.
type VideoGet struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	AccountID string `json:"account_id,omitempty"`
}

// The outcomes of video requests.
const (
	VideoDone = "done"
	// VideoNotFound: there is no such job, or it is another account's.
	VideoNotFound = "not_found"
	// VideoConflict: the record was changed meanwhile; the reply holds the newer one.
	VideoConflict = "conflict"
	// VideoUnavailable: the control plane cannot tell now.
	VideoUnavailable = "unavailable"
)

// VideoReply answers all three video requests.
type VideoReply struct {
	V      int    `json:"v"`
	Status string `json:"status"`
	Video  *Video `json:"video,omitempty"`
}

// VideoPoll is the message of the work queue: a job to ask its provider about.
type VideoPoll struct {
	V  int    `json:"v"`
	ID string `json:"id"`
}
