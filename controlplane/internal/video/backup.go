package video

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Keeper keeps the states of jobs outside of Postgres, so that they outlive a
// loss of commits.
//
// A state is kept before it is committed: what Postgres has answered is among
// what is kept, whenever it is lost. What is kept may never have been
// committed; it is a state all the same that somebody has seen the job in.
type BackupStore interface {
	KeepVideo(ctx context.Context, v *event.Video) error
}

// Kept is a state of a job as it was kept.
type Backup struct {
	// Video is nil when Fault says why the payload is no record of a job.
	Video   *event.Video
	Payload []byte
	Fault   string
}

// ReadKept reads what was kept.
func ReadKept(payload []byte) Backup {
	k := Backup{Payload: payload}
	v := new(event.Video)
	err := json.Unmarshal(payload, v)
	if err == nil {
		err = validate(v)
	}
	if err != nil {
		k.Fault = "video job: " + err.Error()
		return k
	}
	k.Video = v
	return k
}

// validate reports what makes a record one that cannot be kept or restored.
func validate(v *event.Video) error {
	var faults []error
	if v.V < 1 || v.V > event.Version {
		faults = append(faults, fmt.Errorf("version %d is not known", v.V))
	}
	for _, id := range []struct {
		kind ident.Kind
		text string
	}{{ident.Video, v.ID}, {ident.Request, v.RequestID}, {ident.Account, v.AccountID}, {ident.Key, v.KeyID}} {
		if _, err := id.kind.Parse(id.text); err != nil {
			faults = append(faults, err)
		}
	}
	if v.Rev < 1 {
		faults = append(faults, fmt.Errorf("revision %d", v.Rev))
	}
	return errors.Join(faults...)
}

// Newest picks the newest state of each job, in any order. What is no record is
// passed on: it must not be lost sight of.
type Newest struct {
	jobs   map[string]Backup
	faulty []Backup
}

// Add takes in a state, in the order in which they were kept.
func (n *Newest) Add(k Backup) {
	if k.Fault != "" {
		n.faulty = append(n.faulty, k)
		return
	}
	if n.jobs == nil {
		n.jobs = map[string]Backup{}
	}
	if before, ok := n.jobs[k.Video.ID]; !ok || newer(before.Video, k.Video) {
		n.jobs[k.Video.ID] = k
	}
}

// newer tells whether b replaces a, which was kept before. Of two states with
// one number, of which Postgres took one at most, an end counts, and that which
// was billed first: a job whose client may have been told that it is not
// charged does not come back.
func newer(a, b *event.Video) bool {
	return cmp.Or(cmp.Compare(b.Rev, a.Rev), cmp.Compare(rank(b), rank(a))) >= 0
}

func rank(v *event.Video) int {
	switch v.Status {
	case event.VideoCompleted:
		return 2
	case event.VideoFailed:
		return 1
	default:
		return 0
	}
}

// All returns what was picked.
func (n *Newest) All() []Backup {
	all := n.faulty
	for _, k := range n.jobs {
		all = append(all, k)
	}
	return all
}
