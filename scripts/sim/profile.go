package sim

import (
	"math/rand/v2"
	"time"

	"modelgateway/shared/lease/rollback"
)

// Profile has the sizes, intervals and fault probabilities of one world. They
// differ from seed to seed: some faults of the protocol are found only if
// responses are slow, others only if nothing is slow.
type Profile struct {
	Name              string
	Replicas, Proxies int
	Customers         int
	// Keys is the number of keys of each account.
	Keys                                     int
	LoseMessage, DoubleMessage, DelayMessage float64
	MaxDelay                                 time.Duration
	TxTime                                   time.Duration
	TxFail, TxUnknown                        float64
	AnswerTime                               time.Duration
	CrashAfterCommit                         float64
	SlowStart, AlterEvent                    float64
	SettleEvery, HeadroomPeriod              time.Duration
	SpoolCapacity                            int
	RequestDuration                          time.Duration
	// LongCalls is the share of the requests that may run for several times as long as an expired session is kept.
	LongCalls                   float64
	Overrun                     float64
	RequestEvery                time.Duration
	AdjustEvery, RevokeEvery    time.Duration
	SuspendEvery                time.Duration
	FaultEvery                  time.Duration
	Poor                        bool
	KillProxy, LoseSpool, Drain float64
	KillReplica                 float64
	Halt, Suspend, Cut          float64
	BusDown, PostgresDown       float64
	LoseTail, DeleteStream      float64
	KillFleet                   float64
	LoseCommits                 float64
	// Outage is the weight of a fault after which nobody hears the proxies for longer than a session is kept.
	Outage            float64
	HeartbeatInterval time.Duration
	Stall, LosePushes float64
	// HaltInTx is the probability that a replica is stopped inside a transaction, while it holds row locks.
	HaltInTx float64
	// KillTogether is the weight of the fault that kills Postgres and a replica.
	KillTogether float64
	// Keeps is when Postgres keeps every acknowledged commit, as far as the replicas know.
	Keeps rollback.Keeps
	// ClockSkew is the greatest error of the clocks of Postgres servers.
	ClockSkew time.Duration
	// ForgeEvery is the interval of the messages of a faulty proxy.
	ForgeEvery time.Duration
	// TopUps makes accounts deposit whenever their balance is nearly spent.
	TopUps bool
	// Limits is the greatest spend limit of a new key, and the greatest amount of most limits of accounts and projects. Spend limits that
	// are set later are small.
	Limits int64
	// Windows is by how many seconds windows of limits are longer than two at most; raises are shorter by two.
	Windows int64
	// IdleTimeout is how long proxies keep the idle units of an account that has no requests.
	IdleTimeout time.Duration
	// NoQuorum, LoseChanges, NewChanges and Minority are the weights of faults of the stream of changes.
	NoQuorum, LoseChanges, NewChanges, Minority float64
	// KeySlots gives most keys slots of their own.
	KeySlots bool
	// KeyEvery is how often keys are rotated and expire in worlds with limits; zero: never.
	KeyEvery time.Duration
	// LimitEvery is how often limits of accounts change; zero: there are none.
	LimitEvery time.Duration
	// RaiseBeforeOutage raises all limits before an outage, until some seconds after it has begun, and restarts all proxies meanwhile.
	RaiseBeforeOutage bool
	// RestartWithin is the longest time until a killed proxy is started again.
	RestartWithin time.Duration
	Length        time.Duration
}

// windowBound is how long after a change is in the stream no proxy admits without it.
const windowBound = window + window/20 + 500*time.Millisecond

