package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Postgres is what was found out about the database.
type Postgres struct {
	// Version is that of the server, such as 160004.
	Version int
	// Settings are those that matter here, by name.
	Settings map[string]string
	// Migration is the schema's, Newest the one that this program knows.
	Migration, Newest int64
	// Skew is its clock less ours; Doubt is how much of that the way may have taken.
	Skew, Doubt time.Duration
	// InRecovery is true for a standby, which takes no writes.
	InRecovery bool
	// OutboxAge is that of the oldest change that is not on the bus; zero if all are.
	OutboxAge time.Duration
	// SealedWith counts the stored secrets by the id of the master key.
	SealedWith map[string]int64
	// Connections of MaxConnections are open.
	Connections, MaxConnections int
	// Quarantined counts usage events that were put aside and wait for a decision.
	Quarantined int64
}

const (
	oldestPostgres = 150000
	// The bounds of what is in order and what is a failure.
	skewWarning, skewFailure     = 100 * time.Millisecond, time.Second
	outboxWarning, outboxFailure = 10 * time.Second, time.Minute
)

func judgePostgres(p *Postgres) []Finding {
	add := collect("postgres")
	add.judge(p.Version < oldestPostgres, Failure, "version", "", fmt.Sprintf("server version %d.%d", p.Version/10000, p.Version%10000),
		"The program needs 15 or newer.", "Upgrade the server.")
	add.judge(p.InRecovery, Failure, "primary", "", map[bool]string{true: "is a standby", false: "takes writes"}[p.InRecovery],
		"No change, lease or settlement can be written.", "Point postgres.url to the primary.")
	add.judge(p.Migration < p.Newest, Failure, "migrations", "", fmt.Sprintf("schema at %d, this program knows %d", p.Migration, p.Newest),
		"The control plane does not start on an older schema.", "Run `controlplane migrate`.")
	for _, s := range []struct {
		name    string
		fine    []string
		meaning string
	}{
		{"fsync", []string{"on"}, "What was committed, money included, can be lost or broken by a crash of the machine."},
		{"full_page_writes", []string{"on"}, "A crash of the machine can leave torn pages."},
		{"synchronous_commit", []string{"on", "remote_apply", "remote_write", "local"}, "What was answered as done, such as a payment or a revocation, can be lost by a crash."},
	} {
		value := p.Settings[s.name]
		add.judge(!slices.Contains(s.fine, value), Failure, s.name, "", s.name+" = "+value, s.meaning, "Set "+s.name+" = on, and restart or reload the server.")
	}
	free := p.MaxConnections - p.Connections
	add.judge(free*10 < p.MaxConnections, Warning, "connections", "", fmt.Sprintf("%d of %d connections are open", p.Connections, p.MaxConnections),
		"New replicas may find no connection.", "Raise max_connections, or lower postgres.max_connections of the replicas.")
	add.skew("", p.Skew, p.Doubt, "The end of sessions, which revocation relies on, is reckoned by the database's clock.")
	add.add(outbox(p.OutboxAge))
	add.judge(p.Quarantined > 0, Warning, "quarantine", "", fmt.Sprintf("%d usage events are put aside and undecided", p.Quarantined),
		"They could not be read or settled, so they are not billed.", "Look at them in the quarantine, find out who sent them, and release or dismiss each.")
	return add.findings
}

func outbox(age time.Duration) Finding {
	f := Finding{Area: "postgres", Check: "outbox", Status: OK, Detail: "every change is on the bus"}
	if age <= 0 {
		return f
	}
	f.Detail = fmt.Sprintf("the oldest change that is not on the bus waits for %v", age.Round(time.Millisecond))
	if age < outboxWarning {
		return f
	}
	f.Status = Warning
	if age >= outboxFailure {
		f.Status = Failure
	}
	f.Meaning = "Proxies do not see changes of the catalog."
	f.Advice = "Look for the outbox in the control plane's log; NATS may refuse the catalog's bucket."
	return f
}

// judgeMasterKeys tells whether every stored secret can be opened.
func judgeMasterKeys(sealed map[string]int64, knows func(string) bool) Finding {
	f := Finding{Area: "secrets", Check: "master_keys", Status: OK}
	var total int64
	var missing []string
	for id, n := range sealed {
		total += n
		if !knows(id) {
			missing = append(missing, fmt.Sprintf("%s (%d secrets)", id, n))
		}
	}
	f.Detail = fmt.Sprintf("%d stored secrets, and every master key that they were sealed with is at hand", total)
	if len(missing) > 0 {
		slices.Sort(missing)
		f.Status, f.Detail = Failure, "missing master keys: "+strings.Join(missing, ", ")
		f.Meaning = "What rests under them cannot be opened: keys cannot be shown, provider credentials not sent to proxies, webhooks not signed."
		f.Advice = "Give the control plane the old master keys too, until everything is sealed anew."
	}
	return f
}
