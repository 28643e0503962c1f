package app

import (
	"context"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/explain"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/holding"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/oidc"
	"modelgateway/controlplane/internal/outbox"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/billstore"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/postgres/videostore"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/search"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/apikey"
	"modelgateway/shared/platform/clientaddr"
	"modelgateway/shared/seal"
)

// secrets holds the keys from the configuration.
type secrets struct {
	hasher *apikey.Hasher
	// peppers are the ids of all peppers, and hashers their hashers.
	peppers []string
	hashers []*apikey.Hasher
	vault   *vault.Vault
	fleet   *seal.Key
	// fleetFingerprint is the fingerprint of the fleet key.
	fleetFingerprint string
	// signIns seals the sign-ins that people have begun at a provider.
	signIns *seal.Key
}

func readSecrets(cfg *config.Secrets, find vault.FindFunc) (secrets, error) {
	hasher, err := apikey.NewHasher([]byte(cfg.Pepper))
	if err != nil {
		return secrets{}, fmt.Errorf("secrets.pepper: %w", err)
	}

	peppers, hashers := []string{hasher.ID()}, []*apikey.Hasher{hasher}
	for _, text := range cfg.PreviousPeppers.Lines() {
		old, err := apikey.NewHasher([]byte(text))
		if err != nil {
			return secrets{}, fmt.Errorf("secrets.previous_peppers: %w", err)
		}
		peppers, hashers = append(peppers, old.ID()), append(hashers, old)
	}

	masters, err := cfg.MasterKeys()
	if err != nil {
		return secrets{}, err
	}

	id, _ := cfg.CurrentMasterKey()
	v, err := vault.New(id, masters, find)
	if err != nil {
		return secrets{}, err
	}

	fleetKey, err := cfg.FleetKey.Key()
	if err != nil {
		return secrets{}, fmt.Errorf("secrets.fleet_key: %w", err)
	}

	fleet, err := seal.NewKey(fleetKey)
	if err != nil {
		return secrets{}, fmt.Errorf("secrets.fleet_key: %w", err)
	}

	derived, err := seal.Derive(masters[id], "console sign-in")
	if err != nil {
		return secrets{}, fmt.Errorf("secrets.master_key: %w", err)
	}

	signIns, err := seal.NewKey(derived)
	if err != nil {
		return secrets{}, fmt.Errorf("secrets.master_key: %w", err)
	}

	return secrets{hasher, peppers, hashers, v, fleet, seal.Fingerprint(fleetKey), signIns}, nil
}

// databaseTimeout is how long the database may take for an operation of the admin API.
const databaseTimeout = 30 * time.Second

// confirmTimeout is how long changes other than revocations wait for all proxies to confirm them (docs/decisions/0022).
const confirmTimeout = 2 * time.Second

// findTimeout bounds the lookup of a data key that another replica has created.
const findTimeout = 5 * time.Second

// findDataKey looks up a data key for the vault.
func (a *app) findDataKey(id string) (vault.DataKey, error) {
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	return accountstore.NewRotations(a.adminDB).DataKey(ctx, id)
}

// buildRotation loads the data keys and adds the rotation of keys.
func (a *app) buildRotation(ctx context.Context, keys secrets, jobs *jobs) (*rotation.Service, error) {
	s := rotation.NewService(rotation.Config{
		Store:   accountstore.NewRotations(a.adminDB),
		Vault:   keys.vault,
		Hasher:  keys.hasher,
		Peppers: keys.peppers,
	})
	jobs.every("load_data_keys", 10*time.Second, s.Refresh)
	jobs.every("rotate_keys", 2*time.Second, s.Work)
	return s, s.Prepare(ctx)
}

// expiryInterval is how often expired credits are looked for. Requests of their accounts that need new units wait meanwhile.
const expiryInterval = 200 * time.Millisecond

// releaseInterval is how often held credits are released, each time by a ledger entry.
const releaseInterval = 10 * time.Second

// buildLedgerChecks adds the periodic checks of the ledger, and the execution of those that a person starts.
func (a *app) buildLedgerChecks(books *ledger.Service, usages *usage.Service, jobs *jobs) *ledgercheck.Service {
	history := &checkHistory{}
	monitor := ledger.NewMonitor(books, ledgerAlarm{webhookstore.New(a.adminDB)}, history, a.log, a.registry)
	checks := ledgercheck.NewService(ledgercheck.Config{
		Store:      moneystore.NewLedgerCheck(a.adminDB),
		Ledger:     books,
		Receipts:   usages,
		NotifyFunc: monitor.Notify,
	})
	history.checks = checks
	jobs.every("expire_credits", expiryInterval, books.ExpireCredits)
	jobs.every("release_credits", releaseInterval, books.ReleaseCredits)
	jobs.every("ledger_check", time.Minute, monitor.CheckChanged)
	jobs.every("ledger_check_recent", time.Hour, monitor.CheckRecent)
	jobs.every("run_ledger_checks", 2*time.Second, checks.Work)
	return checks
}

