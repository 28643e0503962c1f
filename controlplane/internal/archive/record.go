package archive

import (
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// usageLine is a usage record in a file. Its form is that of UsageRecord in the
// admin API, so that files and exports can be read alike.
type usageLine struct {
	RequestID         string       `json:"request_id"`
	AccountID         string       `json:"account_id"`
	KeyID             string       `json:"key_id"`
	ProjectID         string       `json:"project_id,omitempty"`
	Model             string       `json:"model"`
	Format            string       `json:"format"`
	Provider          string       `json:"provider,omitempty"`
	Route             string       `json:"route,omitempty"`
	Credential        string       `json:"credential,omitempty"`
	ProviderRequestID string       `json:"provider_request_id,omitempty"`
	Status            event.Status `json:"status"`
	HTTPStatus        int          `json:"http_status,omitempty"`
	Stream            bool         `json:"stream"`
	StartedAt         time.Time    `json:"started_at"`
	FinishedAt        time.Time    `json:"finished_at"`
	SettledAt         time.Time    `json:"settled_at"`
	FirstByteMS       int64        `json:"first_byte_ms"`
	Usage             price.Usage  `json:"usage"`
	Rule              string       `json:"rule"`
	Estimated         bool         `json:"estimated"`
	Doubt             string       `json:"doubt,omitempty"`
	PriceVersion      int64        `json:"price_version"`
	PriceMultiplier   string       `json:"price_multiplier"`
	Cost              string       `json:"cost"`
	Reservation       string       `json:"reservation"`
	VideoJob          string       `json:"video_job,omitempty"`
	ProviderCost      string       `json:"provider_cost,omitempty"`
	ProviderVersion   int64        `json:"provider_price_version,omitempty"`
}

// EncodeUsage returns a usage record as a line of a file, without the line end.
func EncodeUsage(r *usage.Record) ([]byte, error) {
	provider := ""
	if r.ProviderCost != nil {
		provider = r.ProviderCost.String()
	}
	line, err := json.Marshal(usageLine{
		RequestID:         r.RequestID.String(),
		AccountID:         r.AccountID.String(),
		KeyID:             r.KeyID.String(),
		ProjectID:         r.ProjectName(),
		Model:             r.Model,
		Format:            r.Format,
		Provider:          r.Provider,
		Route:             r.Route,
		Credential:        r.Credential,
		ProviderRequestID: r.ProviderRequestID,
		Status:            r.Status,
		HTTPStatus:        r.HTTPStatus,
		Stream:            r.Stream,
		StartedAt:         r.StartedAt,
		FinishedAt:        r.FinishedAt,
		SettledAt:         r.SettledAt,
		FirstByteMS:       r.FirstByteMS,
		Usage:             r.Usage,
		Rule:              r.Rule,
		Estimated:         r.Estimated,
		Doubt:             r.Doubt,
		PriceVersion:      r.PriceVersion,
		PriceMultiplier:   r.PriceMultiplier.String(),
		Cost:              r.Cost.String(),
		Reservation:       r.Reservation.String(),
		VideoJob:          r.VideoJob,
		ProviderCost:      provider,
		ProviderVersion:   r.ProviderPriceVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("archive: encode usage of %s: %w", r.RequestID, err)
	}

	return line, nil
}
