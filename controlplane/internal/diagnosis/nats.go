package diagnosis

import (
	"fmt"
	"strings"
	"time"
)

// NATS holds the facts about NATS.
type NATS struct {
	// Version is the version of the connected server.
	Version string
	// Skew is the server's clock less ours; Uncertainty is the possible error of it.
	Skew, Uncertainty time.Duration
	Streams           []Stream
	// Permissions describes the permissions of the user of this connection; nil if they cannot be read.
	Permissions *NATSPermissions
	// Syncs has for each server that was asked, by its id, whether it syncs messages to disk before it acknowledges them.
	Syncs map[string]bool
	// SyncError describes the servers that were asked and did not tell; empty if there are none.
	SyncError string
}

// NATSPermissions compares the permissions of a user of NATS with those of the control plane.
type NATSPermissions struct {
	User string
	// Missing are the permissions that the user lacks, Extra those beyond the control plane's.
	Missing, Extra []string
}

// Stream is a stream, or the stream of a bucket.
type Stream struct {
	Name    string
	Missing bool
	// Replicas is the actual number of replicas, Wanted the configured one.
	Replicas, Wanted int
	// Offline is the number of replicas that do not follow the leader.
	Offline int
	// Differences describe the settings that differ from the declared ones.
	Differences []string
	// Consumer is the durable consumer that must exist; empty if there is none.
	Consumer        string
	ConsumerMissing bool
	// Waiting is the number of unacknowledged messages; Oldest is the time of the first of them.
	Waiting uint64
	Oldest  time.Time
	// Bytes is the size of the stream on each server, MaxBytes the limit; zero means none.
	Bytes    uint64
	MaxBytes int64
	// Usage is true for the usage stream.
	Usage bool
}

const lagWarning, lagFailure = 30 * time.Second, 5 * time.Minute

func checkNATS(n *NATS, now time.Time) []Finding {
	add := collect("nats")
	add.check(false, OK, "reachable", "", "server "+n.Version, "", "")
	add.skew("", n.Skew, n.Uncertainty, "The ages of messages are computed with this clock.")
	add.add(permissions(n.Permissions))

	for i := range n.Streams {
		s := &n.Streams[i]
		add.check(s.Missing, Failure, "exists", s.Name, map[bool]string{true: "does not exist", false: "exists"}[s.Missing],
			"Usage cannot be settled, or proxies cannot start.", "Restart a control plane: it creates streams and buckets when it starts.")

		if s.Missing {
			continue
		}

		add.check(
			len(s.Differences) > 0,
			Failure,
			"settings",
			s.Name,
			joinDifferences(s.Differences),
			"Messages can be lost or rejected.",
			"Restart a control plane: it restores the settings of the stream. If they change again, find out who changes them.",
		)

		add.check(
			s.Replicas < s.Wanted,
			Warning,
			"replicas",
			s.Name,
			fmt.Sprintf("%d of %d replicas", s.Replicas, s.Wanted),
			"The stream survives fewer server failures than configured.",
			"Add NATS servers, or restart a control plane, which updates the stream.",
		)

		add.check(s.Offline > 0, Warning, "followers", s.Name, number(s.Offline, "replica does", "replicas do")+" not follow the leader",
			"Another server failure can stop the stream.", "Check the NATS servers.")

		if s.Consumer != "" {
			add.check(
				s.ConsumerMissing,
				Failure,
				"consumer",
				s.Name,
				map[bool]string{true: s.Consumer + " does not exist", false: s.Consumer + " exists"}[s.ConsumerMissing],
				"The messages of the stream are not processed.",
				"Restart a control plane: it creates the consumer.",
			)
		}

		if s.Usage {
			add.add(durable(s, n))
			add.add(lag(s, now))
			add.add(size(s))
		}
	}

	return add.findings
}

// permissions reports whether the control plane may do in NATS what it must, and no more.
func permissions(p *NATSPermissions) Finding {
	f := Finding{
		Area:   "nats",
		Check:  "permissions",
		Status: OK,
		Advice: "`gwctl nats-permissions` prints the users with their permissions for the configuration of NATS.",
	}

	switch {
	case p == nil:
		f.Status, f.Detail = Warning, "the server does not tell the permissions of the user"
		f.Meaning = "If the user lacks a permission, what needs it fails; if it has more than it needs, so does everyone who steals " +
			"its password."
	case len(p.Missing) > 0:
		f.Status, f.Detail = Failure, fmt.Sprintf("the user %q may not %s", p.User, strings.Join(p.Missing, ", "))
		f.Meaning = "What the control plane does with these subjects fails."
	case len(p.Extra) > 0:
		f.Status, f.Detail = Warning, fmt.Sprintf("the user %q may also %s", p.User, strings.Join(p.Extra, ", "))
		f.Meaning = "The control plane does not need that. With a stolen password, streams can be deleted, or messages of proxies be " +
			"read and made up."
	default:
		f.Detail, f.Advice = fmt.Sprintf("the user %q has the permissions of the control plane and no others", p.User), ""
	}

	return f
}

