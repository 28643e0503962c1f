package app

import (
	"errors"
	"sync"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/shared/event"
)

// places is the spool as admission sees it.
type places struct{ *spool.Spool }

// Reserve implements admission.Spool.
func (p places) Reserve() (admission.Place, error) {
	place, err := p.Spool.Reserve()
	if err != nil {
		return nil, err
	}
	return place, nil
}

// biller puts the usage of video jobs into the spool, under the session of
// the day.
type biller struct {
	sessions *session.Keeper
	spool    *spool.Spool
	// mu keeps two reports of one job apart: the spool knows one running request by its id.
	mu sync.Mutex
}

var errNoSession = errors.New("app: no session to bill under")

// Bill implements video.Biller.
func (b *biller) Bill(e event.Usage) error {
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
