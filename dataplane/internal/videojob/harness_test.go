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
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// born is when the jobs of the tests are made.
var createdAt = time.Unix(1_800_000_000, 0)

var errNoReply = errors.New("no reply")

// records keeps jobs as the control plane does.
type fakeStore struct {
	mu   sync.Mutex
	jobs map[string]event.Video
	// fails counts the updates that get no answer; lost of them are made all the same.
	failures    int
	loseReplies bool
	down        bool
	log         *[]string
	// writes counts the updates that were made.
	writes int
}

func (r *fakeStore) CreateVideo(_ context.Context, v *event.Video) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errNoReply
	}
	v.Rev = 1
	r.jobs[v.ID] = *v
	return reply(event.VideoDone, *v), nil
}

func reply(status string, v event.Video) *event.VideoReply {
	return &event.VideoReply{V: event.Version, Status: status, Video: &v}
}

func (r *fakeStore) GetVideo(_ context.Context, q *event.VideoGet) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errNoReply
	}
	v, ok := r.jobs[q.ID]
	if !ok || (q.AccountID != "" && q.AccountID != v.AccountID) {
		return &event.VideoReply{V: event.Version, Status: event.VideoNotFound}, nil
	}
	return reply(event.VideoDone, v), nil
}

func (r *fakeStore) UpdateVideo(_ context.Context, v *event.Video) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > 0 && !r.loseReplies {
		r.failures--
		return nil, errNoReply
	}
	current, ok := r.jobs[v.ID]
	if !ok {
		return &event.VideoReply{V: event.Version, Status: event.VideoNotFound}, nil
	}
	if current.Rev != v.Rev || current.Ended() {
		return reply(event.VideoConflict, current), nil
	}
	next := *v
	next.Rev++
	next.Object = reformatted(v.Object)
	r.jobs[v.ID] = next
	r.writes++
	*r.log = append(*r.log, "write "+next.Status)
	if r.failures > 0 {
		r.failures--
		return nil, errNoReply
	}
	return reply(event.VideoDone, next), nil
}

// restored is an object as Postgres gives it back: in an order of its own.
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

func (r *fakeStore) job(id string) event.Video {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[id]
}

// providers answers every call the same.
type fakeProviders struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   string
	err    error
	calls  []provider.Call
}

func (p *fakeProviders) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	if err := ctx.Err(); err != nil {
		return nil, provider.CallFailure(&call, err)
	}
	if p.err != nil {
		return nil, provider.CallFailure(&call, p.err)
	}
	return &provider.Answer{Status: p.status, Header: p.header, Body: provider.NoAwait{ReadCloser: io.NopCloser(strings.NewReader(p.body))}, Length: int64(len(p.body))}, nil
}

func (p *fakeProviders) respond(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body, p.err = status, body, nil
}

// bills takes charges.
type fakeBiller struct {
	mu     sync.Mutex
	events []event.Usage
	err    error
	log    *[]string
}

func (b *fakeBiller) Bill(e event.Usage) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.events = append(b.events, e)
	*b.log = append(*b.log, "bill")
	return nil
}

// world is a Tracker with all that it stands on.
type fixture struct {
	*Tracker
	store     *fakeStore
	providers *fakeProviders
	biller    *fakeBiller
	catalog   *catalog.Store
	now       time.Time
	// log is what was billed and written, in order.
	log []string
}

func setup(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{now: createdAt, providers: &fakeProviders{status: 200}}
	w.store, w.biller = &fakeStore{jobs: map[string]event.Video{}, log: &w.log}, &fakeBiller{log: &w.log}
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	w.catalog = catalog.New(fleet)
	set := func(kind, name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.catalog.Set(kind, name, data)
	}
	set(subject.KindProvider, "prv_1", catalogkv.Provider{
		ID: "prv_1", Name: "vendor", BaseURL: "http://vendor.invalid", Enabled: true,
		Credentials: []catalogkv.Credential{{ID: "crd_1", Sealed: fleet.Seal([]byte("secret"), catalogkv.CredentialContext("crd_1"))}},
	})
	set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: 1})
	if err := w.catalog.Apply(); err != nil {
		t.Fatal(err)
	}
	w.Tracker = w.newTracker()
	return w
}

// another is the Tracker of a second proxy.
func (w *fixture) newTracker() *Tracker {
	return New(w.store, w.providers, w.biller, w.catalog, videos.Dialect{}, slog.New(slog.DiscardHandler), func() time.Time { return w.now })
}

const jobID = "video_1"

// job records a job that the provider has, unless upstream is empty.
func (w *fixture) createJob(t *testing.T, upstream string) *event.Video {
	t.Helper()
	v, err := w.Create(t.Context(), &event.Video{
		V: event.Version, ID: jobID, UpstreamID: upstream, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film",
		Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Size: "720x1280", Seconds: 4,
		CreatedUnix: createdAt.Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}, {Size: "big", Price: 50}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// said is what the provider says of the job.
func providerObject(status, more string) string {
	return `{"id":"up_1","object":"video","model":"up-film","status":"` + status + `","progress":10` + more + `}`
}

// stalled is a provider that closes the channel when it is called and answers
// nothing.
type silentProvider struct{ called chan struct{} }

func (s silentProvider) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
	close(s.called)
	<-ctx.Done()
	return nil, provider.CallFailure(&call, ctx.Err())
}