// addOutbox adds the publisher of changes.
func (a *app) addOutbox(catalogs *catalog.Service) {
	publisher := outbox.New(catalogstore.NewOutbox(a.adminDB), a.bus, catalogs.Snapshot, a.log, a.registry)
	a.components.Add("outbox",
		func(ctx context.Context) error { publisher.Start(ctx); return nil },
		func(context.Context) error { publisher.Stop(); return nil })
}

// buildArchive adds the jobs that archive or delete old rows.
func (a *app) buildArchive(usages *usage.Service, jobs *jobs) *archive.Service {
	archives := archive.New(archive.Config{
		Store:                usagestore.NewArchive(a.adminDB),
		ReadFunc:             usages.Export,
		Log:                  a.log,
		Dir:                  a.cfg.Archive.Dir,
		UsageRetentionMonths: a.cfg.Archive.UsageRetentionMonths,
		AuditRetentionMonths: a.cfg.Archive.AuditRetentionMonths,
	})
	jobs.every("archive", 10*time.Minute, archives.Run)
	jobs.every("retention", time.Minute, func(ctx context.Context) error {
		_, err := leasestore.NewLeases(a.adminDB).DeleteOld(ctx, leasing.SessionRetention, leasing.KeyChangeRetention)
		return err
	})
	return archives
}

// buildBills adds the jobs that compare bills of providers again, and show what is open.
func (a *app) buildBills(jobs *jobs) *providerbill.Service {
	bills := providerbill.NewService(billstore.New(a.adminDB))
	jobs.every("compare_bills", 10*time.Minute, bills.CompareDue)
	jobs.every("bill_metrics", time.Minute, providerbill.NewMetrics(bills, a.registry).Update)
	return bills
}

// bootstrapTokens returns the admin tokens of the configuration.
func (a *app) bootstrapTokens() (admin.BootstrapTokens, error) {
	expires, err := a.cfg.Admin.BootstrapExpiry()
	if err != nil {
		return admin.BootstrapTokens{}, fmt.Errorf("admin.bootstrap_expires_at: %w", err)
	}
	return admin.BootstrapTokens{Texts: a.cfg.Admin.BootstrapToken.Lines(), ExpiresAt: expires}, nil
}

// buildAdminSide adds the outbox, the jobs and the admin API.
func (a *app) buildAdminSide(ctx context.Context) error {
	keys, err := readSecrets(&a.cfg.Secrets, a.findDataKey)
	if err != nil {
		return err
	}

	verifier, err := newVerifier(&a.cfg.Admin.OIDC)
	if err != nil {
		return err
	}

	bootstrap, err := a.bootstrapTokens()
	if err != nil {
		return err
	}

	proxies, err := a.cfg.Admin.Proxies()
	if err != nil {
		return fmt.Errorf("admin.trusted_proxies: %w", err)
	}

	catalogs := a.newCatalog(&keys)
	books := ledger.NewService(ledger.Config{
		Store:          moneystore.NewLedger(a.adminDB),
		Announcer:      a.leasing,
		Holdings:       a.leasing,
		Waiting:        a.waiting,
		Log:            a.log,
		ConfirmTimeout: confirmTimeout,
	})

	idempotencies := idempotency.New(accountstore.NewIdempotency(a.adminDB), keys.vault)
	a.addOutbox(catalogs)
	records := usagestore.NewUsage(a.adminDB)
	jobs := newJobs(a.log, a.registry)
	jobs.every("activate_prices", time.Second, catalogs.ActivatePrices)
	jobs.every("usage_partitions", time.Hour, records.EnsurePartitions)

	jobs.every("expire_idempotency_keys", 10*time.Minute, func(ctx context.Context) error {
		_, err := idempotencies.Expire(ctx)
		return err
	})

	usages := usage.NewService(records)
	checks := a.buildLedgerChecks(books, usages, jobs)
	archives := a.buildArchive(usages, jobs)
	videos := videostore.New(a.adminDB)
	quarantine := settle.NewQuarantine(moneystore.NewQuarantine(a.adminDB), newSettler(a.adminDB))
	rotations, err := a.buildRotation(ctx, keys, jobs)
	if err != nil {
		return err
	}

	webhooks, err := a.buildWebhooks(keys.vault, jobs)
	if err != nil {
		return err
	}

	bills := a.buildBills(jobs)
	fleets := leasestore.NewFleet(a.adminDB)
	a.watchFleet(fleets, jobs)
	accounts := accountstore.NewAccounts(a.adminDB)
	a.addMetricJobs(jobs, quarantine, videos, accounts)
	a.components.Add(
		"jobs",
		func(ctx context.Context) error { jobs.start(ctx); return nil },
		func(context.Context) error { jobs.stop(); return nil },
	)
	tokens := admin.NewService(accountstore.NewTokens(a.adminDB), bootstrap, verifier)
	sessions, err := a.newSessions(tokens, keys.signIns)
	if err != nil {
		return err
	}

	holdings := holding.NewService(leasestore.NewHoldings(a.adminDB), a.leasing)
	handler, err := httpapi.New(httpapi.Config{
		Accounts: account.NewService(account.Config{
			Store:          accounts,
			Announcer:      a.leasing,
			Holdings:       a.leasing,
			Log:            a.log,
			ConfirmTimeout: confirmTimeout,
		}),
		Keys:     a.newKeys(&keys),
		Projects: project.NewService(accountstore.NewProjects(a.adminDB)),
		Limits: spendlimit.NewService(spendlimit.Config{
			Store:          accountstore.NewSpendLimits(a.adminDB),
			Announcer:      a.leasing,
			Holdings:       a.leasing,
			Log:            a.log,
			ConfirmTimeout: confirmTimeout,
		}),
		Ledger:       books,
		LedgerChecks: checks,
		Sessions:     sessions,
		Catalog:      catalogs,
		Usage:        usages,
		Margin:       records,
		Archive:      archives,
		Holdings:     holdings,
		Checker:      a.leasing,
		Explainer: &explain.Service{
			Store:    leasestore.NewLeases(a.adminDB),
			Videos:   videostore.New(a.adminDB),
			Holdings: holdings,
			Catalog:  catalogs,
			Proxies:  a.leasing,
		},
		Search:          search.NewService(accountstore.NewSearch(a.adminDB), keys.hashers),
		Statements:      statement.NewService(moneystore.NewStatements(a.adminDB)),
		Tokens:          tokens,
		Address:         clientaddr.Behind(proxies),
		Fleet:           fleets,
		Applied:         fleet.NewWaiter(fleets, a.leasing, a.log),
		Audit:           changestore.NewAudit(a.adminDB),
		Idempotency:     idempotencies,
		Webhooks:        webhooks,
		Quarantine:      quarantine,
		Videos:          videos,
		Bills:           bills,
		Rotations:       rotations,
		Log:             a.log,
		Registerer:      a.registry,
		ResponseTimeout: databaseTimeout + max(a.cfg.Admin.RevokeTimeout, confirmTimeout),
		Diagnosis:       a.newDiagnosis(&keys, fleets, books),
		Traffic:         a.traffic,
		Tails:           traffic.NewTails(a.bus, a.log, nil),
		Past:            traffic.NewService(usagestore.NewTraffic(a.adminDB), a.traffic, nil),
		Stopping:        a.stopping,
	})
	if err != nil {
		return err
	}
	if handler, err = a.withConsole(handler, sessions, clientaddr.Behind(proxies), jobs); err != nil {
		return err
	}

	a.adminAddr, err = a.listen(ctx, adminListener, a.cfg.Admin.Listen, a.cfg.Admin.TLS.Files(), handler)
	return err
}

