package limit

// maxKnown bounds the limits of which a proxy remembers the window.
const maxKnown = 1 << 16

// movedMS is how long a proxy believes the control plane rather than its own clock, after it was told of another window.
const movedMS = 60_000

// MaxMoves bounds how often a request with that many limits moves to other windows before it fails. The proxy may be wrong about the
// window of each limit, and that window may end while it asks for the windows of the others.
func MaxMoves(limits int) int { return 2 * limits }

// Windows has the current windows of limits, as a proxy knows them. The zero value is ready for use. It is not safe for concurrent use.
type Windows struct{ known map[int64]Span }

// Current returns the window of a limit in which a request counts that is admitted now, by the clock of the proxy.
func (w *Windows) Current(l *Limit, nowMS int64) (Span, error) {
	known, found := w.known[l.ID]
	if l.Window.Period == FirstUse {
		if known.Number < l.Newest.Number || known.EndMS == 0 && known.Number == l.Newest.Number {
			known = l.Newest
		}
		if known.Number > 0 && (known.EndMS == 0 || nowMS < known.EndMS) {
			return known, nil
		}
		next := Span{Number: known.Number + 1}
		w.remember(l.ID, next)
		return next, nil
	}

	if found && known.Contains(nowMS) {
		return known, nil
	}

	span, err := l.Window.At(nowMS)
	if err == nil {
		w.remember(l.ID, span)
	}

	return span, err
}

func (w *Windows) remember(limit int64, span Span) {
	if w.known == nil || len(w.known) >= maxKnown {
		w.known = map[int64]Span{}
	}
	w.known[limit] = span
}

// Learn records the end of a window that Current has returned without it, from the state of a lease. It has no effect for other
// pools.
func (w *Windows) Learn(pool, endMS int64) {
	limit, number, ok := OfPool(pool)
	if !ok || endMS == 0 {
		return
	}
	if known, found := w.known[limit]; found && known.Number == number && known.EndMS == 0 {
		w.remember(limit, Span{Number: number, EndMS: endMS})
	}
}

// Move records that requests have to count in the window of another pool than the clock of the proxy says.
func (w *Windows) Move(l *Limit, pool, nowMS int64) {
	limit, number, ok := OfPool(pool)
	switch {
	case !ok || limit != l.ID:
	case l.Window.Period == FirstUse:
		w.remember(limit, Span{Number: number})
	default:
		w.remember(limit, Span{number, nowMS, nowMS + movedMS})
	}
}
