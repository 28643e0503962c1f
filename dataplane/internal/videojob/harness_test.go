package videojob

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// createdAt is when the jobs of the tests are created.
var createdAt = time.Unix(1_800_000_000, 0)

var errNoReply = errors.New("no reply")

// fakeStore stores jobs as the control plane does.
type fakeStore struct {
	// limits are the windows in which jobs are created.
	limits []int64
	mu     sync.Mutex
	jobs   map[string]event.Video
	// failures is how many updates fail. If loseReplies is set, they are made, and only the reply is lost.
	failures    int
	loseReplies bool
	down        bool
	log         *[]string
	// writes is how many updates were made.
	writes int
	// backups has the newest backed-up state of each job; busDown makes backups fail. faults has those of the next calls,
	// by method.
	backups map[string]event.Video
	busDown bool
	faults  map[string][]fault
}

// fault is what happens to one call.
type fault int

const (
	works fault = iota
	// dropped: it does not arrive.
	dropped
	// replyLost: it has its effect, but there is no reply.
	replyLost
)

func (s *fakeStore) setFaults(faults map[string][]fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// setDown takes control plane and bus down, or up again.
func (s *fakeStore) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.busDown = down, down
}

// next returns the fault of a call. The caller holds the lock.
func (s *fakeStore) next(method string) fault {
	if len(s.faults[method]) == 0 {
		return works
	}
	f := s.faults[method][0]
	s.faults[method] = s.faults[method][1:]
	return f
}

func (s *fakeStore) BackUpVideo(_ context.Context, v *event.Video) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.next("backup")
	if s.busDown || f == dropped {
		return errNoReply
	}
	if s.backups == nil {
		s.backups = map[string]event.Video{}
	}
	if v.Rev >= s.backups[v.ID].Rev {
		s.backups[v.ID] = *v
	}
	if f == replyLost {
		return errNoReply
	}
	return nil
}

func (s *fakeStore) backup(id string) event.Video {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backups[id]
}

func (s *fakeStore) CreateVideo(_ context.Context, v *event.Video) (*event.VideoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.next("create")
	if s.down || f == dropped {
		return nil, errNoReply
	}
	created := *v
	created.Rev, created.Limits = 1, s.limits
	s.jobs[v.ID] = created
	if f == replyLost {
		return nil, errNoReply
	}
	return reply(event.VideoDone, created), nil
}

// reply returns a reply with a job.
func reply(status string, v event.Video) *event.VideoResponse {
	return &event.VideoResponse{V: event.Version, Status: status, Video: &v}
}

func (s *fakeStore) GetVideo(_ context.Context, q *event.VideoGetRequest) (*event.VideoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errNoReply
	}
	v, ok := s.jobs[q.ID]
	if !ok || (q.AccountID != "" && q.AccountID != v.AccountID) {
		return &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}, nil
	}
	if kept, ok := s.backups[q.ID]; ok && v.UpstreamID == "" && !v.Ended() && kept.Rev > v.Rev {
		kept.Rev = v.Rev + 1
		v, s.jobs[q.ID] = kept, kept
	}
	return reply(event.VideoDone, v), nil
}

func (s *fakeStore) UpdateVideo(_ context.Context, v *event.Video) (*event.VideoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.next("update")
	if s.failures > 0 && !s.loseReplies {
		s.failures--
		return nil, errNoReply
	}
	if s.down || f == dropped {
		return nil, errNoReply
	}
	current, ok := s.jobs[v.ID]
	if !ok {
		return &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}, nil
	}
	if current.Rev != v.Rev || current.Ended() {
		return reply(event.VideoConflict, current), nil
	}
	next := *v
	next.Rev++
	next.Object = reformatted(v.Object)
	s.jobs[v.ID] = next
	s.writes++
	*s.log = append(*s.log, "write "+next.Status)
	if s.failures > 0 || f == replyLost {
		s.failures = max(s.failures-1, 0)
		return nil, errNoReply
	}
	return reply(event.VideoDone, next), nil
}

