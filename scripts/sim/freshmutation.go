package sim

import (
	"time"

	"modelgateway/shared/lease/session"
)

// readAnything does not notice lost messages.
func readAnything(f *session.Freshness, now session.Instant, incarnation string, b session.Beat, sequence uint64) bool {
	f.ReadBack(now, incarnation, b, sequence)
	return true
}

// freshMutations lists the mutations of freshness.
func freshMutations() []Mutation {
	fresh := func(name string, budget uint64, apply func(r *FreshRules)) Mutation {
		return Mutation{name, budget, func(r *Rules) {
			r.Freshness = correctFresh()
			apply(r.Freshness)
		}}
	}

	inPools := func(name, profile string, budget uint64, apply func(r *FreshRules)) Mutation {
		return Mutation{name, budget, func(r *Rules) {
			r.Profile = profile
			apply(r.Changes)
		}}
	}

	return []Mutation{
		inPools(
			"a session is fenced before the stream has confirmed its end",
			"outages",
			500,
			func(r *FreshRules) { r.ConfirmsEnds = false },
		),
		inPools(
			"the recovery wait ends before the stream has confirmed the epoch",
			"lost commits",
			4000,
			func(r *FreshRules) { r.ConfirmsEpochs = false },
		),
		inPools("a change is confirmed for fresh sessions before the window has passed", "stream of changes", 2000, func(r *FreshRules) {
			r.Due = func(c *session.Confirmation, now session.Instant) bool { return c.Due(now.Add(2 * window / 3)) }
		}),
		{"a change is told only after Postgres has said which sessions there are", 60, func(r *Rules) {
			r.TellsFirst = false
		}},
		{"a time is told for a change that the stream does not have", 2000, func(r *Rules) {
			r.Profile = "stream of changes"
			r.Bound = func(session.Reach) (time.Duration, bool) { return session.Lasts(window), true }
		}},
		fresh("freshness counts from some time after the beat was sent", 2000, func(r *FreshRules) {
			r.SentAt = func(now session.Instant) session.Instant { return now.Add(window / 2) }
		}),
		fresh("a suspension of the machine does not end freshness", 2000, func(r *FreshRules) {
			r.Fresh = func(f *session.Freshness, now session.Instant) bool { return f.Fresh(session.Instant{Mono: now.Mono}) }
		}),
		fresh("a beat makes a proxy fresh after a lapse", 2000, func(r *FreshRules) {
			r.Fresh = (*session.Freshness).Reads
		}),
		fresh("a read of Postgres counts that began before the beat was read", 12_000, func(r *FreshRules) {
			r.Resynced = func(f *session.Freshness, now, _ session.Instant) { f.Resynced(now, now) }
		}),
		fresh("a beat counts when it is acknowledged", 2000, func(r *FreshRules) {
			r.ReadsOwn, r.ReadsAgain, r.ReadBack = false, false, readAnything
		}),
		fresh("what lies between two beats is not read again", 2000, func(r *FreshRules) { r.ReadsAgain = false }),
		fresh("the stream stores a beat although it has lost the one before", 4000, func(r *FreshRules) {
			r.ChecksPrevious, r.ReadBack = false, readAnything
		}),
		fresh("a change is confirmed before the window has passed", 2000, func(r *FreshRules) {
			r.Due = func(c *session.Confirmation, now session.Instant) bool { return c.Due(now.Add(2 * window / 3)) }
		}),
		fresh("a change is confirmed although the stream has lost it", 2000, func(r *FreshRules) {
			r.Verified = func(c *session.Confirmation, _ session.Place) { c.Verified(c.Place()) }
		}),
		fresh("another message counts as the change", 4000, func(r *FreshRules) {
			r.Verified = func(c *session.Confirmation, found session.Place) {
				if found.ID != "" && found.Sequence == c.Place().Sequence {
					found.ID = c.Place().ID
				}
				c.Verified(found)
			}
		}),
		fresh("the units of a session are free before its end is confirmed", 100, func(r *FreshRules) { r.ConfirmsEnds = false }),
		fresh("a direct revocation is not taken in", 100, func(r *FreshRules) { r.TakesIn = false }),
		fresh(
			"a new process does not read the stream from its start",
			2000,
			func(r *FreshRules) { r.FromStart, r.ReadsAgain = false, false },
		),
	}
}
