package event

// Video is the record of one video job, as kept by the control plane and
// passed to whichever proxy is asked for it.
type Video struct {
	V int `json:"v"`
	// ID is the gateway's id of the job; UpstreamID the provider's, empty until it is known.
	ID         string `json:"id"`
	UpstreamID string `json:"upstream_id,omitempty"`
	RequestID  string `json:"request_id"`
	AccountID  string `json:"account_id"`
	KeyID      string `json:"key_id"`
	Model      string `json:"model"`
	Provider   string `json:"provider"`
	Route      string `json:"route"`
	Credential string `json:"credential"`
	// Status is queued, in_progress, completed or failed.
	Status   string `json:"status"`
	Progress int    `json:"progress"`
	// Size and Seconds are the client's wish until the provider reports its own.
	Size        string `json:"size,omitempty"`
	Seconds     string `json:"seconds,omitempty"`
	Prompt      string `json:"prompt,omitempty"`
	CreatedUnix int64  `json:"created_unix"`
	// CompletedUnix and ExpiresUnix are zero until known.
	CompletedUnix int64  `json:"completed_unix,omitempty"`
	ExpiresUnix   int64  `json:"expires_unix,omitempty"`
	ErrorCode     string `json:"error_code,omitempty"`
	ErrorMessage  string `json:"error_message,omitempty"`
	PriceVersion  int64  `json:"price_version"`
	// Rev counts the updates of the record: an update names the Rev that it changes.
	Rev int64 `json:"rev"`
}

// Ended tells that the job's status is final.
func (v *Video) Ended() bool { return v.Status == "completed" || v.Status == "failed" }

// VideoGet asks for a job of an account; an empty AccountID asks on behalf of
// the poller.
type VideoGet struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	AccountID string `json:"account_id,omitempty"`
}

// VideoReply answers all three video requests. Error is empty, "not_found",
// "conflict" or "unavailable".
type VideoReply struct {
	V     int    `json:"v"`
	Error string `json:"error,omitempty"`
	Video *Video `json:"video,omitempty"`
}