// draw returns a random profile.
func draw(r *rand.Rand) Profile {
	some := func(p, most float64) float64 {
		if r.Float64() > p {
			return 0
		}
		return most * r.Float64()
	}

	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int64N(int64(high-low))) }
	p := Profile{
		Name:             "swarm",
		Replicas:         1 + r.IntN(3),
		Proxies:          1 + r.IntN(4),
		Customers:        1 + r.IntN(2),
		Keys:             3,
		LoseMessage:      some(.7, .15),
		DoubleMessage:    some(.6, .1),
		DelayMessage:     some(.6, .15),
		MaxDelay:         between(5*time.Millisecond, 800*time.Millisecond),
		TxTime:           between(time.Millisecond, 20*time.Millisecond),
		TxFail:           some(.4, .05),
		TxUnknown:        some(.4, .05),
		CrashAfterCommit: some(.4, .01),
		SlowStart:        some(.5, .4),
		AlterEvent:       some(.2, .05),
		SettleEvery:      between(20*time.Millisecond, 300*time.Millisecond),
		HeadroomPeriod:   between(20*time.Millisecond, 2*time.Second),
		SpoolCapacity:    10 + r.IntN(60),
		RequestDuration:  between(30*time.Millisecond, 1500*time.Millisecond),
		Overrun:          some(.5, .3),
		RequestEvery:     between(15*time.Millisecond, 120*time.Millisecond),
		AdjustEvery:      between(300*time.Millisecond, 5*time.Second),
		RevokeEvery:      between(300*time.Millisecond, 4*time.Second),
		SuspendEvery:     between(2*time.Second, 20*time.Second),
		FaultEvery:       between(300*time.Millisecond, 4*time.Second),
		Poor:             r.IntN(2) == 0,
		KillProxy:        some(.6, 1),
		LoseSpool:        some(.3, .5),
		Drain:            some(.4, 1),
		KillReplica:      some(.5, 1),
		Halt:             some(.6, 1),
		Suspend:          some(.5, 1),
		Cut:              some(.6, 1),
		BusDown:          some(.4, .7),
		PostgresDown:     some(.4, .7),
		LoseTail:         some(.4, .7),
		DeleteStream:     some(.2, .4),
		KillFleet:        some(.2, .3),
		Limits:           8000,
		Windows:          5,
		IdleTimeout:      idleTimeout,
		RestartWithin:    4 * time.Second,
		Length:           between(6*time.Second, 16*time.Second),
	}
	p.HeartbeatInterval, p.Stall = between(window/10, window/2), some(.3, .5)
	p.LosePushes = some(.4, .5)
	p.HaltInTx = some(.3, .02)
	p.ClockSkew = time.Duration(some(.5, float64(window)))
	p.Keeps = []rollback.Keeps{rollback.KeepsNever, rollback.KeepsOnRestart, rollback.KeepsOnRestart, rollback.KeepsOnFailover}[r.IntN(4)]
	if r.IntN(4) == 0 {
		p.ForgeEvery = between(100*time.Millisecond, time.Second)
	}
	if r.IntN(4) == 0 {
		p.HeadroomPeriod = -1 // every pool stays in central mode
	}
	if r.IntN(4) == 0 {
		p.LoseCommits, p.AnswerTime = .2+.8*r.Float64(), between(time.Millisecond, 10*time.Millisecond)
	}
	p.NoQuorum, p.LoseChanges, p.NewChanges, p.Minority = some(.4, .7), some(.4, .7), some(.2, .4), some(.4, .7)
	if i := r.IntN(20); i < len(directedProfiles) {
		p.direct(r, directedProfiles[i].name)
	}

	return p
}

