package videojob

import (
	"cmp"
	"fmt"
	"net/http"

	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// newEvent returns the usage event of a job that has ended, without its outcome, usage and cost.
func (t *Tracker) newEvent(v *event.Video) event.Usage {
	return event.Usage{
		V:                 event.Version,
		RequestID:         v.RequestID,
		AccountID:         v.AccountID,
		KeyID:             v.KeyID,
		ProjectID:         v.ProjectID,
		Model:             v.Model,
		Format:            string(catalogkv.Videos),
		Provider:          v.Provider,
		Route:             v.Route,
		Credential:        t.credentialName(v),
		ProviderRequestID: v.UpstreamID,
		StartedMS:         v.CreatedUnix * 1000,
		FinishedMS:        t.now().UnixMilli(),
		PriceVersion:      v.PriceVersion,
		PriceMultiplier:   cmp.Or(v.Sheet, &price.Sheet{}).Multiplier,
		VideoJob:          v.ID,
	}
}

// report stores an event in the spool. ErrUnavailable keeps the job from being abandoned.
func (t *Tracker) report(e *event.Usage, doubt usagereport.Reason) error {
	if err := t.charger.Charge(*e, doubt); err != nil {
		return fmt.Errorf("%w: report the end of job %s: %w", ErrUnavailable, e.VideoJob, err)
	}
	return nil
}

// ReportLoss stores the event of a job whose record says that it has failed: it charges nothing, and has what the operator may have to
// pay for the job. Of a job that no provider has, and of a completed one, there is nothing to report.
//
// The event is made of the record alone, and only after it, so that all proxies that report a failed job report the same: a proxy that
// dies before the task of the job is acknowledged leaves the report to another. A job whose record says that it is completed has no such
// event.
func (t *Tracker) ReportLoss(v *event.Video) error {
	submitted := v.UpstreamID != "" || v.Error != ""
	if v.Status != event.VideoFailed || !submitted {
		return nil
	}

	e := t.newEvent(v)
	e.Status, e.HTTPStatus, e.Rule = event.Failed, http.StatusOK, event.RuleNone
	if v.UpstreamID == "" {
		e.HTTPStatus = http.StatusBadGateway
	}
	if seconds, estimated := spent(v); seconds > 0 {
		e.Attempts = []event.Attempt{{
			Route:             v.Route,
			Provider:          v.Provider,
			Credential:        v.Credential,
			CredentialName:    e.Credential,
			Class:             classify.Unavailable.String(),
			Usage:             price.Usage{Seconds: seconds, Size: v.Size},
			Estimated:         estimated,
			ProviderRequestID: v.UpstreamID,
		}}
	}
	return t.report(&e, usagereport.None)
}

// spent returns the seconds that a provider may charge for a failed job. If the provider says that the job has failed, these are those
// that it says it has made. Of a job that was given up nobody knows what became of it: it may have been made as it was asked for.
func spent(v *event.Video) (seconds int64, estimated bool) {
	if v.Error != "" {
		return v.Seconds, true
	}
	if v.MadeSeconds == 0 {
		return 0, false
	}
	seconds, doubt := usagereport.JudgeVideo(v.MadeSeconds, v.Seconds)
	return seconds, doubt.Estimated()
}
