// Package credential renews the credentials of providers that are no fixed secrets: access tokens of OAuth 2.0, Google
// and Azure, and the keys that sign requests to AWS. The libraries of their makers get them; this package decides when.
//
// A source is asked when a call first needs it, and later when a quarter of the life of its token is left. One request for
// a token serves all calls, and no call waits for it while the old token is valid. While the source fails, the old token
// is used as long as it is valid. A process without such credentials starts nothing.
//
// Which secret is asked for where is decided in the catalog. What identifies the process itself (files of tokens, metadata
// servers) comes from its environment only, so that whoever may change the catalog cannot read its files.
package credential

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/wire"
)

// Sources has the sources of all credentials that are renewed. It is safe for concurrent use.
type Sources struct {
	client *http.Client
	// awsClient is a client of the library of AWS, which it can give the certificates that its environment names.
	awsClient aws.HTTPClient
	log       *slog.Logger
	// hasFunc reports whether the catalog still has a credential.
	hasFunc func(id string) bool

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.RWMutex
	sources map[catalog.Credential]*entry
	// closed reports whether no renewal may begin any more.
	closed bool
	// renewals counts renewals by kind and result.
	renewals map[outcome]int64
}

// entry is a source with what operators see of it.
type entry struct {
	source
	provider string
	kind     catalogkv.CredentialKind
	// state is empty while the source works, or one of the reasons of package wire.
	state string
}

type outcome struct {
	kind   catalogkv.CredentialKind
	failed bool
}

// New returns Sources. transport sends the requests for tokens, and nil means one of its own. hasFunc reports whether the
// catalog has the credential with an id.
func New(transport http.RoundTripper, hasFunc func(id string) bool, log *slog.Logger) *Sources {
	client := &http.Client{Transport: transport, Timeout: fetchTimeout}
	awsClient := aws.HTTPClient(client)
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableKeepAlives = true // the next request is minutes away
		client.Transport = own
		awsClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true })
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Sources{
		client:    client,
		awsClient: awsClient,
		log:       log,
		hasFunc:   hasFunc,
		ctx:       ctx,
		cancel:    cancel,
		sources:   map[catalog.Credential]*entry{},
		renewals:  map[outcome]int64{},
	}
}

// Close ends the renewals that run and waits for them. No further one begins.
func (s *Sources) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
}

// Token returns the valid token of a credential. It waits only if there is none.
func (s *Sources) Token(ctx context.Context, provider string, c catalog.Credential) (*Token, error) {
	source, err := s.sourceOf(provider, c)
	if err != nil {
		return nil, err
	}
	return source.token(ctx)
}

// Rejected says that the provider has rejected a token of a credential. It reports whether another call is worth a try.
func (s *Sources) Rejected(c catalog.Credential, token *Token) bool {
	s.mu.RLock()
	e := s.sources[c]
	s.mu.RUnlock()
	return e != nil && e.rejected(token)
}

func (s *Sources) sourceOf(provider string, c catalog.Credential) (*entry, error) {
	s.mu.RLock()
	known := s.sources[c]
	s.mu.RUnlock()
	if known != nil {
		return known, nil
	}

	parameters, err := catalogkv.DecodeParameters(c.Reveal())
	if err != nil {
		return nil, fmt.Errorf("credential %s: %w", c.ID, err)
	}
	fetch := s.fetcher(c.Kind, parameters)
	if fetch == nil {
		return nil, fmt.Errorf("credential %s: this version does not know the kind %s", c.ID, c.Kind)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sources[c]; known != nil {
		return known, nil
	}
	e := &entry{provider: provider, kind: c.Kind}
	hide := hider(c.Kind, parameters)
	e.fetchFunc, e.run = fetch, s.run
	e.observe = func(err error, valid bool) { s.observe(c.ID, e, err, valid, hide) }
	s.sources[c] = e
	return e, nil
}

// run implements source.run.
func (s *Sources) run(renew func(ctx context.Context)) bool {
	s.mu.RLock() // so that Close does not wait before the task is counted
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	s.tasks.Go(func() { renew(s.ctx) })
	return true
}

// hider returns a function that removes the secret parameters from a text.
func hider(kind catalogkv.CredentialKind, parameters map[string]string) func(text string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if _, secret := kind.HasParameter(name); secret && parameters[name] != "" {
			pairs = append(pairs, parameters[name], "["+name+"]")
		}
	}
	replacer := strings.NewReplacer(pairs...)
	return func(text string) string {
		text = replacer.Replace(text)
		return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
	}
}

