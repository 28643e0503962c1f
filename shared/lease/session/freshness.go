package session

import (
	"time"

	"modelgateway/shared/lease/checkpoint"
)

// Beat is a message of a proxy in the stream of changes, which it reads back.
type Beat struct {
	Number int64
	// Previous is the sequence number of the proxy's beat before, which must be the last one in the stream when it
	// stores this one. If it is zero, the stream stores the beat in any case.
	Previous uint64
}

// Freshness says until when a proxy has missed no change. The stream of changes
// has the changes and the beats of proxies in one order. A proxy that has
// read its own beat, and has applied every change before it, is fresh for a
// window that begins when the beat was *sent*.
//
// The stream may lose messages that it has acknowledged. So a beat names the
// one before, and the proxy reads everything between the two when it reads the
// second: places that it has read may have other messages since. And a proxy that
// is not fresh does not see that the stream has lost a change meanwhile; it must
// read the changes in Postgres, too, by a request that it sends after it has read
// its beat.
//
// Freshness is not safe for concurrent use. NewFreshness returns one that is not
// fresh.
type Freshness struct {
	window time.Duration
	// last is the sequence number of the last own beat that was read.
	last uint64
	// incarnation is that of the stream in which last counts.
	incarnation string
	number      int64
	// first is the number of the last beat before the last Reset.
	first int64
	sent  map[int64]Instant
	// until is the end of freshness; before resynced, it is what the end would be.
	until    Instant
	resynced bool
	// readAt is when the first beat of this lapse was read.
	readAt Instant
	// resuming means that this process has not read yet what the stream has since the earlier process ended.
	resuming bool
}

// skippedNumbers is how many numbers of beats a later process skips: the
// earlier one may have sent some after its last checkpoint, at other times.
const skippedNumbers = 1 << 20

// ResumeFreshness returns the Freshness of a process that continues that of an
// earlier one. It is not fresh before ReadBack: until then, the proxy does not know
// what the stream has since. It returns false if the earlier process would not be
// fresh any more: the stream may have lost a change meanwhile.
func ResumeFreshness(window time.Duration, state checkpoint.Freshness, now Instant) (*Freshness, bool) {
	left := state.UntilBoot - now.Boot
	if state.Last == 0 || left <= 0 || left > window {
		return nil, false
	}
	f := NewFreshness(window)
	f.last, f.incarnation, f.first, f.number = state.Last, state.Incarnation, state.Number, state.Number+skippedNumbers
	f.until, f.resuming = now.Add(left), true
	return f, true
}

// State returns the state for a later process. It returns false if the proxy is not
// fresh.
func (f *Freshness) State(now Instant) (checkpoint.Freshness, bool) {
	if !f.Fresh(now) || f.last == 0 {
		return checkpoint.Freshness{}, false
	}
	return checkpoint.Freshness{
		Last:        f.last,
		Incarnation: f.incarnation,
		Number:      f.number,
		UntilBoot:   min(f.until.Boot, now.Boot+f.until.Mono-now.Mono),
	}, true
}

// NewFreshness returns the Freshness of a proxy that has read nothing.
func NewFreshness(window time.Duration) *Freshness {
	return &Freshness{window: window, sent: map[int64]Instant{}}
}

// Fresh reports whether the proxy may admit.
func (f *Freshness) Fresh(now Instant) bool { return f.resynced && now.Before(f.until) }

// Until returns the end of freshness; zero if the proxy is not fresh.
func (f *Freshness) Until() Instant {
	if !f.resynced {
		return Instant{}
	}
	return f.until
}

// Reads reports whether the proxy has read a beat that still counts, so that
// changes from Postgres, asked for from now on, make it fresh.
func (f *Freshness) Reads(now Instant) bool { return now.Before(f.until) }

// Beat returns the next beat, which is sent now. After a lapse, it names no
// beat before it, because the stream may have lost that one.
func (f *Freshness) Beat(now Instant) Beat {
	if !now.Before(f.until) {
		f.last = 0
	}
	for n, at := range f.sent {
		if !now.Before(at.Add(f.window)) {
			delete(f.sent, n)
		}
	}
	f.number++
	f.sent[f.number] = now
	return Beat{Number: f.number, Previous: f.last}
}

// ReadBack records that the proxy has read its own beat, and has applied
// every change between the one that it names as the previous one and this one;
// from the start of the stream, if it names none. It returns false if messages are
// lost that the proxy has read: Reset must be called.
func (f *Freshness) ReadBack(now Instant, incarnation string, b Beat, sequence uint64) bool {
	switch {
	case b.Number <= f.first:
		return true // it was sent before the last Reset
	case b.Previous != 0 && f.last == 0:
		return true // it was sent before a lapse
	case b.Previous != 0 && (b.Previous != f.last || sequence <= f.last || incarnation != f.incarnation):
		return false
	}

	f.last, f.incarnation = sequence, incarnation
	if f.resuming {
		f.resuming, f.resynced = false, now.Before(f.until)
	}

	sentAt, ok := f.sent[b.Number]
	if !ok || !now.Before(sentAt.Add(f.window)) {
		return true
	}

	delete(f.sent, b.Number)
	if !now.Before(f.until) { // a lapse, which ends with the changes from Postgres
		f.resynced, f.readAt = false, now
	}

	f.until = sentAt.Add(f.window)
	return true
}

// Resynced records that the proxy has applied all changes that Postgres had when
// it was asked at askedAt.
func (f *Freshness) Resynced(now, askedAt Instant) {
	if now.Before(f.until) && askedAt.Mono >= f.readAt.Mono && askedAt.Boot >= f.readAt.Boot {
		f.resynced = true
	}
}

// Reset ends freshness, because messages are lost, or because a session begins.
// The next beat names none before it: the stream must be read from its start.
func (f *Freshness) Reset() {
	clear(f.sent)
	f.first, f.last, f.incarnation, f.until, f.resynced, f.resuming = f.number, 0, "", Instant{}, false, false
}
