// Package diagnosis owns what an operator is told about the health of the
// system: facts that are gathered from the database, the bus, the proxies and
// the ledger, and rules that say of each fact whether it is in order, what it
// means if not, and what to do.
//
// The rules are pure functions of facts. Gathering changes nothing and is
// bounded in time; what cannot be gathered is a finding too. No finding holds a
// secret, not even a fingerprint of one.
package diagnosis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/shared/wire"
)

// Status is how a finding is to be taken.
type Status string

// The states, from good to bad.
const (
	OK Status = "ok"
	// Warning: it works, but not as well or as safely as it should.
	Warning Status = "warning"
	// Failure: something does not work, or money or usage is at risk.
	Failure Status = "failure"
)

// Finding is one fact, judged.
type Finding struct {
	// Area is "postgres", "nats", "secrets", "proxies" or "ledger"; Check names the fact in it, stable for scripts.
	Area  string
	Check string
	// Subject is what it is about, such as a stream or a proxy; empty if the check has only one.
	Subject string
	Status  Status
	// Detail says what was found.
	Detail string
	// Meaning and Advice say what it leads to and what to do; empty when all is well.
	Meaning, Advice string
}

// Report is the outcome of a diagnosis.
type Report struct {
	At time.Time
	// Build is the version of the program that made it.
	Build    string
	Findings []Finding
}

// Status is the worst of all findings.
func (r *Report) Status() Status {
	worst := OK
	for _, f := range r.Findings {
		if f.Status == Failure || (f.Status == Warning && worst == OK) {
			worst = f.Status
		}
	}
	return worst
}

// Database gathers the facts of Postgres.
type Database interface {
	Diagnose(ctx context.Context) (Postgres, error)
}

// Bus gathers the facts of NATS, and asks every proxy to describe itself until
// as many have answered as are expected, or the context ends.
type Bus interface {
	Diagnose(ctx context.Context) (NATS, error)
	Describe(ctx context.Context, expected int) ([]Description, error)
}

// Ledger runs the self-check, of usage the recent part.
type Ledger interface {
	CheckRecent(ctx context.Context) (ledger.Report, error)
}

// Secrets are what the control plane holds, as far as they can be told.
type Secrets struct {
	// Peppers, the current one first and those of before behind it, and FleetKey are fingerprints.
	Peppers  []string
	FleetKey string
	// KnowsFunc tells whether a master key is at hand.
	KnowsFunc func(id string) bool
}

// Config is what a diagnosis looks at. What is nil is left out.
type Config struct {
	Database Database
	Bus      Bus
	Fleet    fleet.Store
	Ledger   Ledger
	Secrets  *Secrets
	Build    string
}

// Service makes diagnoses.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

const (
	// partLimit bounds the gathering of each area.
	partLimit = 5 * time.Second
	// describeLimit bounds the wait for proxies.
	describeLimit = time.Second
)

// Description is what a proxy said about itself, and how far its clock is from
// ours, at most.
type Description struct {
	wire.DescribeResponse
	// Skew is its clock less ours; Doubt is how much of that the way may have taken.
	Skew, Doubt time.Duration
}

// Run makes a diagnosis. It never fails: what cannot be found out is found.
func (s *Service) Run(ctx context.Context) *Report {
	var areas [4][]Finding
	var wait sync.WaitGroup
	for i, run := range []func(context.Context) []Finding{s.postgres, s.nats, s.proxies, s.ledger} {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, partLimit)
			defer cancel()
			areas[i] = run(ctx)
		})
	}
	wait.Wait()
	report := &Report{At: time.Now().UTC(), Build: s.cfg.Build, Findings: []Finding{}}
	for _, findings := range areas {
		report.Findings = append(report.Findings, findings...)
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
	findings := judgePostgres(&facts)
	if s.cfg.Secrets != nil {
		findings = append(findings, judgeMasterKeys(facts.SealedWith, s.cfg.Secrets.KnowsFunc))
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
	return judgeNATS(&facts, time.Now())
}

func (s *Service) proxies(ctx context.Context) []Finding {
	if s.cfg.Fleet == nil {
		return nil
	}
	f, err := s.cfg.Fleet.Fleet(ctx)
	if err != nil {
		return []Finding{unreachable("proxies", err)}
	}
	findings := judgeFleet(&f)
	if s.cfg.Bus == nil || s.cfg.Secrets == nil {
		return findings
	}
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	said, err := s.cfg.Bus.Describe(ctx, live(&f))
	if err != nil {
		return append(findings, unreachable("proxies", err))
	}
	return append(findings, judgeDescriptions(&f, said, s.cfg.Secrets)...)
}

func (s *Service) ledger(ctx context.Context) []Finding {
	if s.cfg.Ledger == nil {
		return nil
	}
	report, err := s.cfg.Ledger.CheckRecent(ctx)
	if err != nil {
		return []Finding{unreachable("ledger", err)}
	}
	return judgeLedger(&report)
}

// unreachable is an area that cannot be looked into. The error's text is for
// operators, who are the only ones to see it.
func unreachable(area string, err error) Finding {
	return Finding{
		Area: area, Check: "reachable", Status: Failure, Detail: fmt.Sprintf("cannot be looked into: %v", err),
		Meaning: "Nothing else is known about it.", Advice: "Check that it runs and can be reached from here, and the credentials.",
	}
}

// Skew compares a clock that was asked with ours: what it said, and when the
// question was sent and the answer came. The doubt is the half of the way.
func Skew(sent, said, came time.Time) (skew, doubt time.Duration) {
	doubt = came.Sub(sent) / 2
	return said.Sub(sent.Add(doubt)), doubt
}