// maxErrorText bounds how much of the error of a source is logged, in bytes.
const maxErrorText = 500

// observe counts a renewal and logs a change of the state.
func (s *Sources) observe(id string, e *entry, err error, valid bool, hide func(string) string) {
	if err != nil && s.ctx.Err() != nil {
		return // the process stops
	}

	state := ""
	switch {
	case err != nil && valid:
		state = wire.SourceFailing
	case err != nil:
		state = wire.SourceFailed
	}

	s.mu.Lock()
	s.renewals[outcome{e.kind, err != nil}]++
	before := e.state
	e.state = state
	s.mu.Unlock()

	attributes := []slog.Attr{
		slog.String("provider", e.provider), slog.String("credential", id), slog.String("kind", string(e.kind)),
	}
	switch {
	case state == before:
	case state == "":
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "credential is renewed again", attributes...)
	case state == wire.SourceFailing:
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "credential cannot be renewed, its old token is used as long as it is valid",
			append(attributes, slog.String("error", hide(err.Error())))...)
	default:
		s.log.LogAttrs(s.ctx, slog.LevelError, "credential cannot be renewed and has no valid token",
			append(attributes, slog.String("error", hide(err.Error())))...)
	}
}

// Failing returns the credentials whose sources have failed when they were last asked, by id. It forgets the sources of
// credentials that the catalog no longer has.
func (s *Sources) Failing() []wire.RefusedCredential {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failing []wire.RefusedCredential
	s.forget()
	for c, e := range s.sources {
		if e.state != "" {
			failing = append(failing, wire.RefusedCredential{Credential: c.ID, Reason: e.reason(time.Now())})
		}
	}
	slices.SortFunc(failing, func(a, b wire.RefusedCredential) int { return cmp.Compare(a.Credential, b.Credential) })
	return failing
}

// reason is the state, which becomes worse with time even if nobody asks the source.
func (e *entry) reason(now time.Time) string {
	if e.current.Load().isValid(now) {
		return e.state
	}
	return wire.SourceFailed
}

// forget removes the sources of credentials that the catalog no longer has.
func (s *Sources) forget() {
	maps.DeleteFunc(s.sources, func(c catalog.Credential, _ *entry) bool { return !s.hasFunc(c.ID) })
}

var (
	renewalsDesc = prometheus.NewDesc(
		"mgw_credential_renewals_total",
		"Renewals of credentials that are no fixed secrets, by kind (oauth, google, azure or aws) and result: ok or failed.",
		[]string{"kind", "result"},
		nil,
	)
	expiryDesc = prometheus.NewDesc(
		"mgw_credential_expiry_timestamp_seconds",
		"Unix time at which the present token of a credential ends that is no fixed secret. It is renewed when a quarter of its life is "+
			"left, if calls need it.",
		[]string{"provider", "credential", "kind"},
		nil,
	)
)

func (s *Sources) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- renewalsDesc
	descriptions <- expiryDesc
}

func (s *Sources) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	for o, n := range s.renewals {
		result := "ok"
		if o.failed {
			result = "failed"
		}
		metrics <- prometheus.MustNewConstMetric(renewalsDesc, prometheus.CounterValue, float64(n), string(o.kind), result)
	}
	for c, e := range s.sources {
		if current := e.current.Load(); current != nil && !current.Expires.IsZero() {
			metrics <- prometheus.MustNewConstMetric(
				expiryDesc, prometheus.GaugeValue, float64(current.Expires.Unix()), e.provider, c.ID, string(e.kind),
			)
		}
	}
}
