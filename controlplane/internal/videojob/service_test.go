package videojob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

var jobID, requestID, accountID, keyID = ident.Video.New(), ident.Request.New(), ident.Account.New(), ident.Key.New()

// memory is a Store of one job, a Queue and a BackupStore.
type memory struct {
	mu     sync.Mutex
	job    *event.Video
	open   []string
	err    error
	queued []string
	// queueErr is the error of the queue. sweeps counts the calls of Open.
	queueErr error
	sweeps   int
	// backups has the backed-up states, each with the revision that was recorded at that time. backupErr makes backups fail.
	backups   []string
	backupErr error
	// newest is the newest backup that a proxy has stored; refusal is the answer of Insert.
	newest  *event.Video
	refusal *event.VideoRefusal
}

// NewestVideo returns the newest backup that a proxy has stored.
func (m *memory) NewestVideo(_ context.Context, id string) (*event.Video, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.backupErr != nil || m.newest == nil || m.newest.ID != id {
		return nil, m.backupErr
	}
	v := *m.newest
	return &v, nil
}

// BackUpVideo adds a state, with the revision that is recorded at that time.
func (m *memory) BackUpVideo(_ context.Context, v *event.Video) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	recorded := int64(0)
	if m.job != nil {
		recorded = m.job.Rev
	}
	if m.backupErr == nil {
		m.backups = append(m.backups, fmt.Sprintf("%d %s, recorded %d", v.Rev, v.Status, recorded))
	}
	return m.backupErr
}

func (m *memory) Insert(_ context.Context, v *event.Video) (*event.VideoRefusal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && m.job == nil && m.refusal == nil {
		stored := *v
		m.job = &stored
	}
	return m.refusal, m.err
}

func (m *memory) Get(_ context.Context, id, account string) (*event.Video, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return nil, m.err
	case m.job == nil || m.job.ID != id || (account != "" && account != m.job.AccountID):
		return nil, ErrNotFound
	}
	v := *m.job
	return &v, nil
}

func (m *memory) Update(_ context.Context, v *event.Video) (*event.Video, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return nil, m.err
	case m.job == nil || m.job.ID != v.ID || m.job.Rev != v.Rev || m.job.Ended():
		return nil, ErrConflict
	}
	next := *v
	next.Rev++
	m.job = &next
	return &next, nil
}

func (m *memory) Open(_ context.Context, d time.Duration, after Place, limit int) (jobs []Idle, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d != idle || limit != sweepLimit {
		return nil, errors.New("open: asked for something else")
	}
	from := int(after.UpdatedAt.UnixNano())
	if after == (Place{}) {
		from = 0
		m.sweeps++
	}
	for i := from; i < len(m.open) && len(jobs) < limit; i++ {
		jobs = append(jobs, Idle{Place{time.Unix(0, int64(i+1)), ident.UUID{}}, event.VideoPoll{V: event.Version, ID: m.open[i]}})
	}
	return jobs, m.err
}

func (m *memory) EnqueuePolls(_ context.Context, polls ...event.VideoPoll) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range polls {
		if m.queueErr == nil {
			m.queued = append(m.queued, p.ID)
		}
	}
	return m.queueErr
}

// seen returns the number of sweeps and the queued jobs.
func (m *memory) seen() (sweeps int, queued []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sweeps, slices.Clone(m.queued)
}

// set sets the errors while a Service runs.
func (m *memory) set(queueErr, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queueErr, m.err = queueErr, err
}

func newService(m *memory) (*Service, *bytes.Buffer) {
	var log bytes.Buffer
	return New(m, m, m, slog.New(slog.NewTextHandler(&log, nil))), &log
}

func job(rev int64, status string) *event.Video {
	return &event.Video{V: event.Version, ID: jobID, RequestID: requestID, AccountID: accountID, KeyID: keyID, Provider: "prv_1", Status: status, Rev: rev}
}

func TestCreateBacksUpRecordsAndQueues(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s, _ := newService(m)
	reply, err := s.Create(t.Context(), job(0, event.VideoQueued))
	if err != nil {
		t.Fatal(err)
	}
	want := &event.VideoResponse{V: event.Version, Status: event.VideoDone, Video: job(1, event.VideoQueued)}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{jobID}, m.queued); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}

	// If the job cannot be queued, the next sweep queues it.
	m = &memory{queueErr: errDown}
	s, log := newService(m)
	if reply, err := s.Create(t.Context(), job(0, event.VideoQueued)); err != nil || reply.Status != event.VideoDone || !strings.Contains(log.String(), jobID) {
		t.Errorf("queue fails: got %+v, %v, log %s", reply, err, log)
	}

	// The provider of a job without a backup must not be called.
	m = &memory{backupErr: errDown}
	s, _ = newService(m)
	if _, err := s.Create(t.Context(), job(0, event.VideoQueued)); !errors.Is(err, errDown) || len(m.queued) != 0 {
		t.Errorf("backup fails: got %v, queued %v", err, m.queued)
	}
	m = &memory{}
	s, _ = newService(m)
	none := job(0, event.VideoQueued)
	none.ID = "video.>"
	if _, err := s.Create(t.Context(), none); err == nil || errors.Is(err, errDown) || m.job != nil {
		t.Errorf("invalid id: got %v, recorded %v", err, m.job)
	}

	// A job that was not recorded is not polled.
	m = &memory{err: errDown}
	s, _ = newService(m)
	if _, err := s.Create(t.Context(), job(0, event.VideoQueued)); !errors.Is(err, errDown) || len(m.queued) != 0 {
		t.Errorf("store fails: got %v, queued %v", err, m.queued)
	}
}

