package session

import (
	"errors"
	"fmt"
	"math"
	"time"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/wire"
)

// Never is the wake time of a Client or Closer that need not be called again.
const Never = time.Duration(math.MaxInt64)

// Timing has the intervals of a Client and a Closer.
type Timing struct {
	// HeartbeatInterval is the longest time between heartbeats, MinHeartbeatInterval the shortest. Within these bounds, a
	// proxy sends HeartbeatsPerWindow heartbeats in the window of its session, so that some may be lost.
	HeartbeatInterval, MinHeartbeatInterval time.Duration
	HeartbeatsPerWindow                     int
	// RetryInterval is the longest time until a failed registration or heartbeat is repeated.
	RetryInterval time.Duration
	// CloseInterval is the time between two attempts to close ended sessions, LeaveInterval that time while the proxy stops.
	CloseInterval, LeaveInterval time.Duration
	// Jitter returns a random duration below its argument.
	Jitter func(below time.Duration) time.Duration
}

// DefaultTiming returns the intervals that the data plane uses.
func DefaultTiming(jitter func(below time.Duration) time.Duration) Timing {
	return Timing{
		HeartbeatInterval:    5 * time.Second,
		MinHeartbeatInterval: 20 * time.Millisecond,
		HeartbeatsPerWindow:  6,
		RetryInterval:        time.Second,
		CloseInterval:        2 * time.Second,
		LeaveInterval:        100 * time.Millisecond,
		Jitter:               jitter,
	}
}

// EndReason is why a session has ended.
type EndReason string

// The reasons.
const (
	// EndFenced: the control plane no longer extends the session.
	EndFenced EndReason = "fenced"
	// EndEpoch: Postgres has lost commits since the session was registered.
	EndEpoch EndReason = "cluster epoch changed"
	// EndLeave: the proxy stops.
	EndLeave EndReason = "the proxy stops"
	// EndRecalled: a control plane asks for the units of a session that the proxy has resumed.
	EndRecalled EndReason = "a control plane asks for its units"
	// EndReplaced: a new session takes the place of one that the proxy has resumed.
	EndReplaced EndReason = "a new session has begun"
)

// Proxy is the part of a proxy that depends on its sessions. A Client calls the
// methods from its own methods, so they must not call the Client.
type Proxy interface {
	// ResetKeys drops all key records. Records that were read at a revision below floor, or in another cluster epoch, must not
	// be used any more.
	ResetKeys(floor, epoch int64)
	// ApplyChange applies a key change.
	ApplyChange(c wire.KeyChange)
	// StreamLost is called when the usage stream was created again: unsettled usage events must be published again.
	StreamLost()
	// HoldUsage is called with every heartbeat, and says whether unsettled usage events are seldom published again:
	// settlement is behind, or no control plane has responded.
	HoldUsage(held bool)
	// CommitsLost is called when Postgres has lost commits, before the next session starts: all leases must be reported
	// again, and unsettled usage events published again.
	CommitsLost(epoch int64)
	// SessionResumed is called when the proxy continues in a session of an earlier process.
	SessionResumed(id wire.SessionID)
	// SessionStarted is called before the session is current. Its proxy may admit for the window after a beat in the
	// stream of changes.
	SessionStarted(id wire.SessionID, window time.Duration)
	// SessionEnded is called when the current session has ended.
	SessionEnded(id wire.SessionID, reason EndReason)
}

// Client keeps a proxy registered: it decides when to register and to send
// heartbeats, and applies key changes. It has no clock and sends nothing: the
// caller passes the time, calls Next after each event and at the time
// Output.Wake, sends the messages that Next returns, and reports their outcome.
//
// It does not say whether requests may be admitted in the session: Freshness does. A
// Client is not safe for concurrent use.
type Client struct {
	bootID string
	timing Timing
	proxy  Proxy
	phase  phase
	// at is when the next registration or heartbeat is sent, interval the time between heartbeats.
	at, interval time.Duration
	// heartbeatNow means that a heartbeat is sent as soon as none is outstanding.
	heartbeatNow bool
	heartbeat    *wire.HeartbeatRequest
	// session is the session that is current or being opened.
	session wire.SessionID
	// resumed is a session of an earlier process in which requests may be admitted until another one begins; isResumed
	// means that they are.
	resumed    wire.SessionID
	isResumed  bool
	registered *wire.RegisterResponse
	openSent   bool
	changes    ChangeLog
	// acks sends the acknowledgements, by revision, that wait until every earlier change is applied.
	acks        map[int64]func(wire.Ack)
	incarnation string
	epoch       int64
}

type phase uint8

const (
	unregistered phase = iota
	registering
	opening
	active
	left
)

// Output lists what the caller of Next must do.
type Output struct {
	// Register is a registration to send, or nil. The caller fills in the fields that are empty, and reports the outcome by
	// HandleRegistered or RegisterFailed.
	Register *wire.RegisterRequest
	// Open is a new session to record on disk and to subscribe to, or zero. The outcome is reported by HandleOpened.
	Open wire.SessionID
	// Heartbeat is a heartbeat to send, or nil. The caller fills in the fields that are empty, and reports the outcome by
	// HandleHeartbeat or HeartbeatFailed.
	Heartbeat *wire.HeartbeatRequest
	// Wake is the time, on the monotonic clock, at which Next must be called again if nothing happens before.
	Wake time.Duration
}

