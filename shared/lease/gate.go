package lease

// Gate makes the checks of the admission of one request, before and
// after it waits for its units: the session may end, and the key may change,
// during the wait.
type Gate struct{ GateChecks }

// GateChecks are the conditions that a Gate checks.
type GateChecks interface {
	// SessionValid reports whether the session is valid: its proxy is fresh.
	SessionValid() bool
	// KeyCurrent reports whether the key record may still be used.
	KeyCurrent() bool
	// ReserveSpool reserves spool capacity for the request's usage event: a request that could not be billed is not served.
	ReserveSpool() error
}

// GateOutcome is the result of a Gate.
type GateOutcome uint8

// The outcomes.
const (
	// Admitted: every check passed.
	Admitted GateOutcome = iota
	// NoSession: there is no valid session.
	NoSession
	// SpoolFull: there is no spool capacity for its usage event.
	SpoolFull
	// StaleKey: the key record is out of date and must be read again.
	StaleKey
)

// Before makes the checks before the wait. If it returns Admitted, spool
// capacity is reserved, and the caller may wait for the units.
func (g Gate) Before() (GateOutcome, error) {
	if !g.SessionValid() {
		return NoSession, nil
	}
	if err := g.ReserveSpool(); err != nil {
		return SpoolFull, err
	}
	return Admitted, nil
}

// After makes the checks after the units are granted. Only if it returns
// Admitted may the request be sent to a provider.
func (g Gate) After() GateOutcome {
	switch {
	case !g.SessionValid():
		return NoSession
	case !g.KeyCurrent():
		return StaleKey
	default:
		return Admitted
	}
}