func (a *app) newCatalog(keys *secrets) *catalog.Service {
	return catalog.NewService(catalog.Config{
		Store:            catalogstore.New(a.adminDB),
		Vault:            keys.vault,
		Fleet:            keys.fleet,
		FleetFingerprint: keys.fleetFingerprint,
		RequireHTTPS:     a.cfg.Catalog.RequireHTTPS,
		Log:              a.log,
	})
}

// addMetricJobs adds the jobs that read what metrics show.
func (a *app) addMetricJobs(jobs *jobs, quarantine *settle.Quarantine, videos *videostore.Store, accounts *accountstore.Accounts) {
	jobs.every("quarantine_metrics", 15*time.Second, settle.NewQuarantineMetrics(quarantine, a.registry).Update)
	jobs.every("video_job_metrics", 15*time.Second, videojob.NewJobMetrics(videos, a.registry).Update)
	jobs.every("balance_metrics", time.Minute, account.NewBalanceMetrics(accounts, a.registry).Update)
}

// newKeys also adds what takes in the revocations of operators.
func (a *app) newKeys(keys *secrets) *key.Service {
	service := key.NewService(key.Config{
		Store:          accountstore.NewKeys(a.adminDB),
		Announcer:      a.leasing,
		Holdings:       a.leasing,
		Hasher:         keys.hasher,
		Peppers:        keys.peppers,
		Vault:          keys.vault,
		Log:            a.log,
		ConfirmTimeout: confirmTimeout,
		RevokeTimeout:  a.cfg.Admin.RevokeTimeout,
	})
	a.components.AddTask("direct revocations", changestream.NewIntake(a.bus, service, a.log, a.registry).Run)
	return service
}

// clockSkew is the tolerated difference between the clock of the OpenID Connect provider and ours.
const clockSkew = time.Minute

// newVerifier returns the verifier of an OpenID Connect provider; nil if none is configured.
func newVerifier(cfg *config.OIDC) (admin.Verifier, error) {
	if cfg.Issuer == "" {
		return nil, nil //nolint:nilnil // an absent verifier is valid
	}

	scopes, err := oidc.ParseScopes(cfg.ScopeMapping)
	if err != nil {
		return nil, fmt.Errorf("admin.oidc.scope_mapping: %w", err)
	}

	v, err := oidc.New(oidc.Config{
		Issuer:       cfg.Issuer,
		Audience:     cfg.Audience,
		JWKSFile:     cfg.JWKSFile,
		Claim:        cfg.Claim,
		ScopeMapping: scopes,
		ClockSkew:    clockSkew,
	})
	if err != nil {
		return nil, fmt.Errorf("admin.oidc: %w", err)
	}

	return v, nil
}