func TestRefusedJobLeavesNoTrace(t *testing.T) {
	t.Parallel()
	m := &memory{refusal: &event.VideoRefusal{Reason: event.VideoBalance, Left: 1, Expected: 2}}
	s, _ := newService(m)
	reply, err := s.Create(t.Context(), job(0, event.VideoQueued))
	if err != nil {
		t.Fatal(err)
	}
	want := &event.VideoResponse{V: event.Version, Status: event.VideoRefused, Refusal: m.refusal}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.job != nil || len(m.queued) != 0 || len(m.backups) != 0 {
		t.Errorf("recorded %v, queued %v, backed up %v; want nothing", m.job, m.queued, m.backups)
	}
}

// A proxy stores the outcome of a creation as a backup if it cannot be recorded.
func TestGetRecordsOutcomeOfCreationFromBackup(t *testing.T) {
	t.Parallel()
	accepted, rejected, foreign := job(2, event.VideoQueued), job(2, event.VideoFailed), job(2, event.VideoQueued)
	accepted.UpstreamID, foreign.UpstreamID, foreign.RequestID = "up_1", "up_9", ident.Request.New()
	known, outdated := job(3, event.VideoQueued), job(1, event.VideoFailed)
	known.UpstreamID = "up_0"
	for _, tt := range []struct {
		name           string
		stored, backup *event.Video
		want           *event.Video
	}{
		{"accepted by the provider", job(1, event.VideoQueued), accepted, accepted},
		{"not accepted", job(1, event.VideoQueued), rejected, rejected},
		{"not accepted, and the record was changed before", job(2, event.VideoQueued), rejected, job(3, event.VideoFailed)},
		{"the same state", job(2, event.VideoQueued), job(2, event.VideoQueued), job(2, event.VideoQueued)},
		{"no backup", job(1, event.VideoQueued), nil, job(1, event.VideoQueued)},
		{"an older state", job(2, event.VideoQueued), outdated, job(2, event.VideoQueued)},
		{"a state of another request", job(1, event.VideoQueued), foreign, job(1, event.VideoQueued)},
		{"the provider's id is known", known, accepted, known},
		{"the job has ended", job(2, event.VideoFailed), accepted, job(2, event.VideoFailed)},
	} {
		m := &memory{job: tt.stored, newest: tt.backup}
		s, _ := newService(m)
		for _, account := range []string{"", accountID} {
			reply, err := s.Get(t.Context(), &event.VideoGetRequest{V: event.Version, ID: jobID, AccountID: account})
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if diff := cmp.Diff(tt.want, reply.Video); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	}
	// While the backups cannot be read, nobody may take the job for one without an outcome.
	s, _ := newService(&memory{job: job(1, event.VideoQueued), backupErr: errDown})
	if _, err := s.Get(t.Context(), &event.VideoGetRequest{V: event.Version, ID: jobID}); !errors.Is(err, errDown) {
		t.Errorf("backups fail: got %v; want %v", err, errDown)
	}
}

func TestGetChecksTheAccount(t *testing.T) {
	t.Parallel()
	m := &memory{job: job(1, event.VideoQueued)}
	s, _ := newService(m)
	for _, tt := range []struct{ id, account, want string }{
		{jobID, accountID, event.VideoDone},
		{jobID, "", event.VideoDone},
		{jobID, "acc_2", event.VideoNotFound},
		{"video_2", accountID, event.VideoNotFound},
	} {
		reply, err := s.Get(t.Context(), &event.VideoGetRequest{V: event.Version, ID: tt.id, AccountID: tt.account})
		if err != nil || reply.Status != tt.want || (reply.Video != nil) != (tt.want == event.VideoDone) {
			t.Errorf("%s of %q: got %+v, %v; want %s", tt.id, tt.account, reply, err, tt.want)
		}
	}
	m.err = errDown
	if _, err := s.Get(t.Context(), &event.VideoGetRequest{ID: jobID}); !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
}

func TestUpdateRejectsOutdatedStates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		stored *event.Video
		update *event.Video
		want   *event.VideoResponse
	}{
		{
			"the current state", job(3, event.VideoQueued), job(3, event.VideoInProgress),
			&event.VideoResponse{V: event.Version, Status: event.VideoDone, Video: job(4, event.VideoInProgress)},
		},
		{
			"an older state", job(3, event.VideoInProgress), job(2, event.VideoCompleted),
			&event.VideoResponse{V: event.Version, Status: event.VideoConflict, Video: job(3, event.VideoInProgress)},
		},
		{
			"an ended job", job(3, event.VideoCompleted), job(3, event.VideoFailed),
			&event.VideoResponse{V: event.Version, Status: event.VideoConflict, Video: job(3, event.VideoCompleted)},
		},
		{"no job", nil, job(3, event.VideoFailed), &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}},
	}
	for _, tt := range tests {
		s, log := newService(&memory{job: tt.stored})
		reply, err := s.Update(t.Context(), tt.update)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, reply); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if log.Len() > 0 {
			t.Errorf("%s: logged %s", tt.name, log)
		}
	}
	// A state whose backup fails is recorded, and the failure is logged.
	m := &memory{job: job(3, event.VideoQueued), backupErr: errDown}
	s, log := newService(m)
	if reply, err := s.Update(t.Context(), job(3, event.VideoCompleted)); err != nil || reply.Status != event.VideoDone || !strings.Contains(log.String(), jobID) {
		t.Errorf("backup fails: got %+v, %v, logged %s", reply, err, log)
	}
	s, _ = newService(&memory{err: errDown})
	if _, err := s.Update(t.Context(), job(1, event.VideoFailed)); !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
}

