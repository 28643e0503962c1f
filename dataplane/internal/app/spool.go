package app

import (
	"errors"
	"sync"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/event"
)

// spoolCapacity adapts the spool to admission.
type spoolCapacity struct{ *spool.Spool }

func (c spoolCapacity) Reserve() (admission.SpoolUnit, error) {
	unit, err := c.Spool.Reserve()
	if err != nil {
		return nil, err
	}
	return unit, nil
}

// videoCharger appends the usage events of video jobs to the spool, under the
// session that is valid when a job ends.
type videoCharger struct {
	sessions *session.Keeper
	spool    *spool.Spool
	metrics  *meter.Metrics
	// mu serializes Charge: the spool allows one running request per id, and one
	// job may be reported twice at once.
	mu sync.Mutex
}

func (c *videoCharger) CountUnknownState(provider string) { c.metrics.RecordUnknownState(provider) }

var errNoSession = errors.New("app: no valid session to charge a video job under")

func (c *videoCharger) Charge(e event.Usage, doubt usagereport.Reason) error {
	s := c.sessions.Current()
	if s == nil || !s.Valid() {
		return errNoSession
	}

	unit, err := c.spool.Reserve()
	if err != nil {
		return err
	}
	defer unit.Release()
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Session = int64(s.ID)
	if err := unit.AppendStarted(&e); err != nil {
		return err
	}

	unit.AppendFinished(&e)
	c.metrics.RecordVideoCharge(&e, doubt)
	return nil
}
