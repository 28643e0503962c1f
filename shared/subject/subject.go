// Package subject defines the names in NATS: subjects, streams, buckets and
// durable consumers. Names are added, never changed: both planes and the stored
// streams depend on them.
package subject

import (
	"strconv"
	"strings"
)

// Requests of proxies to the control plane. Its replicas answer them in the
// queue group Queue.
const (
	Queue = "controlplane"

	Register     = "mgw.session.register"
	Heartbeat    = "mgw.session.heartbeat"
	Close        = "mgw.session.close"
	LeaseRequest = "mgw.lease.request"
	Return       = "mgw.lease.return"
	LoadKey      = "mgw.key.load"
	Balance      = "mgw.account.balance"

	VideoCreate = "mgw.video.create"
	VideoUpdate = "mgw.video.update"
	VideoGet    = "mgw.video.get"
)

// Reserved asks every proxy for its reservations of an account. The proxies
// answer to the reply inbox.
const Reserved = "mgw.reserved"

// Describe asks every proxy to describe itself for a diagnosis. The proxies
// answer to the reply inbox.
const Describe = "mgw.describe"

// KeyChange pushes each change of a key or an account to every proxy. The
// proxies acknowledge to the reply inbox.
const KeyChange = "mgw.key.change"

// The usage stream: one message per batch of usage events. NATS stores it in
// files, so that settlement can be repeated after a loss in Postgres.
const (
	UsageStream   = "MGW_USAGE"
	UsageAll      = "mgw.usage.*"
	UsageConsumer = "settler"
)

// The work queue of video jobs whose state must be polled.
const (
	VideoPollStream   = "MGW_VIDEO_POLL"
	VideoPollAll      = "mgw.videopoll.*"
	VideoPollConsumer = "poller"
)

// The stream of video job states, from which the control plane restores jobs
// after Postgres has lost commits. Only the control plane uses it.
const (
	VideoJobStream = "MGW_VIDEO_JOBS"
	VideoJobAll    = "mgw.videojob.*"
)

// CatalogBucket is the KV bucket of the catalog. Its keys are CatalogHead and
// those made by CatalogKey.
const (
	CatalogBucket = "mgw_catalog"
	CatalogHead   = "head"
)

// RecoveryBucket is the KV bucket with the state that must survive a loss of
// commits in Postgres. Its keys are RecoveryMembership, and RecoveryRevoked
// followed by the hash of a revoked key in hexadecimal. Only the control plane
// uses it.
const (
	RecoveryBucket     = "mgw_recovery"
	RecoveryMembership = "membership"
	RecoveryRevoked    = "revoked."
)

// The kinds of catalog entries.
const (
	KindModel    = "model"
	KindProvider = "provider"
	KindGrant    = "grant"
	KindSettings = "settings"
)

// Usage returns the subject that a session publishes its usage batches to.
func Usage(session int64) string { return "mgw.usage." + strconv.FormatInt(session, 10) }

// Recall returns the subject on which a session is asked to return idle units.
func Recall(session int64) string { return "mgw.session." + strconv.FormatInt(session, 10) + ".recall" }

// Settled returns the subject on which a session learns which of its events are
// settled.
func Settled(session int64) string {
	return "mgw.session." + strconv.FormatInt(session, 10) + ".settled"
}

// VideoPoll returns the subject of one video job in the work queue.
func VideoPoll(job string) string { return "mgw.videopoll." + job }

// VideoJob returns the subject of one video job's states.
func VideoJob(job string) string { return "mgw.videojob." + job }

// CatalogKey returns the key of an entry in the catalog bucket. Names may contain
// any bytes; those that a key must not contain are encoded as =XX.
func CatalogKey(kind, name string) string {
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

// ParseCatalogKey is the inverse of CatalogKey.
func ParseCatalogKey(key string) (kind, name string, ok bool) {
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
