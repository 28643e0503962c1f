package videojob

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// BackupStore stores the states of jobs outside of Postgres, so that they survive
// a loss of commits.
//
// A later state than the first is backed up before it is committed, so that every
// such state has a backup. It may never have been committed, but the job was in
// that state at its provider. The first state is committed before it is backed up,
// so that a refused job leaves no backup, and no provider is called before both.
type BackupStore interface {
	// BackUpVideo adds a state. The first state is added only if the job has no backup: a proxy that got no response to
	// a creation may have stored already that no provider has the job.
	BackUpVideo(ctx context.Context, v *event.Video) error
	// NewestVideo returns the newest valid state of a job, or nil if it has none.
	NewestVideo(ctx context.Context, id string) (*event.Video, error)
}

// Backup is a backed-up state of a job.
type Backup struct {
	// Video is nil if the payload is no valid record of a job; Fault says why.
	Video   *event.Video
	Payload []byte
	Fault   string
}

// DecodeBackup decodes and validates a backup.
func DecodeBackup(payload []byte) Backup {
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

// validate returns an error for a record that cannot be backed up or restored.
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

// Newest collects the newest state of each job, and all backups that are not valid
// records.
type Newest struct {
	jobs   map[string]Backup
	faulty []Backup
}

// Add adds a backup. Backups are added in the order in which they were made.
func (n *Newest) Add(k Backup) {
	if k.Fault != "" {
		n.faulty = append(n.faulty, k)
		return
	}
	if n.jobs == nil {
		n.jobs = map[string]Backup{}
	}
	if before, ok := n.jobs[k.Video.ID]; !ok || compareStates(before.Video, k.Video) <= 0 {
		n.jobs[k.Video.ID] = k
	}
}

// compareStates is negative if b is a later state than a. Of two states with the same
// revision Postgres committed at most one. Then a final state wins, and completed over
// failed: a job that ended does not run again.
func compareStates(a, b *event.Video) int {
	return cmp.Or(cmp.Compare(a.Rev, b.Rev), cmp.Compare(rank(a), rank(b)))
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

// Job returns the newest state of a job, or nil if there is none.
func (n *Newest) Job(id string) *event.Video { return n.jobs[id].Video }

// All returns the collected backups.
func (n *Newest) All() []Backup {
	all := n.faulty
	for _, k := range n.jobs {
		all = append(all, k)
	}
	return all
}
