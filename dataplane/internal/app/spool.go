package app

import (
	"errors"
	"sync"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/shared/event"
)

// spoolCapacity adapts the spool to admission.
type spoolCapacity struct{ *spool.Spool }

// Reserve implements admission.Spool.
func (c spoolCapacity) Reserve() (admission.SpoolUnit, error) {
	unit, err := c.Spool.Reserve()
	if err != nil {
		return nil, err
	}
	return unit, nil
}

// videoBiller appends the usage events of video jobs to the spool, under the
// session that is valid when a job ends.
type videoBiller struct {
	sessions *session.Keeper
	spool    *spool.Spool
	// mu serializes Bill: the spool allows one running request per id, and one
	// job may be reported twice at once.
	mu sync.Mutex
}

var errNoSession = errors.New("app: no valid session to bill a video job under")

// Bill implements videojob.Biller.
func (b *videoBiller) Bill(e event.Usage) error {
	s := b.sessions.Current()
	if s == nil || !s.Valid() {
		return errNoSession
	}
	unit, err := b.spool.Reserve()
	if err != nil {
		return err
	}
	defer unit.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Session = int64(s.ID)
	if err := unit.AppendStarted(&e); err != nil {
		return err
	}
	unit.AppendFinished(&e)
	return nil
}