// reformatted returns an object as Postgres returns it: with another order of
// members and other white space.
func reformatted(object []byte) []byte {
	var members map[string]any
	if json.Unmarshal(object, &members) != nil {
		return object
	}
	b, err := json.MarshalIndent(members, "", " ")
	if err != nil {
		panic(err)
	}
	return b
}

func (s *fakeStore) job(id string) event.Video {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

// fakeProviders gives every call the same answer.
type fakeProviders struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   string
	err    error
	calls  []provider.Call
}

func (p *fakeProviders) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, *call)
	if err := ctx.Err(); err != nil {
		return nil, provider.CallFailure(call, err)
	}
	if p.err != nil {
		return nil, provider.CallFailure(call, p.err)
	}
	return &provider.Answer{Status: p.status, Header: p.header, Body: provider.NoAwait{ReadCloser: io.NopCloser(strings.NewReader(p.body))}, Length: int64(len(p.body))}, nil
}

func (p *fakeProviders) respond(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body, p.err = status, body, nil
}

// fakeCharger stores charges.
type fakeCharger struct {
	mu     sync.Mutex
	events []event.Usage
	err    error
	log    *[]string
	// unknown has the providers whose states were not known.
	unknown []string
}

func (c *fakeCharger) CountUnknownState(provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown = append(c.unknown, provider)
}

func (c *fakeCharger) Charge(e event.Usage, _ usagereport.Reason) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.events = append(c.events, e)
	*c.log = append(*c.log, "charge")
	return nil
}

// fixture is a Tracker with its dependencies.
type fixture struct {
	*Tracker
	store     *fakeStore
	providers *fakeProviders
	charger   *fakeCharger
	catalog   *catalog.Store
	now       time.Time
	// log has the charges and the writes of records, in order.
	log []string
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{now: createdAt, providers: &fakeProviders{status: 200}}
	f.store, f.charger = &fakeStore{jobs: map[string]event.Video{}, log: &f.log}, &fakeCharger{log: &f.log}
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	f.catalog = catalog.New(fleet)
	set := func(kind, name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		f.catalog.Set(kind, name, data)
	}
	set(subject.KindProvider, "prv_1", catalogkv.Provider{
		ID: "prv_1", Name: "vendor", BaseURL: "http://vendor.invalid", Enabled: true,
		Credentials: []catalogkv.Credential{{ID: "crd_1", Name: "main", Sealed: fleet.Seal([]byte("secret"), catalogkv.CredentialContext("crd_1"))}},
	})
	set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: 1})
	if err := f.catalog.Apply(); err != nil {
		t.Fatal(err)
	}
	f.Tracker = f.newTracker(t)
	return f
}

// newTracker returns the Tracker of another proxy.
func (f *fixture) newTracker(t *testing.T) *Tracker {
	t.Helper()
	tracker := New(f.store, f.providers, f.charger, f.catalog, videos.Dialect{}, slog.New(slog.DiscardHandler), func() time.Time { return f.now })
	t.Cleanup(tracker.Stop)
	return tracker
}

const jobID = "video_1"

// createJob records a job. With an empty upstream id, no provider has accepted it yet.
func (f *fixture) createJob(t *testing.T, upstream string) *event.Video {
	t.Helper()
	v, err := f.Create(t.Context(), newJob(upstream))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newJob returns the job before it is recorded.
func newJob(upstream string) *event.Video {
	return &event.Video{
		V: event.Version, ID: jobID, UpstreamID: upstream, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film",
		Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Size: "720x1280", Seconds: 4,
		CreatedUnix: createdAt.Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}, {Size: "big", Price: 50}}},
	}
}

// providerObject returns a provider's object of the job.
func providerObject(status, more string) string {
	return `{"id":"up_1","object":"video","model":"up-film","status":"` + status + `","progress":10` + more + `}`
}

// silentProvider never answers. It closes the channel, if there is one, when it is
// called.
type silentProvider struct{ called chan struct{} }

func (s silentProvider) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	if s.called != nil {
		close(s.called)
	}
	<-ctx.Done()
	return nil, provider.CallFailure(call, ctx.Err())
}
