package app

import (
	"log/slog"

	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/reporter"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// newReporter returns the sender of the reports to the control planes.
func newReporter(
	cfg *config.Config,
	s state,
	keeper *session.Keeper,
	events *spool.Spool,
	measured *meter.Metrics,
	refusals *reporter.Refusals,
	log *slog.Logger,
) *reporter.Reporter {
	return reporter.New(reporter.Config{
		Proxy:        cfg.Name,
		DrainingFunc: s.probes.Draining,
		InFlightFunc: measured.InFlightByEndpoint,
		TotalsFunc:   measured.Totals,
		SessionFunc: func() wire.SessionID {
			if current := keeper.Current(); current != nil {
				return current.ID
			}
			return 0
		},
		SpoolFunc: func() pulse.Spool {
			return pulse.Spool{
				Used:        events.UsedCapacity(),
				Capacity:    events.Capacity(),
				Bytes:       events.Bytes(),
				MaxBytes:    cfg.Spool.MaxBytes,
				UnsettledMS: events.UnsettledAge().Milliseconds(),
			}
		},
		BreakersFunc: func() []pulse.Breaker { return s.picker.Health(s.models.HasRoute) },
		Refusals:     refusals,
		SendFunc:     s.nats.SendPulse,
		Log:          log,
	})
}
