package event

import (
	"encoding/json"

	"modelgateway/shared/limit"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// The states of a video job that clients see.
const (
	VideoQueued     = "queued"
	VideoInProgress = "in_progress"
	VideoCompleted  = "completed"
	VideoFailed     = "failed"
)

// Video is the record of one video job. The control plane stores it; any proxy
// can read and update it.
type Video struct {
	V int `json:"v"`
	// ID is the gateway's id of the job, UpstreamID the provider's, which is empty until it is known.
	ID         string `json:"id"`
	UpstreamID string `json:"upstream_id,omitempty"`
	// RequestID is the request that created the job; the job is billed under it.
	RequestID string `json:"request_id"`
	AccountID string `json:"account_id"`
	KeyID     string `json:"key_id"`
	// ProjectID is the project of the key when the job was created; empty if it was in none. The control plane sets it.
	ProjectID string `json:"project_id,omitempty"`
	Model     string `json:"model"`
	// Provider, Route and Credential are those of the call that created the job. They are used to poll it.
	Provider      string `json:"provider"`
	Route         string `json:"route"`
	Credential    string `json:"credential"`
	UpstreamModel string `json:"upstream_model"`
	Status        string `json:"status"`
	// Size and Seconds are the requested ones, Seconds being the default length if the request states none. They
	// are billed if the provider reports none.
	Size    string `json:"size,omitempty"`
	Seconds int64  `json:"seconds,omitempty"`
	// ExpectedCost is the price of Seconds and Size.
	ExpectedCost money.Nano `json:"expected_cost,omitempty"`
	CreatedUnix  int64      `json:"created_unix"`
	PriceVersion int64      `json:"price_version"`
	// Sheet is the price sheet of PriceVersion with the account's multiplier when the job was created. The job is
	// billed by it even if the catalog or the account has changed since.
	Sheet *price.Sheet `json:"sheet,omitempty"`
	// Limits are the pools of the windows of limits in which the job counts. The control plane chooses them when the job is created.
	Limits []int64 `json:"limits,omitempty"`
	// MadeSeconds is the length of what the provider reports to have made for a failed job. Its customer is not charged for it.
	MadeSeconds int64 `json:"made_seconds,omitempty"`
	// Object is the job as the client last saw it: the provider's object with the gateway's ids and names.
	Object json.RawMessage `json:"object,omitempty"`
	// Error is the reason why the gateway abandoned the job.
	Error string `json:"error,omitempty"`
	// Rev counts the updates of the record. An update must name the Rev that it is based on.
	Rev int64 `json:"rev"`
}

// Ended reports whether the job's status is final.
func (v *Video) Ended() bool { return v.Status == VideoCompleted || v.Status == VideoFailed }

// VideoGetRequest asks for the record of a job. The account is checked unless AccountID
// is empty, as in requests of the poller.
type VideoGetRequest struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	AccountID string `json:"account_id,omitempty"`
}

// The outcomes of video requests.
const (
	VideoDone = "done"
	// VideoNotFound means that the job does not exist or belongs to another account.
	VideoNotFound = "not_found"
	// VideoConflict means that the record was updated meanwhile; the response has the newer one.
	VideoConflict = "conflict"
	// VideoRefused means that a job was not recorded because of the open jobs of its account or key; the response has
	// the refusal.
	VideoRefused = "refused"
	// VideoUnavailable means that the control plane cannot answer now.
	VideoUnavailable = "unavailable"
)

// VideoResponse is the response to each of the three video requests.
type VideoResponse struct {
	V      int    `json:"v"`
	Status string `json:"status"`
	Video  *Video `json:"video,omitempty"`
	// Refusal is the reason of VideoRefused.
	Refusal *VideoRefusal `json:"refusal,omitempty"`
}

// The reasons to refuse a further job.
const (
	// VideoTooMany means that the account has as many open jobs as it may have.
	VideoTooMany = "too_many_open_jobs"
	// VideoKeyLimit, VideoLimit and VideoBalance mean that the unbilled jobs are expected to cost all that is left of the
	// spend limit of the key, of the window of another limit, or of the balance.
	VideoKeyLimit = "key_limit"
	VideoLimit    = "limit"
	VideoBalance  = "balance"
)

// VideoRefusal says why no further job may be created now.
type VideoRefusal struct {
	Reason string `json:"reason"`
	// Scope and LimitID say which limit is short, as headers do: LimitID is the id in the API, of VideoKeyLimit that of the key.
	// ResetsMS is when its window ends, zero if it does not.
	Scope    limit.Scope `json:"scope,omitempty"`
	LimitID  string      `json:"limit_id,omitempty"`
	ResetsMS int64       `json:"resets_ms,omitempty"`
	// Left is the rest of limit or balance, Expected the expected cost of the unbilled jobs.
	Left     money.Nano `json:"left,omitempty"`
	Expected money.Nano `json:"expected,omitempty"`
	// MaxOpen is how many open jobs the account may have.
	MaxOpen int64 `json:"max_open,omitempty"`
}

// VideoPoll is a message of the work queue: a job whose state must be polled from
// its provider.
type VideoPoll struct {
	V  int    `json:"v"`
	ID string `json:"id"`
	// AccountID is the job's account: the accounts take turns.
	AccountID string `json:"account_id"`
}