// A job that its provider had accepted and that a proxy gave up needs an operator's attention.
func TestGivenUpJobIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for upstreamID, level := range map[string]string{"up_1": "level=ERROR", "": "level=WARN"} {
		s, log := newService(&memory{job: job(1, event.VideoQueued)})
		given := job(1, event.VideoFailed)
		given.Error, given.UpstreamID = "unknown to the provider", upstreamID
		for range 2 { // the second update is a conflict
			if _, err := s.Update(t.Context(), given); err != nil {
				t.Fatal(err)
			}
		}
		if got := log.String(); strings.Count(got, level) != 1 || strings.Count(got, "level=") != 1 || !strings.Contains(got, "unknown to the provider") || !strings.Contains(got, jobID) {
			t.Errorf("provider's id %q: logged %s; want one line with %s", upstreamID, got, level)
		}
	}
}

func TestSweepQueuesOpenJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{open: []string{"video_1", "video_2"}}
		s, log := newService(m)
		s.Start(t.Context())
		defer s.Stop()
		synctest.Wait()
		if sweeps, queued := m.seen(); sweeps != 1 || len(queued) != 2 {
			t.Errorf("%d sweeps at the start, queued %v; want 1 and both jobs", sweeps, queued)
		}
		time.Sleep(sweepPause - 1)
		synctest.Wait()
		if sweeps, _ := m.seen(); sweeps != 1 {
			t.Errorf("%d sweeps before the end of the interval; want 1", sweeps)
		}
		m.set(errDown, nil) // errors are logged, and sweeps continue
		time.Sleep(sweepPause)
		synctest.Wait()
		m.set(nil, errDown)
		time.Sleep(sweepPause)
		synctest.Wait()
		m.set(nil, nil)
		time.Sleep(sweepPause)
		synctest.Wait()
		sweeps, queued := m.seen()
		if sweeps != 4 || len(queued) != 4 || strings.Count(log.String(), "level=ERROR") != 2 {
			t.Errorf("%d sweeps, queued %v, logged %s; want 4 sweeps, 4 jobs and 2 errors", sweeps, queued, log)
		}
	})
}

// So every recorded state has a backup. Only the first one is recorded before, because it may be refused.
func TestLaterStatesAreBackedUpBeforeTheyAreRecorded(t *testing.T) {
	t.Parallel()
	m := &memory{}
	s, _ := newService(m)
	if _, err := s.Create(t.Context(), job(0, event.VideoQueued)); err != nil {
		t.Fatal(err)
	}
	for rev, status := range []string{event.VideoInProgress, event.VideoCompleted} {
		if _, err := s.Update(t.Context(), job(int64(rev+1), status)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"1 queued, recorded 1", "2 in_progress, recorded 1", "3 completed, recorded 2"}
	if diff := cmp.Diff(want, m.backups); diff != "" {
		t.Errorf("backups (-want +got):\n%s", diff)
	}
}

// This includes more jobs than are listed at once.
func TestSweepQueuesAllIdleJobs(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, sweepLimit - 1, sweepLimit, sweepLimit + 1, 5*sweepLimit + 7} {
		m := &memory{}
		for i := range n {
			m.open = append(m.open, fmt.Sprint("video_", i))
		}
		s, _ := newService(m)
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.open, m.queued); diff != "" {
			t.Errorf("%d jobs (-want +got):\n%s", n, diff)
		}
	}
}
