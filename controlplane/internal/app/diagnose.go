package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/seal"
)

// newDiagnosis checks everything that this replica uses.
func (a *app) newDiagnosis(keys *secrets, fleets fleet.Store, ledgers *ledger.Service) *diagnosis.Service {
	return diagnosis.New(diagnosis.Config{
		Database: leasestore.NewDiagnosis(a.adminDB),
		Bus:      a.bus,
		Fleet:    fleets,
		Ledger:   ledgers,
		Traffic:  a.traffic,
		Build:    a.version,
		Secrets:  describe(&a.cfg.Secrets, keys),
		Promises: promises(&a.cfg),
	})
}

// promises returns the settings that decide what the installation guarantees while servers fail.
func promises(cfg *config.Config) *diagnosis.Promises {
	return &diagnosis.Promises{
		KeepsCommits:    cfg.Postgres.KeepsCommits,
		Window:          cfg.Session.Window,
		RevocationBound: sessions(cfg).RevocationBound(),
	}
}

// describe describes the secrets for a diagnosis.
func describe(cfg *config.Secrets, keys *secrets) *diagnosis.Secrets {
	peppers := []string{seal.Fingerprint([]byte(cfg.Pepper))}
	for _, old := range cfg.PreviousPeppers.Lines() {
		peppers = append(peppers, seal.Fingerprint([]byte(old)))
	}
	return &diagnosis.Secrets{Peppers: peppers, FleetKey: keys.fleetFingerprint, KnowsFunc: keys.vault.Knows}
}

// Doctor selects the checks of Check.
type Doctor struct {
	// Preflight leaves out what does not run before an installation or upgrade.
	Preflight bool
	// Services are addresses that must answer.
	Services []string
	Build    string
}

// Check makes a diagnosis with the settings of a control plane, in a process of its own. It changes nothing.
func Check(ctx context.Context, cfg config.Config, d Doctor) (*diagnosis.Report, error) {
	noDataKeys := func(string) (vault.DataKey, error) {
		return vault.DataKey{}, errors.New("a diagnosis decrypts nothing")
	}
	keys, err := readSecrets(&cfg.Secrets, noDataKeys)
	if err != nil {
		return nil, err
	}

	checks := diagnosis.Config{
		Secrets:     describe(&cfg.Secrets, &keys),
		ReachFunc:   reach(true),
		Services:    d.Services,
		ServiceFunc: reach(false),
		Preflight:   d.Preflight,
		Build:       d.Build,
		Promises:    promises(&cfg),
	}

	log := slog.New(slog.DiscardHandler)
	db, err := postgres.Open(
		ctx,
		postgres.Config{URL: string(cfg.Postgres.URL), MaxConnections: maxCheckConnections, Name: "controlplane doctor"},
	)
	if err != nil {
		checks.Database = noDatabase{err}
	} else {
		defer db.Close()
		checks.Database = leasestore.NewDiagnosis(db)
		if !d.Preflight {
			checks.Fleet = leasestore.NewFleet(db)
			checks.Ledger = ledger.NewService(ledger.Config{Store: moneystore.NewLedger(db), Log: log})
		}
	}

	b, err := bus.Connect(busConfig(&cfg, "controlplane doctor"), nil, log)
	if err != nil {
		checks.Bus = noBus{err}
	} else {
		defer b.Close()
		checks.Bus = b
	}

	return diagnosis.New(checks).Run(ctx), nil
}

// maxCheckConnections bounds the connections of a diagnosis to Postgres, which uses one for each area.
const maxCheckConnections = 3

// reach returns a function that calls an address, whatever the answer is. Nothing secret is sent. The certificate of a Service
// has the name of the entrance, so it cannot be verified.
func reach(verify bool) diagnosis.ReachFunc {
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: !verify}, //nolint:gosec // see above
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, url string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("address: %w", err)
		}
		answer, err := client.Do(request)
		if err != nil {
			return err //nolint:wrapcheck // it has the method and the address
		}
		_ = answer.Body.Close()
		return nil
	}
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
		db, err := postgres.Open(ctx, postgres.Config{URL: d.PostgresURL, MaxConnections: maxCheckConnections})
		if err != nil {
			cfg.Database = noDatabase{err}
		} else {
			defer db.Close()
			cfg.Database = leasestore.NewDiagnosis(db)
			cfg.Fleet = leasestore.NewFleet(db)
		}
	}

	if d.NATSURL != "" {
		b, err := bus.Connect(bus.Config{
			URL:        d.NATSURL,
			MonitorURL: d.MonitorURL,
			Replicas:   d.Replicas,
			Name:       "gwctl doctor",
		}, nil, slog.New(slog.DiscardHandler))
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

func (n noDatabase) Diagnose(context.Context) (diagnosis.Postgres, error) {
	return diagnosis.Postgres{}, n.err
}

func (n noBus) Diagnose(context.Context) (diagnosis.NATS, error) { return diagnosis.NATS{}, n.err }

func (n noBus) Describe(context.Context, int) ([]diagnosis.Description, error) { return nil, n.err }
