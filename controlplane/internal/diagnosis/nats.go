package diagnosis

import (
	"fmt"
	"strings"
	"time"
)

// NATS is what was found out about the bus.
type NATS struct {
	// Version is that of the server that we are connected to.
	Version string
	// Skew is its clock less ours; Doubt is how much of that the way may have taken.
	Skew, Doubt time.Duration
	Streams     []Stream
	// SyncAlways tells whether every message is on disk before it is acknowledged; nil if that cannot be seen.
	SyncAlways *bool
	// SyncFault is why it cannot be seen, if it should be.
	SyncFault string
}

// Stream is a stream or the stream of a bucket.
type Stream struct {
	Name    string
	Missing bool
	// Replicas are those that it has, Wanted those of the configuration.
	Replicas, Wanted int
	// Offline counts replicas that do not follow.
	Offline int
	// Faults are settings that are not as declared.
	Faults []string
	// Consumer is the durable one that reads it; empty if there is none to be.
	Consumer        string
	ConsumerMissing bool
	// Waiting counts messages that the consumer has not acknowledged; Oldest is the time of the first of them.
	Waiting uint64
	Oldest  time.Time
	// Usage is true for the stream that money comes from.
	Usage bool
}

const lagWarning, lagFailure = 30 * time.Second, 5 * time.Minute

func judgeNATS(n *NATS, now time.Time) []Finding {
	add := collect("nats")
	add.judge(false, OK, "reachable", "", "server "+n.Version, "", "")
	add.skew("", n.Skew, n.Doubt, "Ages of messages are reckoned by this clock.")
	for i := range n.Streams {
		s := &n.Streams[i]
		add.judge(s.Missing, Failure, "exists", s.Name, map[bool]string{true: "does not exist", false: "exists"}[s.Missing],
			"Usage cannot be settled, or proxies cannot start.", "Restart a control plane: it declares streams and buckets at its start.")
		if s.Missing {
			continue
		}
		add.judge(len(s.Faults) > 0, Failure, "settings", s.Name, orFine(s.Faults),
			"Messages can be lost or refused that should be kept.", "Restart a control plane: it declares the stream anew. If somebody changes it by hand, find out who.")
		add.judge(s.Replicas < s.Wanted, Warning, "replicas", s.Name, fmt.Sprintf("%d of %d replicas", s.Replicas, s.Wanted),
			"It survives fewer failures than was planned.", "Add NATS servers, or restart a control plane to declare it anew.")
		add.judge(s.Offline > 0, Warning, "followers", s.Name, fmt.Sprintf("%d replicas do not follow", s.Offline),
			"Another failure may stop it.", "Look at the NATS servers.")
		if s.Consumer != "" {
			add.judge(s.ConsumerMissing, Failure, "consumer", s.Name, map[bool]string{true: s.Consumer + " does not exist", false: s.Consumer + " exists"}[s.ConsumerMissing],
				"Nobody takes its messages.", "Restart a control plane: it declares the consumer.")
		}
		if s.Usage {
			add.add(durable(s, n))
			add.add(lag(s, now))
		}
	}
	return add.findings
}

func orFine(faults []string) string {
	if len(faults) == 0 {
		return "as declared"
	}
	return strings.Join(faults, "; ")
}

// durable tells whether an acknowledged message survives the loss of power.
func durable(s *Stream, n *NATS) Finding {
	f := Finding{Area: "nats", Check: "sync", Subject: s.Name, Status: OK}
	switch always := n.SyncAlways; {
	case always != nil && *always:
		f.Detail = "every message is on disk before it is acknowledged"
		return f
	case s.Replicas >= 3:
		f.Detail = fmt.Sprintf("%d servers keep each message", s.Replicas)
		return f
	case always != nil:
		f.Detail = "one server keeps each message, and writes it to disk later"
	default:
		f.Detail = "one server keeps each message; whether it is on disk first cannot be seen from here"
		if n.SyncFault != "" {
			f.Detail += " (" + n.SyncFault + ")"
		}
	}
	f.Status = Warning
	f.Meaning = "A power cut can lose usage of the last two minutes that proxies have sent. " +
		"They keep it until it is settled and send it again, so it is lost only if their disks are too."
	f.Advice = "Set `sync_interval: always` in NATS's jetstream block, or keep streams on three servers (nats.replicas). With nats.monitor_url the setting can be seen."
	return f
}

// lag tells how far settlement is behind.
func lag(s *Stream, now time.Time) Finding {
	f := Finding{Area: "nats", Check: "usage_lag", Subject: s.Name, Status: OK, Detail: "all usage that has come is settled"}
	if s.Waiting == 0 {
		return f
	}
	age := max(now.Sub(s.Oldest), 0)
	f.Detail = fmt.Sprintf("%d batches wait, the oldest for %v", s.Waiting, age.Round(time.Millisecond))
	if age < lagWarning {
		return f
	}
	f.Status = Warning
	if age >= lagFailure {
		f.Status = Failure
	}
	f.Meaning = "Balances and statements lag behind, and spools of proxies fill up: a full one serves nothing."
	f.Advice = "Look for \"settle usage\" in the control plane's log; add control planes if they are all busy."
	return f
}
