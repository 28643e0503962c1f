package videojob

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/shared/event"
)

// creation is one way in which a creation can go.
type creation struct {
	create, update, backup fault
	// answer is the provider's: the job, an error, or none that arrives.
	answer string
	// dies is whether the proxy stops when it has answered its client.
	dies bool
}

// run makes the creation and reports whether the client gets the job.
func (c creation) run(ctx context.Context, f *fixture, proxy *Tracker) (answered *event.Video) {
	f.store.setFaults(map[string][]fault{"create": {c.create}, "update": {c.update}, "backup": {c.backup}})
	v, err := proxy.Create(ctx, newJob(""))
	if err == nil {
		switch c.answer {
		case "job":
			if answered, err = proxy.SaveCreated(ctx, v, []byte(providerObject("queued", ""))); err != nil {
				panic(err)
			}
		case "error":
			proxy.Reject(ctx, v, "")
		default:
			proxy.Reject(ctx, v, "it is not known")
		}
	}
	if c.dies {
		proxy.Stop()
	}
	return answered
}

// A creation that its client was told has failed is never charged, and one that was accepted is charged once. Only if
// the proxy dies before anything could store the provider's id, an accepted job ends without a charge.
func TestCreationHasOneOutcomeWhateverFails(t *testing.T) {
	t.Parallel()
	faults := []fault{works, dropped, replyLost}
	for _, create := range faults {
		for _, update := range faults {
			for _, backup := range faults {
				for _, answer := range []string{"job", "error", "none"} {
					for _, dies := range []bool{false, true} {
						c := creation{create, update, backup, answer, dies}
						t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
							t.Parallel()
							synctest.Test(t, c.check)
						})
					}
				}
			}
		}
	}
}

// check makes the creation, lets everything recover, and checks how the job ended.
func (c creation) check(t *testing.T) {
	f := setup(t)
	f.providers.respond(200, providerObject("completed", ""))
	answered := c.run(t.Context(), f, f.newTracker(t))
	time.Sleep(time.Minute) // what is stored in the background
	f.store.setFaults(nil)
	if v := f.store.job(jobID); answered != nil && v.UpstreamID == "" && c.update == works {
		t.Errorf("the record is %+v; want the provider's id", v)
	}
	v := pollToEnd(t, f)
	charges, completed := len(f.charger.events), v != nil && v.Status == event.VideoCompleted
	mayBeLost := c.dies && c.update == dropped && c.backup == dropped
	switch {
	case charges > 1 || (charges == 1) != completed:
		t.Errorf("the job is %+v, charged %d times", v, charges)
	case answered != nil && !completed && !mayBeLost:
		t.Errorf("the client got the job: it is %+v; want completed", v)
	case answered == nil && completed:
		t.Errorf("the client got an error: the job is %+v; want failed", v)
	case v != nil && v.Error != "" && !c.dies && (c.create != works || c.answer == "error"):
		t.Errorf("the job was never submitted, or refused: operators are told %q", v.Error)
	}
}

// pollToEnd polls the job on another proxy, now and after the longest time without an outcome. It returns nil if there
// is no record.
func pollToEnd(t *testing.T, f *fixture) *event.Video {
	t.Helper()
	other := f.newTracker(t)
	for _, age := range []time.Duration{time.Minute, creationTimeout + time.Second} {
		f.now = createdAt.Add(age)
		v, err := other.Find(t.Context(), jobID, "")
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			v, err = other.Refresh(t.Context(), v)
		}
		if err != nil {
			t.Fatal(err)
		}
		if v.Ended() {
			return v
		}
	}
	t.Fatalf("the job is still open: %+v", f.store.job(jobID))
	return nil
}

// The client gets the job as soon as the provider's id is on the bus.
func TestSaveCreatedReturnsOnceTheBusHasTheJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		v := f.createJob(t, "")
		f.store.down = true
		started := time.Now()
		got, err := f.SaveCreated(t.Context(), v, []byte(providerObject("in_progress", "")))
		if err != nil || got.UpstreamID != "up_1" || got.Status != event.VideoInProgress || time.Since(started) > 2*outcomeTimeout {
			t.Errorf("got %+v, %v after %s; want the job", got, err, time.Since(started))
		}
		if kept := f.store.backup(jobID); kept.UpstreamID != "up_1" || kept.Rev != v.Rev+1 {
			t.Errorf("the bus has %+v; want the provider's id", kept)
		}
	})
}

// Without the bus the client gets the job, too: its id may have arrived. The outcome is stored when that is possible.
func TestSaveCreatedStoresTheOutcomeLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		v := f.createJob(t, "")
		f.store.setDown(true)
		if got, err := f.SaveCreated(t.Context(), v, []byte(providerObject("queued", ""))); err != nil || got.UpstreamID != "up_1" {
			t.Errorf("got %+v, %v; want the job", got, err)
		}
		time.Sleep(5 * time.Minute)
		f.store.setDown(false)
		time.Sleep(outcomeRetryInterval)
		synctest.Wait()
		if got := f.store.job(jobID); got.UpstreamID != "up_1" {
			t.Errorf("the record is %+v; want the provider's id", got)
		}
		if _, err := f.SaveCreated(t.Context(), v, []byte("{}")); !errors.Is(err, ErrNoObject) {
			t.Errorf("with an empty object: got %v; want %v", err, ErrNoObject)
		}
	})
}

// An update of the route whose response was lost does not keep the outcome from being recorded.
func TestOutcomeIsRecordedAfterALostUpdate(t *testing.T) {
	t.Parallel()
	f := setup(t)
	v := f.createJob(t, "")
	f.store.jobs[jobID] = func() event.Video { moved := *v; moved.Route, moved.Rev = "rte_2", 2; return moved }()
	f.Reject(t.Context(), v, "")
	if got := f.store.job(jobID); got.Status != event.VideoFailed || got.Rev != 3 {
		t.Errorf("got %+v; want a failed job", got)
	}
}

// Outcomes that cannot be stored do not pile up without a bound, and end with the proxy.
func TestOutcomesToStoreAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		f.store.setDown(true)
		for range maxStoring + 10 {
			if _, err := f.Create(t.Context(), newJob("")); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("got %v; want %v", err, ErrUnavailable)
			}
		}
		synctest.Wait()
		if n := len(f.storing); n != maxStoring {
			t.Errorf("%d outcomes wait to be stored; want %d", n, maxStoring)
		}
		f.Stop()
		if n := len(f.storing); n != 0 {
			t.Errorf("%d outcomes wait after Stop; want none", n)
		}
	})
}

func TestRefusedCreationLeavesNothingToStore(t *testing.T) {
	t.Parallel()
	refusal := event.VideoRefusal{Reason: event.VideoTooMany, MaxOpen: 3}
	_, err := unpack(&event.VideoResponse{V: event.Version, Status: event.VideoRefused, Refusal: &refusal}, nil)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.VideoRefusal != refusal || errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v; want the refusal", err)
	}
}
