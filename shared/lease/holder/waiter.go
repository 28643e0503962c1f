package holder

import "modelgateway/shared/wire"

// Waiter is one request in a Holder: it waits, and is then granted, refused or
// aborted. Its owner calls Release once if it was granted, or Cancel to stop
// waiting.
type Waiter struct {
	needs    []wire.Need
	state    waiterState
	decision wire.Decision
	// slotless means that the slot was given back before the end.
	slotless bool
}

type waiterState uint8

const (
	waiting waiterState = iota
	cancelled
	granted
	refused
	aborted
	finished
)

// isWaiting reports whether the request still waits for the decision.
func (w *Waiter) isWaiting() bool { return w.state == waiting }

// Granted reports whether the request may run.
func (w *Waiter) Granted() bool { return w.state == granted }

// Refused reports whether the request was refused; Decision says why.
func (w *Waiter) Refused() bool { return w.state == refused }

// Aborted reports whether the session ended before a decision, or no decision can
// be expected now.
func (w *Waiter) Aborted() bool { return w.state == aborted }

// Decision returns the decision of the control plane, once there is one.
func (w *Waiter) Decision() wire.Decision { return w.decision }
