package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

func recoveryMutations() []Mutation {
	return []Mutation{
		{"a loss of commits is not detected", 90, func(r *Rules) {
			r.Observe = func(
				a *rollback.Detector, members rollback.Membership, f rollback.Observation, now time.Duration,
			) (rollback.Membership, rollback.Action) {
				f.Mark, f.MissingMarkers = members.Mark.Merge(f.Mark), nil
				return a.Observe(members, f, now)
			}
		}},
		{"a replica does not verify the commits that it has answered", 1000, func(r *Rules) {
			r.MarkersToVerify = func(a *rollback.Detector, members rollback.Membership) []rollback.CommitMarker {
				return slices.DeleteFunc(
					a.MarkersToVerify(members),
					func(w rollback.CommitMarker) bool { return w.Replica == a.ID() && w != members.LastMarker },
				)
			}
		}},
		{"Postgres is used before the other replicas have verified their commits", 600, func(r *Rules) {
			r.Observe = func(
				a *rollback.Detector, members rollback.Membership, f rollback.Observation, now time.Duration,
			) (rollback.Membership, rollback.Action) {
				maps.DeleteFunc(members.Members, func(_ string, p rollback.Member) bool { return p.Incarnation != f.Incarnation })
				return a.Observe(members, f, now)
			}
		}},
		{"a silent replica is removed from the membership without being fenced", 1500, func(r *Rules) { r.FencesReplicas = false }},
		{"a fenced replica leaves no marker", 600, func(r *Rules) {
			r.AfterCheckpoint = func(
				a *rollback.Detector, members rollback.Membership, f rollback.Observation, checkpoint rollback.Transaction, fenced []string,
			) (rollback.Membership, bool) {
				next, ok := a.AfterCheckpoint(members, f, checkpoint, fenced)
				if len(fenced) > 0 {
					next.LastMarker = members.LastMarker
				}
				return next, ok
			}
		}},
		{"ids continue where the restored copy ends", 90, func(r *Rules) {
			r.NextMark = func(m, now rollback.HighWaterMark) rollback.HighWaterMark {
				now.Epoch = max(m.Epoch, now.Epoch) + 1
				return now
			}
		}},
		{
			"reported totals that Postgres has lost are not restored",
			250,
			mutateReports(func(b *allocator.Allocator, s wire.SessionID, v wire.LeaseReport) wire.LeaseReport {
				l := b.Leases[allocator.LeaseKey{Pool: v.Pool, Session: s}]
				if l == nil {
					v.GrantedSeen = 0
				} else {
					v.GrantedSeen = min(v.GrantedSeen, l.Granted)
				}
				return v
			}),
		},
		{"revocations are not recorded outside of Postgres", 2000, func(r *Rules) { r.KeepsRevocations = false }},
		{"a lost revocation is not restored", 2000, func(r *Rules) { r.RestoreRevocation = func(*database, string, apikey.Hash) {} }},
		{"a change does not wait for sessions from before a loss", 6000, func(r *Rules) {
			r.Profile = "stalls"
			r.UnknownSessions = func(bool) []session.ActiveSession { return nil }
		}},
		{"a promoted standby counts as the same server", 900, func(r *Rules) {
			r.Observe = func(
				a *rollback.Detector, members rollback.Membership, f rollback.Observation, now time.Duration,
			) (rollback.Membership, rollback.Action) {
				_, history, _ := strings.Cut(f.Incarnation, "/")
				for id, member := range members.Members {
					start, _, _ := strings.Cut(member.Incarnation, "/")
					member.Incarnation = start + "/" + history
					members.Members[id] = member
				}
				return a.Observe(members, f, now)
			}
		}},
		{"a loss is declared by an outdated membership", 900, func(r *Rules) { r.ReadsMembershipAgain = false }},
		{"a silent replica is not released after a restart", 60, func(r *Rules) {
			r.Profile = "killed together"
			r.Observe = func(
				a *rollback.Detector, members rollback.Membership, f rollback.Observation, now time.Duration,
			) (rollback.Membership, rollback.Action) {
				next, action := a.Observe(members, f, now)
				if action == rollback.Serve && len(next.UnverifiedReplicas(f.Incarnation, a.ID())) > 0 {
					return members, rollback.DeclareLoss
				}
				return next, action
			}
		}},
	}
}
