package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"modelgateway/shared/lease/session"
)

// Promises are the settings that decide what the installation guarantees while servers fail.
type Promises struct {
	// KeepsCommits is the setting postgres.keeps_commits.
	KeepsCommits string
	// Window is for how long a proxy admits after a beat in the stream of changes.
	Window time.Duration
	// RevocationBound is how long a revocation waits for a proxy that is stopped or cut off, while NATS serves.
	RevocationBound time.Duration
}

// checkCommits reports whether a promoted standby has every acknowledged commit, as far as the server tells, and whether
// postgres.keeps_commits claims more than that.
func checkCommits(settings map[string]string, keeps string) Finding {
	names, commit := settings["synchronous_standby_names"], settings["synchronous_commit"]
	synchronous := names != "" && slices.Contains([]string{"on", "remote_apply", "remote_write"}, commit)
	f := Finding{Area: "postgres", Check: "keeps_commits", Status: OK}
	f.Detail = fmt.Sprintf("postgres.keeps_commits = %s, synchronous_standby_names = %q, synchronous_commit = %s: ", keeps, names, commit)
	const failover = "failover"
	switch {
	case synchronous && keeps == failover:
		f.Detail += "a synchronous standby that is promoted has every acknowledged commit"
	case synchronous:
		f.Detail += "commits wait for a standby, and a failover may still be treated as a loss"
	case keeps != failover:
		f.Detail += "a standby that is promoted may lack the newest commits, which is treated as a loss"
	default:
		f.Status = Warning
		f.Detail += "the server does not wait for a standby"
		f.Meaning = "If a standby is promoted that lacks commits of a control plane that failed with the server, the loss may not be " +
			"noticed: " +
			"payments and revocations can be gone, and money can be spent twice."
		f.Advice = "Set synchronous_standby_names with synchronous_commit = on, or postgres.keeps_commits to restart. " +
			"If the storage below Postgres replicates synchronously, which the server does not tell, ignore this."
	}

	return f
}

// checkSessions tells how long proxies serve alone and when revocations are effective.
func checkSessions(p *Promises) []Finding {
	add := collect("proxies")
	alone := fmt.Sprintf(
		"session.window = %v: without a control plane a proxy admits requests as long as NATS has a quorum and its idle units last, "+
			"and without NATS for %v at most",
		p.Window,
		p.Window,
	)
	add.check(false, OK, "serves_alone", "", alone, "", "")
	cover := fmt.Sprintf(
		"if a proxy and its spool are lost, its units stay reserved for %v, not counting outages",
		session.CloseAfter,
	)
	add.check(false, OK, "cover", "", cover, "", "")

	bound := fmt.Sprintf(
		"a revocation waits %v at most for a proxy that is stopped or cut off, without a control plane, too (gwctl keys revoke-direct)",
		p.RevocationBound,
	)
	add.check(false, OK, "revocation_bound", "", bound, "", "")
	return add.findings
}
