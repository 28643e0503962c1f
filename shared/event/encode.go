package event

import (
	"strconv"

	"modelgateway/shared/internal/jsonappend"
)

// AppendJSON appends the event as encoding/json encodes it, but without
// reflection: every request encodes two events.
func (u *Usage) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	b = jsonappend.Int(b, "v", int64(u.V))
	b = jsonappend.String(b, "request_id", u.RequestID)
	b = jsonappend.Int(b, "session", u.Session)
	b = jsonappend.Int(b, "seq", u.Seq)
	b = jsonappend.String(b, "account_id", u.AccountID)
	b = jsonappend.String(b, "key_id", u.KeyID)
	b = jsonappend.NonEmpty(b, "project_id", u.ProjectID)
	b = jsonappend.String(b, "model", u.Model)
	b = jsonappend.String(b, "format", u.Format)
	b = jsonappend.NonEmpty(b, "provider", u.Provider)
	b = jsonappend.NonEmpty(b, "route", u.Route)
	b = jsonappend.NonEmpty(b, "credential", u.Credential)
	b = jsonappend.NonEmpty(b, "provider_request_id", u.ProviderRequestID)
	b = jsonappend.String(b, "status", string(u.Status))
	b = jsonappend.NonZero(b, "http_status", int64(u.HTTPStatus))
	b = jsonappend.True(b, "stream", u.Stream)
	b = jsonappend.Int(b, "started_ms", u.StartedMS)
	b = jsonappend.Int(b, "finished_ms", u.FinishedMS)
	b = jsonappend.NonZero(b, "first_byte_ms", u.FirstByteMS)
	b = append(u.Usage.AppendMembers(jsonappend.Object(b, "usage")), '}')
	b = jsonappend.String(b, "rule", u.Rule)
	b = jsonappend.True(b, "estimated", u.Estimated)
	b = jsonappend.NonEmpty(b, "doubt", u.Doubt)
	b = jsonappend.Int(b, "price_version", u.PriceVersion)
	b = jsonappend.NonZero(b, "price_multiplier", int64(u.PriceMultiplier))
	b = jsonappend.Int(b, "cost", int64(u.Cost))
	b = jsonappend.Int(b, "reservation", int64(u.Reservation))
	if len(u.Limits) > 0 {
		b = append(b, `,"limits":[`...)
		for i, pool := range u.Limits {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, pool, 10)
		}
		b = append(b, ']')
	}
	b = jsonappend.NonEmpty(b, "video_job", u.VideoJob)
	b = jsonappend.NonZero(b, "max_input", u.MaxInput)
	b = jsonappend.NonZero(b, "max_output", u.MaxOutput)
	b = jsonappend.NonZero(b, "max_seconds", u.MaxSeconds)
	if len(u.Attempts) > 0 {
		b = append(b, `,"attempts":`...)
		b = u.AppendAttempts(b, nil)
	}

	b = jsonappend.NonEmpty(b, "trace", u.Trace)
	return append(b, '}')
}

// AppendCounts appends u.Usage as encoding/json encodes it.
func (u *Usage) AppendCounts(b []byte) []byte {
	return append(u.Usage.AppendMembers(append(b, '{')), '}')
}

// AppendAttempts appends u.Attempts as encoding/json encodes it. more appends further members of the attempt with an index; nil: there
// are none.
func (u *Usage) AppendAttempts(b []byte, more func(b []byte, i int) []byte) []byte {
	b = append(b, '[')
	for i := range u.Attempts {
		a := &u.Attempts[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = jsonappend.String(b, "route", a.Route)
		b = jsonappend.NonEmpty(b, "provider", a.Provider)
		b = jsonappend.NonEmpty(b, "credential", a.Credential)
		b = jsonappend.NonEmpty(b, "credential_name", a.CredentialName)
		b = jsonappend.NonEmpty(b, "class", a.Class)
		b = jsonappend.NonEmpty(b, "skipped", a.Skipped)
		b = jsonappend.NonZero(b, "ms", a.MS)
		if a.Spent() {
			b = append(a.Usage.AppendMembers(jsonappend.Object(b, "usage")), '}')
		}
		b = jsonappend.True(b, "estimated", a.Estimated)
		b = jsonappend.NonEmpty(b, "provider_request_id", a.ProviderRequestID)
		if more != nil {
			b = more(b, i)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// AppendJSON appends the batch as encoding/json encodes it. Each event must be
// compact JSON.
func (m *Batch) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	b = jsonappend.Int(b, "v", int64(m.V))
	b = jsonappend.String(b, "batch_id", m.BatchID)
	b = jsonappend.Int(b, "session", m.Session)
	b = append(b, `,"events":[`...)
	for i, e := range m.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(b, "]}"...)
}
