// Package diagnosis checks the health of the system: it gathers facts from the database, NATS, the
// proxies and the ledger, and its rules decide for each fact whether it is in order, what it means
// if not, and what to do.
//
// The rules are pure functions of the facts. Gathering facts changes nothing and is bounded in
// time; facts that cannot be gathered are reported as findings. No finding contains a secret or a
// fingerprint of one.
package diagnosis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/wire"
)

// Status is the severity of a finding.
type Status string

// The severities, from good to bad.
const (
	OK Status = "ok"
	// Warning: the system works, but not as well or as safely as it should.
	Warning Status = "warning"
	// Failure: something does not work, or money or usage is at risk.
	Failure Status = "failure"
)

// Finding is the result of one check.
type Finding struct {
	// Area is "postgres", "catalog", "nats", "secrets", "proxies", "ledger", "limits" or "services"; Check is a stable name of the
	// check in its area.
	Area  string
	Check string
	// Subject is the checked object, such as a stream or a proxy; empty if the check has only one.
	Subject string
	Status  Status
	// Detail describes the fact.
	Detail string
	// Meaning and Advice describe the consequence and the remedy; empty for Status OK.
	Meaning, Advice string
}

// Report is the result of a diagnosis.
type Report struct {
	At time.Time
	// Build is the version of the program that made the report.
	Build    string
	Findings []Finding
}

// Status returns the worst status of all findings.
func (r *Report) Status() Status {
	worst := OK
	for _, f := range r.Findings {
		if f.Status == Failure || (f.Status == Warning && worst == OK) {
			worst = f.Status
		}
	}
	return worst
}

// Database gathers facts from Postgres.
type Database interface {
	Diagnose(ctx context.Context) (Postgres, error)
}

// Bus gathers facts from NATS. Describe asks every proxy to describe itself, until the expected
// number has answered or the context ends.
type Bus interface {
	Diagnose(ctx context.Context) (NATS, error)
	Describe(ctx context.Context, expected int) ([]Description, error)
}

// Ledger checks the ledger and recent usage records.
type Ledger interface {
	CheckRecent(ctx context.Context) (ledger.Report, error)
}

// Traffic tells what the proxies have reported in the last hour. Only a running control plane hears them.
type Traffic interface {
	UsageDoubts() []traffic.UsageDoubt
	LeftOut() []traffic.LeftOut
}

// Secrets describes the secrets of the control plane without revealing them.
type Secrets struct {
	// Peppers (the current one first) and FleetKey are fingerprints.
	Peppers  []string
	FleetKey string
	// KnowsFunc reports whether the master key with an id is configured.
	KnowsFunc func(id string) bool
}

// ReachFunc calls an address and returns an error unless something answers.
type ReachFunc func(ctx context.Context, url string) error

// Config holds the sources of facts. Areas whose source is nil are skipped.
type Config struct {
	Database Database
	Bus      Bus
	Fleet    fleet.Store
	Ledger   Ledger
	Traffic  Traffic
	Secrets  *Secrets
	// Promises are nil if the settings of the control planes are not known.
	Promises *Promises
	Build    string
	// ReachFunc calls a provider and returns an error unless it answers; nil skips the providers.
	ReachFunc ReachFunc
	// Services are addresses that must answer to ServiceFunc.
	Services    []string
	ServiceFunc ReachFunc
	// Preflight is true before an installation or upgrade: findings that it ends itself are OK.
	Preflight bool
}

// Service makes diagnoses.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

const (
	// areaTimeout bounds the gathering of facts of each area.
	areaTimeout = 5 * time.Second
	// describeTimeout bounds the wait for proxies.
	describeTimeout = time.Second
)

// Description is a proxy's description of itself, with the difference of its clock to ours.
type Description struct {
	wire.DescribeResponse
	// Skew is the proxy's clock less ours; Uncertainty is half of the round trip.
	Skew, Uncertainty time.Duration
}

// Run makes a diagnosis. It never fails: an error is reported as a finding.
func (s *Service) Run(ctx context.Context) *Report {
	return s.run(ctx, s.postgres, s.nats, s.proxies, s.usage, s.ledger, s.services)
}

