// Package subject defines the names in NATS: subjects, streams, buckets and
// durable consumers. Names are added, never changed: both planes and the stored
// streams depend on them.
package subject

import (
	"strconv"
	"strings"
)

// Requests of proxies to the control plane. A proxy adds its name to the subject
// with From, so that NATS can hold it to its name. The control plane's replicas
// subscribe to FromAll in the queue group Queue.
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
// reply on Answer.
const Reserved = "mgw.reserved"

// Describe asks every proxy to describe itself for a diagnosis. The proxies
// reply on Answer.
const Describe = "mgw.describe"

// Explain asks every proxy how it would answer a request. The proxies reply on
// Answer.
const Explain = "mgw.explain"

// Check asks one proxy to call a provider. It replies on Answer.
const Check = "mgw.check"

// Pulse is the report of a proxy about what it does, sent with From to every
// replica of the control plane. Nobody replies.
const Pulse = "mgw.pulse"

// Tail asks every proxy for a line per finished request. The proxies send them on
// Answer.
const Tail = "mgw.tail.open"

// KeyChange pushes each change of a key or an account to every proxy. The
// proxies acknowledge on Answer.
const KeyChange = "mgw.key.change"

// The usage stream: one message per batch of usage events. NATS stores it in
// files, so that settlement can be repeated after a loss in Postgres.
const (
	UsageStream   = "MGW_USAGE"
	UsagePrefix   = "mgw.usage."
	UsageAll      = UsagePrefix + "*.*"
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

// The stream of changes of keys and accounts, in one order with the beats of
// proxies. A change has the subject of Change; NATS repeats what it has stored to
// every proxy, under ChangedPrefix instead of ChangePrefix. Beats have
// FreshBeat with From.
const (
	ChangeStream = "MGW_CHANGES"
	FreshBeat    = "mgw.fresh.beat"
	// FreshProbe, with From, is a message of a control plane that proves that a server leads the stream.
	FreshProbe    = "mgw.fresh.probe"
	ChangePrefix  = "mgw.fresh.change."
	ChangeAll     = ChangePrefix + ">"
	ChangedPrefix = "mgw.changed."
	ChangedAll    = ChangedPrefix + ">"
	// IncarnationKey is the key of the stream's metadata that has its incarnation: a random id, set when it is created.
	IncarnationKey = "incarnation"
	// WindowKey is the key of the longest window of freshness that sessions may have.
	WindowKey = "window"
	// ChangeDirect are the revocations that operators append without a control plane.
	ChangeDirect = ChangePrefix + "direct."
	// ChangeSession is the kind, for Change, of the end of a session.
	ChangeSession = "session"
	// ChangeEpoch is that of a cluster epoch.
	ChangeEpoch = "epoch"
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

// KeyBucket is the KV bucket of key records, which proxies read while no control
// plane responds. Its keys are KeyMark, and the lookup hashes of keys in
// hexadecimal.
const (
	KeyBucket = "mgw_keys"
	KeyMark   = "revision"
	// KeyStream is the stream of the bucket, KeyPrefix begins the subjects of its entries.
	KeyStream = "KV_" + KeyBucket
	KeyPrefix = "$KV." + KeyBucket + "."
)

// The kinds of catalog entries.
const (
	KindModel    = "model"
	KindProvider = "provider"
	KindGrant    = "grant"
	KindSettings = "settings"
)

// Usage returns the subject on which a proxy publishes the usage batches of one of
// its sessions.
func Usage(proxy string, session int64) string {
	return UsagePrefix + Token(proxy) + "." + strconv.FormatInt(session, 10)
}

// UsageOf is the inverse of Usage. It returns false for any other subject.
func UsageOf(published string) (proxy string, session int64, ok bool) {
	rest, ok := strings.CutPrefix(published, UsagePrefix)
	if !ok {
		return "", 0, false
	}
	name, number, _ := strings.Cut(rest, ".")
	proxy, named := parseToken(name)
	session, err := strconv.ParseInt(number, 10, 64)
	return proxy, session, named && err == nil
}

// From returns the subject of a proxy's requests; base is one of the requests of
// proxies.
func From(base, proxy string) string { return base + "." + Token(proxy) }

// FromAll returns the subject of the requests of all proxies.
func FromAll(base string) string { return base + ".*" }

// AnswerPrefix begins the subjects of replies to pushed messages.
const AnswerPrefix = "mgw.answer."

// NewAnswer returns the reply subject of one pushed message with a random token.
// Its replies come on FromAll of it.
func NewAnswer(random string) string { return AnswerPrefix + random }

// Answer returns the subject on which a proxy replies to a pushed message. It
// returns false unless the message's reply subject is one of NewAnswer.
func Answer(reply, proxy string) (string, bool) {
	return From(reply, proxy), strings.HasPrefix(reply, AnswerPrefix)
}

// Sender returns the proxy that published on a subject of From, or an empty name
// if there is none.
func Sender(published string) string {
	name, _ := parseToken(published[strings.LastIndexByte(published, '.')+1:])
	return name
}

// Inboxes are the prefixes of the subjects on which the planes receive replies.
const (
	ControlInbox = "_INBOX_cp"
	ProxyInbox   = "_INBOX_dp"
	// OperatorInbox is that of operators who revoke keys without a control plane.
	OperatorInbox = "_INBOX_op"
)

// Inbox returns the prefix of a proxy's reply subjects. NATS lets a proxy with a
// user of its own read no other.
func Inbox(proxy string) string { return From(ProxyInbox, proxy) }

// InInbox reports whether a reply subject is in the inbox of a proxy.
func InInbox(reply, proxy string) bool { return strings.HasPrefix(reply, Inbox(proxy)+".") }

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

// Change returns the subject of a change; name is the hash of the key in
// hexadecimal, or the account. The stream keeps one change of each kind and name.
func Change(kind, name string) string { return ChangePrefix + Token(kind) + "." + Token(name) }

// CatalogKey returns the key of an entry in the catalog bucket. Names may contain
// any bytes; those that a key must not contain are encoded as =XX.
func CatalogKey(kind, name string) string { return kind + "." + escape(name) }

// ParseCatalogKey is the inverse of CatalogKey.
func ParseCatalogKey(key string) (kind, name string, ok bool) {
	kind, escaped, ok := strings.Cut(key, ".")
	if !ok {
		return "", "", false
	}
	name, ok = unescape(escaped)
	return kind, name, ok
}

// Token returns a name as one token of a subject, with other bytes than letters,
// digits, "-", "_" and "/" as =XX. An empty name becomes "=".
func Token(name string) string {
	if name == "" {
		return "="
	}
	return escape(name)
}

// parseToken is the inverse of Token.
func parseToken(token string) (name string, ok bool) {
	if token == "=" {
		return "", true
	}
	name, ok = unescape(token)
	return name, ok && name != ""
}

// escape replaces the bytes of a name that a subject's token must not contain by
// =XX.
func escape(name string) string {
	var b strings.Builder
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

// unescape is the inverse of escape.
func unescape(escaped string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '=' {
			b.WriteByte(escaped[i])
			continue
		}
		if i+2 >= len(escaped) {
			return "", false
		}
		n, err := strconv.ParseUint(escaped[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}

	return b.String(), true
}