// directedProfiles cause situations that are too rare in random profiles.
var directedProfiles = []struct {
	name  string
	shape func(p *Profile, r *rand.Rand)
}{
	{"lossy", func(p *Profile, _ *rand.Rand) { p.LoseMessage = .15 }},
	{"slow replies", func(p *Profile, _ *rand.Rand) {
		p.DelayMessage, p.MaxDelay, p.LoseMessage = .4, 1500*time.Millisecond, .02
	}},
	{"pauses", func(p *Profile, _ *rand.Rand) { p.Halt, p.Suspend, p.FaultEvery = 1, 1, 700*time.Millisecond }},
	{"scarce", func(p *Profile, _ *rand.Rand) {
		p.Customers, p.Proxies, p.Poor, p.HeadroomPeriod, p.RequestEvery = 1, 4, true, 30*time.Millisecond, 20*time.Millisecond
	}},
	// Accounts with much headroom, so that proxies admit from idle units.
	{"escrow", func(p *Profile, r *rand.Rand) {
		p.Poor, p.HeadroomPeriod, p.RequestEvery, p.RequestDuration = false, 50*time.Millisecond, 10*time.Millisecond, time.Duration(
			30+r.IntN(300),
		)*time.Millisecond
		p.AdjustEvery, p.SuspendEvery, p.SpoolCapacity, p.FaultEvery = 4*p.AdjustEvery, 4*p.SuspendEvery, 400, 2*p.FaultEvery
	}},
	// Accounts that spend much more over time than their balance ever is.
	{"top-ups", func(p *Profile, r *rand.Rand) {
		p.Poor, p.TopUps, p.Customers, p.RequestEvery = false, true, 1, 20*time.Millisecond
		p.SuspendEvery, p.AdjustEvery, p.RequestDuration = 4*p.SuspendEvery, 100*time.Millisecond, time.Duration(
			20+r.IntN(60),
		)*time.Millisecond
		p.HeadroomPeriod, p.SpoolCapacity = min(max(p.HeadroomPeriod, 20*time.Millisecond), 500*time.Millisecond), 400
	}},
	// An account with many keys, such as one for each of its own customers.
	{"many keys", func(p *Profile, _ *rand.Rand) {
		p.Customers, p.Proxies, p.Keys, p.Poor, p.RequestEvery, p.Length = 1, 1+p.Proxies%2, 400, false, 15*time.Millisecond, max(
			p.Length,
			12*time.Second,
		)
		p.RevokeEvery, p.SuspendEvery, p.FaultEvery = 4*p.RevokeEvery, 4*p.SuspendEvery, 3*p.FaultEvery
	}},
	// Proxies that receive most changes only with heartbeats, and are stopped shortly before their sessions end.
	{"stalls", func(p *Profile, r *rand.Rand) {
		p.Stall, p.LosePushes, p.HeartbeatInterval = .8, .9, window/3+time.Duration(r.Int64N(int64(window/6)))
		p.RevokeEvery, p.RequestEvery, p.FaultEvery = 400*time.Millisecond, 30*time.Millisecond, 2*p.FaultEvery
	}},
	// Postgres is restarted often, on servers whose clocks differ by as much as a session is valid.
	{"clock steps", func(p *Profile, _ *rand.Rand) {
		p.ClockSkew = window
		p.PostgresDown = 1
		p.FaultEvery = 600 * time.Millisecond
		p.LosePushes = .9
		p.RevokeEvery = 400 * time.Millisecond
	}},
	// Replicas are stopped inside transactions, while others need rows that are free.
	{"row locks", func(p *Profile, _ *rand.Rand) {
		p.Customers, p.Replicas, p.HaltInTx = 4, 3, .02
	}},
	// Postgres, the bus or all replicas are unavailable for longer than an expired session is kept.
	{"outages", func(p *Profile, _ *rand.Rand) {
		p.Outage, p.FaultEvery, p.Length, p.LoseCommits = 3, 6*time.Second, 40*time.Second, 0
		p.RequestEvery = 60 * time.Millisecond
	}},
	// Postgres is killed together with a replica, and restarts with every commit.
	{"killed together", func(p *Profile, _ *rand.Rand) {
		p.Replicas, p.KillTogether, p.LoseCommits, p.FaultEvery = 1+p.Replicas%3, 1, 0, max(p.FaultEvery, 1500*time.Millisecond)
		if p.Keeps == rollback.KeepsNever {
			p.Keeps = rollback.KeepsOnRestart
		}
	}},
	// Keys have limits with room for idle units of all proxies, until they are lowered.
	{"limits", func(p *Profile, _ *rand.Rand) {
		p.Poor = false
		p.Customers = 2
		p.Keys = 2
		p.RequestEvery = 15 * time.Millisecond
		p.HeadroomPeriod = 20 * time.Millisecond
		p.Limits = 200_000
		p.AdjustEvery = 500 * time.Millisecond
		p.RevokeEvery = time.Second
		p.SuspendEvery = 4 * p.SuspendEvery
		p.SpoolCapacity = 400
		p.FaultEvery = 2 * p.FaultEvery
		p.RequestDuration = min(p.RequestDuration, 200*time.Millisecond)
	}},
	// Proxies keep idle units for longer than anything else lasts, and accounts need those of all proxies when their balance is
	// nearly spent.
	{"idle accounts", func(p *Profile, _ *rand.Rand) {
		p.Poor, p.TopUps, p.Customers, p.Proxies, p.RequestEvery, p.IdleTimeout = false, true, 2, 4, 50*time.Millisecond, longIdleTimeout
		p.HeadroomPeriod, p.RequestDuration, p.SpoolCapacity = 30*time.Millisecond, min(p.RequestDuration, 300*time.Millisecond), 400
		p.SuspendEvery, p.AdjustEvery, p.FaultEvery = 4*p.SuspendEvery, 1500*time.Millisecond, 2*p.FaultEvery
	}},
	// The stream of changes fails often.
	{"stream of changes", func(p *Profile, r *rand.Rand) {
		p.NoQuorum, p.LoseChanges, p.NewChanges, p.Minority = r.Float64(), r.Float64(), r.Float64()/2, r.Float64()
	}},
	// Postgres loses commits while proxies are fresh.
	{"lost commits", func(p *Profile, r *rand.Rand) {
		p.LoseCommits, p.AnswerTime = 2, time.Duration(1+r.IntN(10))*time.Millisecond
	}},
	{resumeProfile, func(p *Profile, r *rand.Rand) { p.needResume(r) }},
	// Calls that outlive their sessions, whose proxies lapse and register again.
	{"long calls", func(p *Profile, _ *rand.Rand) {
		p.LongCalls, p.Length, p.Poor, p.LoseCommits, p.KillProxy, p.KillFleet, p.Drain = .02, 40*time.Second, false, 0, 0, 0, 0
		p.Cut, p.BusDown, p.NoQuorum, p.FaultEvery, p.RequestEvery = 1, .5, .5, 3*time.Second, 60*time.Millisecond
		p.SpoolCapacity = 400
	}},
	// Keys have few slots of their own, and proxies also keep idle ones of accounts, which have many.
	{keySlotsProfile, func(p *Profile, _ *rand.Rand) {
		p.KeySlots, p.Poor, p.Customers, p.Keys, p.Proxies, p.Limits = true, false, 2, 3, max(p.Proxies, 2), 200_000
		p.RequestEvery, p.AdjustEvery, p.RevokeEvery, p.SpoolCapacity = 15*time.Millisecond, 500*time.Millisecond, time.Second, 400
		p.SuspendEvery, p.FaultEvery, p.RequestDuration = 4*p.SuspendEvery, 2*p.FaultEvery, min(p.RequestDuration, 200*time.Millisecond)
	}},
	// Accounts have limits whose windows end often, and the clocks of proxies differ.
	{windowsProfile, func(p *Profile, _ *rand.Rand) {
		p.LimitEvery, p.RequestEvery, p.SpoolCapacity, p.Length = time.Second, 20*time.Millisecond, 400, max(p.Length, 12*time.Second)
		p.Proxies, p.SuspendEvery, p.FaultEvery, p.Poor = max(p.Proxies, 2), 4*p.SuspendEvery, 2*p.FaultEvery, false
	}},
	// Keys are rotated and expire, and the clocks of proxies differ.
	{keyLifeProfile, func(p *Profile, _ *rand.Rand) {
		p.KeyEvery, p.LimitEvery, p.RevokeEvery = 500*time.Millisecond, 3*time.Second, 700*time.Millisecond
		p.Length, p.Poor, p.RequestEvery, p.SpoolCapacity = max(p.Length, 12*time.Second), false, 20*time.Millisecond, 400
		p.Proxies, p.SuspendEvery, p.AdjustEvery = max(p.Proxies, 2), 4*p.SuspendEvery, 2*p.AdjustEvery
	}},
	// Proxies are restarted in outages in which windows and raises of limits end. Limits are great, so that proxies hold idle units.
	{resumeWindowsProfile, func(p *Profile, r *rand.Rand) {
		p.needResume(r)
		p.LimitEvery, p.Limits, p.Windows, p.RaiseBeforeOutage = 700*time.Millisecond, 1_000_000, 60, true
	}},
}

// Profiles lists the profiles that can be selected by name.
func Profiles() []string {
	names := []string{freshness}
	for _, d := range directedProfiles {
		names = append(names, d.name)
	}
	return names
}

// direct applies the directed profile of that name, if there is one.
func (p *Profile) direct(r *rand.Rand, name string) {
	for _, d := range directedProfiles {
		if d.name == name {
			p.Name = name
			d.shape(p, r)
		}
	}
}
