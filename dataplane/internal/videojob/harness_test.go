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
var born = time.Unix(1_800_000_000, 0)

var errDown = errors.New("no reply")

// records keeps jobs as the control plane does.
type records struct {
	mu   sync.Mutex
	jobs map[string]event.Video
	// fails counts the updates that get no answer; lost of them are made all the same.
	fails int
	lost  bool
	down  bool
	log   *[]string
	// writes counts the updates that were made.
	writes int
}

func (r *records) VideoCreate(_ context.Context, v *event.Video) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errDown
	}
	v.Rev = 1
	r.jobs[v.ID] = *v
	return reply(event.VideoDone, *v), nil
}

func reply(status string, v event.Video) *event.VideoReply {
	return &event.VideoReply{V: event.Version, Status: status, Video: &v}
}

func (r *records) VideoGet(_ context.Context, q *event.VideoGet) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errDown
	}
	v, ok := r.jobs[q.ID]
	if !ok || (q.AccountID != "" && q.AccountID != v.AccountID) {
		return &event.VideoReply{V: event.Version, Status: event.VideoNotFound}, nil
	}
	return reply(event.VideoDone, v), nil
}

func (r *records) VideoUpdate(_ context.Context, v *event.Video) (*event.VideoReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails > 0 && !r.lost {
		r.fails--
		return nil, errDown
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
	next.Object = restored(v.Object)
	r.jobs[v.ID] = next
	r.writes++
	*r.log = append(*r.log, "write "+next.Status)
	if r.fails > 0 {
		r.fails--
		return nil, errDown
	}
	return reply(event.VideoDone, next), nil
}

// restored is an object as Postgres gives it back: in an order of its own.
func restored(object []byte) []byte {
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

func (r *records) job(id string) event.Video {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[id]
}

// providers answers every call the same.
type providers struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   string
	err    error
	calls  []provider.Call
}

func (p *providers) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
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

func (p *providers) says(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body, p.err = status, body, nil
}

// bills takes charges.
type bills struct {
	mu     sync.Mutex
	events []event.Usage
	err    error
	log    *[]string
}

func (b *bills) Bill(e event.Usage) error {
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
type world struct {
	*Tracker
	records   *records
	providers *providers
	bills     *bills
	models    *catalog.Store
	now       time.Time
	// log is what was billed and written, in order.
	log []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: born, providers: &providers{status: 200}}
	w.records, w.bills = &records{jobs: map[string]event.Video{}, log: &w.log}, &bills{log: &w.log}
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	w.models = catalog.New(fleet)
	set := func(kind, name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.models.Set(kind, name, data)
	}
	set(subject.KindProvider, "prv_1", catalogkv.Provider{
		ID: "prv_1", Name: "vendor", BaseURL: "http://vendor.invalid", Enabled: true,
		Credentials: []catalogkv.Credential{{ID: "crd_1", Sealed: fleet.Seal([]byte("secret"), catalogkv.CredentialContext("crd_1"))}},
	})
	set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: 1})
	if err := w.models.Apply(); err != nil {
		t.Fatal(err)
	}
	w.Tracker = w.another()
	return w
}

// another is the Tracker of a second proxy.
func (w *world) another() *Tracker {
	return New(w.records, w.providers, w.bills, w.models, videos.Dialect{}, slog.New(slog.DiscardHandler), func() time.Time { return w.now })
}

const jobID = "video_1"

// job records a job that the provider has, unless upstream is empty.
func (w *world) job(t *testing.T, upstream string) *event.Video {
	t.Helper()
	v, err := w.Record(t.Context(), &event.Video{
		V: event.Version, ID: jobID, UpstreamID: upstream, RequestID: "req_1", AccountID: "acc_1", KeyID: "key_1", Model: "film",
		Provider: "prv_1", Route: "rte_1", Credential: "crd_1", UpstreamModel: "up-film", Status: event.VideoQueued, Size: "720x1280", Seconds: 4,
		CreatedUnix: born.Unix(), PriceVersion: 3, Sheet: &price.Sheet{Version: 3, Seconds: []price.UnitPrice{{Price: 10}, {Size: "big", Price: 50}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// said is what the provider says of the job.
func said(status, more string) string {
	return `{"id":"up_1","object":"video","model":"up-film","status":"` + status + `","progress":10` + more + `}`
}

// stalled is a provider that closes the channel when it is called and answers
// nothing.
type stalled struct{ asked chan struct{} }

func (s stalled) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
	close(s.asked)
	<-ctx.Done()
	return nil, provider.CallFailure(&call, ctx.Err())
}
