package holder

// AdmissionGate has the checks of the admission of one request: the conditions
// that are checked before it waits for its units are checked again after the
// wait, because they may have changed meanwhile. On any doubt the request is not
// admitted.
type AdmissionGate struct{ GateChecks }

// GateChecks are the conditions that an AdmissionGate checks.
type GateChecks interface {
	// SessionValid reports whether the session's deadline lies ahead.
	SessionValid() bool
	// KeyCurrent reports whether the key record may still be used.
	KeyCurrent() bool
	// ReserveSpool reserves spool capacity for the request's usage event: a request that could not be billed is not served.
	ReserveSpool() error
}

// Outcome is the result of an AdmissionGate.
type Outcome uint8

// The outcomes.
const (
	// Admitted: the request may run.
	Admitted Outcome = iota
	// NoSession: there is no valid session.
	NoSession
	// SpoolFull: there is no spool capacity for its usage event.
	SpoolFull
	// StaleKey: the key record is out of date and must be read again.
	StaleKey
)

// Before is checked first; the caller may then wait for the units.
func (g AdmissionGate) Before() (Outcome, error) {
	if !g.SessionValid() {
		return NoSession, nil
	}
	if err := g.ReserveSpool(); err != nil {
		return SpoolFull, err
	}
	return Admitted, nil
}

// After is checked when the units are granted. Only then may the request be
// sent to a provider.
func (g AdmissionGate) After() Outcome {
	switch {
	case !g.SessionValid():
		return NoSession
	case !g.KeyCurrent():
		return StaleKey
	default:
		return Admitted
	}
}
