// Package subject owns the names on the bus: subjects, streams, buckets and
// durable consumers. Renaming one needs both planes deployed in a stated
// order, so names are added, never changed.
package subject

import (
	"strconv"
	"strings"
)

// Requests of the data plane that any control-plane replica answers, in the
// queue group Queue.
const (
	Queue = "controlplane"

	Register = "mgw.session.register"
	Renew    = "mgw.session.renew"
	Close    = "mgw.session.close"
	Op       = "mgw.lease.op"
	Return   = "mgw.lease.return"
	LoadKey  = "mgw.key.load"
	Balance  = "mgw.account.balance"

	VideoCreate = "mgw.video.create"
	VideoUpdate = "mgw.video.update"
	VideoGet    = "mgw.video.get"
)

// Held is asked of every proxy; the reply inbox takes the answers.
const Held = "mgw.held"

// Describe is asked of every proxy by a diagnosis; the reply inbox takes the
// answers.
const Describe = "mgw.describe"

// Change is pushed to every proxy for each change of keys and accounts; the
// reply inbox takes the acknowledgements.
const Change = "mgw.change"

// The usage stream: file storage, one message per batch, kept for replay.
const (
	UsageStream   = "MGW_USAGE"
	UsageAll      = "mgw.usage.*"
	UsageConsumer = "settler"
)

// The work queue of video jobs to be polled.
const (
	VideoStream   = "MGW_VIDEO"
	VideoAll      = "mgw.videopoll.*"
	VideoConsumer = "poller"
)

// The states of video jobs, kept for some time so that they outlive a loss of
// commits in Postgres. Only control planes use it.
const (
	VideoJobStream = "MGW_VIDEO_JOBS"
	VideoJobAll    = "mgw.videojob.*"
)

// CatalogBucket is the key-value bucket of the catalog. Its keys are
// CatalogHead, and kind and name joined by Entry.
const (
	CatalogBucket = "mgw_catalog"
	CatalogHead   = "head"
)

// AnchorBucket is the key-value bucket of what must outlive a loss of commits
// in Postgres. Its keys are AnchorRoll, and AnchorRevoked with the hash of a
// revoked key in hex. Only control planes use it.
const (
	AnchorBucket  = "mgw_anchor"
	AnchorRoll    = "roll"
	AnchorRevoked = "revoked."
)

// The kinds of catalog entries.
const (
	KindModel    = "model"
	KindProvider = "provider"
	KindGrant    = "grant"
	KindSettings = "settings"
)

// Usage is where a proxy publishes its usage batches.
func Usage(session int64) string { return "mgw.usage." + strconv.FormatInt(session, 10) }

// Recall is where a session hears that a pool wants its idle units back.
func Recall(session int64) string { return "mgw.session." + strconv.FormatInt(session, 10) + ".recall" }

// Settled is where a session hears which of its events are in Postgres.
func Settled(session int64) string {
	return "mgw.session." + strconv.FormatInt(session, 10) + ".settled"
}

// VideoPoll is the work-queue subject of one video job.
func VideoPoll(job string) string { return "mgw.videopoll." + job }

// VideoJob is where the states of one video job are kept.
func VideoJob(job string) string { return "mgw.videojob." + job }

// Entry is the catalog key of an entry. Names may hold anything: what a
// subject token cannot hold is written as =XX.
func Entry(kind, name string) string {
	var b strings.Builder
	b.WriteString(kind)
	b.WriteByte('.')
	for i := range len(name) {
		c := name[i]
		if (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '/' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte("0123456789ABCDEF"[c>>4])
		b.WriteByte("0123456789ABCDEF"[c&15])
	}
	return b.String()
}

// ParseEntry takes a catalog key apart again.
func ParseEntry(key string) (kind, name string, ok bool) {
	kind, escaped, ok := strings.Cut(key, ".")
	if !ok {
		return "", "", false
	}
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '=' {
			b.WriteByte(escaped[i])
			continue
		}
		if i+2 >= len(escaped) {
			return "", "", false
		}
		n, err := strconv.ParseUint(escaped[i+1:i+3], 16, 8)
		if err != nil {
			return "", "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return kind, b.String(), true
}