// NewClient returns a Client that registers at once.
func NewClient(now Instant, bootID string, timing Timing, proxy Proxy) *Client {
	return &Client{
		bootID:   bootID,
		timing:   timing,
		proxy:    proxy,
		at:       now.Mono,
		interval: timing.HeartbeatInterval,
		acks:     map[int64]func(wire.Ack){},
	}
}

// MayResume keeps a session of an earlier process open, because Resume may be called
// for it before another session begins.
func (c *Client) MayResume(id wire.SessionID) { c.resumed = id }

// Resume continues in the session of MayResume, because no control plane responds. The
// proxy knows the changes that its earlier process knew, and must be fresh to admit.
// It sends no message of this session to a control plane: registrations are
// repeated, and the session of the first one that succeeds takes its place.
func (c *Client) Resume(epoch int64, known checkpoint.KnownChanges) {
	if c.resumed == 0 || c.isResumed || c.phase == active || c.phase == left {
		return
	}
	c.isResumed, c.epoch = true, epoch
	c.changes.Begin(c.resumed, known.Applied)
	c.proxy.ResetKeys(known.Floor, epoch)
	for _, change := range known.Changes {
		c.proxy.ApplyChange(change)
	}
	c.proxy.SessionResumed(c.resumed)
}

// EndResumed ends a resumed session and registers at once, because a control plane
// asks for its units: the proxy cannot say how many of them it has used.
func (c *Client) EndResumed(now Instant) {
	if !c.isResumed {
		return
	}
	c.endResumed(EndRecalled)
	if c.phase == unregistered {
		c.at = now.Mono
	}
}

// endResumed ends a session of an earlier process.
func (c *Client) endResumed(reason EndReason) {
	id, was := c.resumed, c.isResumed
	c.resumed, c.isResumed = 0, false
	if was {
		c.changes.End()
		c.proxy.SessionEnded(id, reason)
	}
}

// Session returns the current session; zero if there is none.
func (c *Client) Session() wire.SessionID {
	if c.isResumed {
		return c.resumed
	}
	if c.phase != active {
		return 0
	}
	return c.session
}

// Opened returns the sessions that are current, being opened, or may be resumed; zero
// for none. All other sessions have ended.
func (c *Client) Opened() (session, resumed wire.SessionID) { return c.session, c.resumed }

// Applied returns the revision up to which every key change is applied.
func (c *Client) Applied() int64 { return c.changes.Applied() }

// Next returns what the caller must do at a time.
func (c *Client) Next(now Instant) Output {
	out := Output{Wake: Never}
	switch {
	case c.phase == unregistered && now.Mono >= c.at:
		c.phase = registering
		out.Register = &wire.RegisterRequest{V: wire.Version, BootID: c.bootID}
	case c.phase == unregistered:
		out.Wake = c.at
	case c.phase == opening && !c.openSent:
		c.openSent = true
		out.Open = c.session
	case c.phase != active || c.heartbeat != nil:
	case c.heartbeatNow || now.Mono >= c.at:
		c.heartbeatNow = false
		c.heartbeat = &wire.HeartbeatRequest{
			V:               wire.Version,
			Session:         c.session,
			BootID:          c.bootID,
			AppliedRevision: c.changes.Applied(),
		}
		out.Heartbeat = c.heartbeat
	default:
		out.Wake = c.at
	}

	return out
}

// HandleRegistered applies the response to a registration. It returns an error if the
// control plane did not register the proxy.
func (c *Client) HandleRegistered(now Instant, r *wire.RegisterResponse) error {
	if c.phase != registering {
		return nil
	}
	switch r.Status {
	case wire.Done:
	case wire.ClockDiffers:
		c.RegisterFailed(now)
		return errors.New(
			"session: registration: the clock of this machine differs from the control plane's by minutes: use a time service",
		)
	default:
		c.RegisterFailed(now)
		return fmt.Errorf("session: registration: %s", r.Status)
	}
	c.phase, c.session, c.registered, c.openSent = opening, r.Session, r, false
	return nil
}

// RegisterFailed records that a registration has no response.
func (c *Client) RegisterFailed(now Instant) {
	if c.phase == registering || c.phase == opening {
		c.phase, c.session, c.at = unregistered, 0, now.Mono+c.timing.Jitter(c.timing.RetryInterval)
	}
}

// HandleOpened starts the session of Output.Open. If opening it has failed, the
// proxy registers again.
func (c *Client) HandleOpened(now Instant, err error) {
	if c.phase != opening {
		return
	}

	if err != nil {
		c.RegisterFailed(now)
		return
	}

	r := c.registered
	c.endResumed(EndReplaced)
	c.phase, c.registered = active, nil
	c.changes.Begin(c.session, r.Revision)
	clear(c.acks)
	c.proxy.ResetKeys(r.Revision, r.ClusterEpoch)
	c.checkStream(r.StreamIncarnation)
	c.checkEpoch(r.ClusterEpoch)
	window := time.Duration(r.WindowMS) * time.Millisecond
	c.interval = max(min(c.timing.HeartbeatInterval, window/time.Duration(c.timing.HeartbeatsPerWindow)), c.timing.MinHeartbeatInterval)
	c.proxy.SessionStarted(c.session, window)
	c.heartbeat, c.at = nil, now.Mono
}

