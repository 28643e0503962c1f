package holder

// Entry is the protocol's side of the admission of one request: what is asked
// before it waits for its hold is asked again after the wait, because anything
// may have become known meanwhile. Any doubt is no.
type AdmissionGate struct{ GateChecks }

// Checks is what an Entry asks.
type GateChecks interface {
	// SessionValid tells whether the session's deadline lies ahead.
	SessionValid() bool
	// KeyCurrent tells whether the key's record may still be used.
	KeyCurrent() bool
	// Reserve takes a place for the request's usage: what could not be billed is not served.
	ReserveSpool() error
}

// Outcome is what an Entry comes to.
type Outcome uint8

// The outcomes.
const (
	// Admitted: the request may run.
	Admitted Outcome = iota
	// NoSession: there is no valid session.
	NoSession
	// NoPlace: there is no place for its usage.
	SpoolFull
	// Overtaken: the key's record has become too old, and is to be read again.
	StaleKey
)

// Begin is asked first; the caller may then wait for the hold.
func (e AdmissionGate) Before() (Outcome, error) {
	if !e.SessionValid() {
		return NoSession, nil
	}
	if err := e.ReserveSpool(); err != nil {
		return SpoolFull, err
	}
	return Admitted, nil
}

// Complete is asked when the hold is there. Only then may the request be sent.
func (e AdmissionGate) After() Outcome {
	switch {
	case !e.SessionValid():
		return NoSession
	case !e.KeyCurrent():
		return StaleKey
	default:
		return Admitted
	}
}