func joinDifferences(differences []string) string {
	if len(differences) == 0 {
		return "as declared"
	}
	return strings.Join(differences, "; ")
}

// durable reports whether acknowledged messages survive a power failure. Copies on several servers do not replace the sync: the
// power of all of them can fail at once, and a server that returns without its newest messages can lead the others.
func durable(s *Stream, n *NATS) Finding {
	f := Finding{
		Area:    "nats",
		Check:   "sync",
		Subject: s.Name,
		Status:  OK,
	}

	const list = "list the monitoring addresses of all NATS servers in nats.monitor_url, separated by commas, so that this check can " +
		"read it."
	lazy := 0
	for _, always := range n.Syncs {
		if !always {
			lazy++
		}
	}

	switch seen := len(n.Syncs); {
	case lazy > 0:
		f.Status = Warning
		f.Detail = number(
			lazy,
			"server syncs",
			"servers sync",
		) + " messages to disk only after the acknowledgement; " +
			number(seen, "was asked", "were asked")
		f.Advice = "Set `sync_interval: always` in the jetstream block of every NATS server."
	case seen < s.Replicas:
		f.Status = Warning
		syncs := number(seen, "server says that it syncs", "servers say that they sync") +
			" it before the acknowledgement, the rest cannot be seen from here"
		if seen == 0 {
			syncs = "whether it is synced to disk before the acknowledgement cannot be seen from here"
		}
		f.Detail = "each message is stored on " + number(s.Replicas, "server", "servers") + "; " + syncs
		f.Advice = "Check that the jetstream block of every NATS server has `sync_interval: always`, and " + list
	default:
		f.Detail = "each message is stored on " +
			number(s.Replicas, "server, which syncs", "servers, which sync") + " it to disk before the acknowledgement"
		return f
	}

	if n.SyncError != "" {
		f.Detail += " (" + n.SyncError + ")"
	}

	f.Meaning = "A power failure can take messages that NATS has acknowledged. Usage is lost only if the disks of the proxies are " +
		"lost as well: " +
		"they keep it until it is settled and publish it again. But the recovery bucket, by which lost commits of Postgres are " +
		"noticed, has no other copy."
	return f
}

// sizeWarning and sizeFailure are percentages of the limit.
const sizeWarning, sizeFailure = 70, 90

// size reports how full the usage stream is.
func size(s *Stream) Finding {
	f := Finding{
		Area:    "nats",
		Check:   "usage_size",
		Subject: s.Name,
		Status:  OK,
		Detail:  fmt.Sprintf("%d MiB without a limit", s.Bytes>>20),
	}
	if s.MaxBytes <= 0 {
		return f
	}

	share := s.Bytes * 100 / uint64(s.MaxBytes)
	f.Detail = fmt.Sprintf("%d of %d MiB (%d %%)", s.Bytes>>20, s.MaxBytes>>20, share)
	if share < sizeWarning {
		return f
	}

	f.Status = Warning
	if share >= sizeFailure {
		f.Status = Failure
	}

	f.Meaning = "When the stream is full, usage stays in the spools of the proxies. A proxy with a full spool serves no requests."
	f.Advice = "Check whether usage is settled (usage_lag). If it is, raise nats.usage_max_bytes or shorten nats.usage_kept."
	return f
}

// lag reports how far settlement is behind.
func lag(s *Stream, now time.Time) Finding {
	f := Finding{
		Area:    "nats",
		Check:   "usage_lag",
		Subject: s.Name,
		Status:  OK,
		Detail:  "all received usage is settled",
	}
	if s.Waiting == 0 {
		return f
	}

	age := max(now.Sub(s.Oldest), 0)
	f.Detail = fmt.Sprintf("%s waiting, the oldest for %v", number(s.Waiting, "batch is", "batches are"), age.Round(time.Millisecond))
	if age < lagWarning {
		return f
	}

	f.Status = Warning
	if age >= lagFailure {
		f.Status = Failure
	}

	f.Meaning = "Balances and statements are out of date, and the spools of the proxies fill up. A proxy with a full spool serves no " +
		"requests."
	f.Advice = "Look for \"settle usage\" in the control plane's log; add control planes if they are all busy."
	return f
}