// HandleHeartbeat applies the response to a heartbeat. synced means that the proxy has
// applied every change that Postgres had when it was asked. HandleHeartbeat returns an
// error if the control plane could not extend the session now.
func (c *Client) HandleHeartbeat(
	now Instant, request *wire.HeartbeatRequest, r *wire.HeartbeatResponse,
) (synced bool, err error) {
	if c.phase != active || request != c.heartbeat {
		return false, nil
	}

	switch {
	case r.Status == wire.Fenced:
		c.end(now, EndFenced)
		return false, nil
	case r.Status != wire.Done:
		c.HeartbeatFailed(now, request)
		return false, fmt.Errorf("session: heartbeat: %s", r.Status)
	case r.ClusterEpoch != 0 && r.ClusterEpoch != c.epoch:
		c.end(now, EndEpoch)
		return false, nil
	}

	c.heartbeat = nil
	c.applyFetched(r.Changes)
	c.checkStream(r.StreamIncarnation)
	c.proxy.HoldUsage(r.UsageBacklog)

	c.at = now.Mono
	if len(r.Changes) == 0 { // otherwise the next heartbeat is sent at once: it reports the applied changes and gets the rest
		c.at += c.interval - c.timing.Jitter(c.interval/10)
	}

	return !r.More, nil
}

// HeartbeatFailed records that a heartbeat has no response.
func (c *Client) HeartbeatFailed(now Instant, request *wire.HeartbeatRequest) {
	if request == c.heartbeat {
		c.proxy.HoldUsage(true) // without a control plane nothing is settled
		c.heartbeat, c.at = nil, now.Mono+c.timing.Jitter(min(c.timing.RetryInterval, c.interval))
	}
}

// applyFetched applies changes that follow one another without a gap, and sends
// the acknowledgements that waited for them.
func (c *Client) applyFetched(changes []wire.KeyChange) {
	ack, due := c.changes.ApplyFetched(c.session, changes, c.proxy.ApplyChange)
	for _, revision := range due {
		c.acks[revision](ack)
		delete(c.acks, revision)
	}
}

// HandlePushed applies a change that was pushed. The change is acknowledged when
// every earlier one is applied, too. HandlePushed reports whether an earlier one
// is missing; a heartbeat is sent then, whose response contains it.
func (c *Client) HandlePushed(change wire.KeyChange, ack func(wire.Ack)) (gap bool) {
	if c.changes.Session() == 0 || c.isResumed {
		return false // the next registration includes the change, and the stream brings it to a resumed session
	}
	if due, ok := c.changes.ApplyPushed(change, c.proxy.ApplyChange); ok {
		ack(due)
		return false
	}
	c.acks[change.Revision] = ack
	c.HeartbeatNow()
	return true
}

// HeartbeatNow makes Next return a heartbeat as soon as possible, because the
// control plane may wait for the state that it reports.
func (c *Client) HeartbeatNow() { c.heartbeatNow = true }

// HandleEnded ends a session, because the stream of changes says that it is to end.
func (c *Client) HandleEnded(now Instant, id wire.SessionID) {
	if c.phase == active && c.session == id {
		c.end(now, EndFenced)
	}
	if c.resumed == id {
		c.endResumed(EndFenced)
	}
}

// HandleEpoch ends the session, because the stream of changes has a later cluster
// epoch.
func (c *Client) HandleEpoch(now Instant, epoch int64) {
	if c.phase == active && epoch > c.epoch {
		c.end(now, EndEpoch)
	}
	if c.isResumed && epoch > c.epoch {
		c.endResumed(EndEpoch)
	}
}

// Leave ends the session, because the proxy stops; no other one is registered.
func (c *Client) Leave(now Instant) {
	if c.phase == active {
		c.end(now, EndLeave)
	}
	c.endResumed(EndLeave)
	c.phase, c.session = left, 0
}

// end ends the session. The next registration is sent at once; it includes the
// changes that are still pushed to this session.
func (c *Client) end(now Instant, reason EndReason) {
	id := c.session
	c.phase, c.session, c.heartbeat, c.at = unregistered, 0, nil, now.Mono
	c.changes.End()
	c.proxy.SessionEnded(id, reason)
}

func (c *Client) checkStream(incarnation string) {
	if incarnation == "" {
		return
	}
	lost := c.incarnation != "" && incarnation != c.incarnation
	c.incarnation = incarnation
	if lost {
		c.proxy.StreamLost()
	}
}

func (c *Client) checkEpoch(epoch int64) {
	lost := c.epoch != 0 && epoch != c.epoch
	c.epoch = epoch
	if lost {
		c.proxy.CommitsLost(epoch)
	}
}
