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
func (c spoolCapacity) Reserve() (admission.Place, error) {
	place, err := c.Spool.Reserve()
	if err != nil {
		return nil, err
	}
	return place, nil
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

// Bill implements video.Biller.
func (b *videoBiller) Bill(e event.Usage) error {
	s := b.sessions.Current()
	if s == nil || !s.Valid() {
		return errNoSession
	}
	place, err := b.spool.Reserve()
	if err != nil {
		return err
	}
	defer place.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Session = int64(s.ID)
	if err := place.Start(&e); err != nil {
		return err
	}
	place.Finish(&e)
	return nil
}
