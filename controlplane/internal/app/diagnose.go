package app

import (
	"context"
	"log/slog"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/diagnosisstore"
	"modelgateway/controlplane/internal/postgres/fleetstore"
	"modelgateway/shared/seal"
)

// newDiagnosis checks everything that this replica uses.
func (a *app) newDiagnosis(keys *secrets, fleets fleet.Store, ledgers *ledger.Service) *diagnosis.Service {
	peppers := []string{seal.Fingerprint([]byte(a.cfg.Secrets.Pepper))}
	for _, old := range a.cfg.Secrets.PreviousPeppers.Lines() {
		peppers = append(peppers, seal.Fingerprint([]byte(old)))
	}
	return diagnosis.New(diagnosis.Config{
		Database: diagnosisstore.New(a.adminDB), Bus: a.bus, Fleet: fleets, Ledger: ledgers, Build: a.version,
		Secrets: &diagnosis.Secrets{
			Peppers: peppers, FleetKey: keys.fleetFingerprint, KnowsFunc: keys.vault.Knows,
		},
	})
}

// Direct addresses the servers for a diagnosis without a control plane. Servers with an empty
// address are skipped.
type Direct struct {
	PostgresURL, NATSURL, MonitorURL string
	// Replicas is the wanted number of replicas of each stream.
	Replicas int
	Build    string
}

// Diagnose checks Postgres and NATS without a control plane. It changes nothing.
func Diagnose(ctx context.Context, d Direct) *diagnosis.Report {
	cfg := diagnosis.Config{Build: d.Build}
	if d.PostgresURL != "" {
		db, err := postgres.Open(ctx, postgres.Config{URL: d.PostgresURL, MaxConnections: 2})
		if err != nil {
			cfg.Database = noDatabase{err}
		} else {
			defer db.Close()
			cfg.Database = diagnosisstore.New(db)
			cfg.Fleet = fleetstore.New(db)
		}
	}
	if d.NATSURL != "" {
		b, err := bus.Connect(bus.Config{URL: d.NATSURL, MonitorURL: d.MonitorURL, Replicas: d.Replicas, Name: "gwctl doctor"}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			cfg.Bus = noBus{err}
		} else {
			defer b.Close()
			cfg.Bus = b
		}
	}
	return diagnosis.New(cfg).Run(ctx)
}

// noDatabase and noBus stand for servers that could not be connected.
type (
	noDatabase struct{ err error }
	noBus      struct{ err error }
)

// Diagnose implements diagnosis.Database.
func (n noDatabase) Diagnose(context.Context) (diagnosis.Postgres, error) {
	return diagnosis.Postgres{}, n.err
}

// Diagnose implements diagnosis.Bus.
func (n noBus) Diagnose(context.Context) (diagnosis.NATS, error) { return diagnosis.NATS{}, n.err }

// Describe implements diagnosis.Bus.
func (n noBus) Describe(context.Context, int) ([]diagnosis.Description, error) { return nil, n.err }