// RunWithoutLedger makes a diagnosis that does not check the ledger, which takes longer the more there is of it.
func (s *Service) RunWithoutLedger(ctx context.Context) *Report {
	return s.run(ctx, s.postgres, s.nats, s.proxies, s.usage, s.services)
}

func (s *Service) run(ctx context.Context, parts ...func(context.Context) []Finding) *Report {
	areas := make([][]Finding, len(parts))
	var wait sync.WaitGroup
	for i, run := range parts {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, areaTimeout)
			defer cancel()
			areas[i] = run(ctx)
		})
	}

	wait.Wait()
	report := &Report{At: time.Now().UTC(), Build: s.cfg.Build, Findings: []Finding{}}
	for _, findings := range areas {
		report.Findings = append(report.Findings, findings...)
	}

	if s.cfg.Preflight {
		expect(report.Findings)
	}

	return report
}

func (s *Service) postgres(ctx context.Context) []Finding {
	if s.cfg.Database == nil {
		return nil
	}

	facts, err := s.cfg.Database.Diagnose(ctx)
	if err != nil {
		return []Finding{unreachable("postgres", err)}
	}

	findings := append(checkPostgres(&facts), checkCatalog(&facts)...)
	findings = append(findings, checkCertificates(facts.Certificates, time.Now())...)
	findings = append(findings, checkLimits(facts.UselessLimits)...)
	if s.cfg.Promises != nil {
		findings = append(findings, checkCommits(facts.Settings, s.cfg.Promises.KeepsCommits))
	}
	if s.cfg.Secrets != nil {
		findings = append(findings, checkMasterKeys(facts.SecretsByMasterKey, s.cfg.Secrets.KnowsFunc))
	}
	if s.cfg.ReachFunc != nil {
		findings = append(findings, s.providers(ctx, facts.Providers)...)
	}

	return findings
}

func (s *Service) nats(ctx context.Context) []Finding {
	if s.cfg.Bus == nil {
		return nil
	}
	facts, err := s.cfg.Bus.Diagnose(ctx)
	if err != nil {
		return []Finding{unreachable("nats", err)}
	}
	return checkNATS(&facts, time.Now())
}

func (s *Service) proxies(ctx context.Context) []Finding {
	if s.cfg.Fleet == nil {
		return nil
	}

	f, err := s.cfg.Fleet.Fleet(ctx)
	if err != nil {
		return []Finding{unreachable("proxies", err)}
	}

	findings := checkFleet(&f)
	if s.cfg.Promises != nil {
		findings = append(findings, checkSessions(s.cfg.Promises)...)
	}
	if s.cfg.Bus == nil || s.cfg.Secrets == nil {
		return findings
	}

	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	said, err := s.cfg.Bus.Describe(ctx, live(&f))
	if err != nil {
		return append(findings, unreachable("proxies", err))
	}

	return append(findings, checkDescriptions(&f, said, s.cfg.Secrets)...)
}

func (s *Service) usage(context.Context) []Finding {
	if s.cfg.Traffic == nil {
		return nil
	}
	return append(checkUsage(s.cfg.Traffic.UsageDoubts()), checkLeftOut(s.cfg.Traffic.LeftOut())...)
}

func (s *Service) ledger(ctx context.Context) []Finding {
	if s.cfg.Ledger == nil {
		return nil
	}
	report, err := s.cfg.Ledger.CheckRecent(ctx)
	if err != nil {
		return []Finding{unreachable("ledger", err)}
	}
	return checkLedger(&report)
}

// unreachable returns the finding for an area whose facts cannot be gathered. It contains the text
// of the error, since only operators see it.
func unreachable(area string, err error) Finding {
	return Finding{
		Area:    area,
		Check:   "reachable",
		Status:  Failure,
		Detail:  fmt.Sprintf("facts cannot be read: %v", err),
		Meaning: "Nothing else in this area could be checked.",
		Advice:  "Check that the server runs and is reachable from here, and check the credentials.",
	}
}

// Skew computes the difference of another clock to ours from the time that it reported, and the
// times at which the request was sent and the response was received.
func Skew(sent, reported, received time.Time) (skew, uncertainty time.Duration) {
	uncertainty = received.Sub(sent) / 2
	return reported.Sub(sent.Add(uncertainty)), uncertainty
}

// number returns a number with the words for one and for any other number.
func number[N int | int64 | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
