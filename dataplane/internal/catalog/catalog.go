// Package catalog holds the proxy's catalog of models, providers, grants and settings: an immutable Snapshot that is
// replaced as a whole when a change is complete.
//
// The Store keeps the entries as they come from the bus and builds a new Snapshot from all of them at each Apply. An
// invalid entry is left out and reported. Models and routes that refer to it are then not offered; the rest of the
// catalog stays usable.
package catalog

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/certfile"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
)

// Model is a model together with its routes and their providers.
type Model struct {
	catalogkv.Model
	// Routes are the enabled routes to enabled providers, by format.
	Routes map[catalogkv.Format][]*Route
	// supported holds the formats of all routes, enabled or not.
	supported map[catalogkv.Format]bool
}

// Supports reports whether a format fits the type of the model and the model has a route for it, enabled or not.
func (m *Model) Supports(f catalogkv.Format) bool { return m.Type == f.Type() && m.supported[f] }

// Formats returns the formats that the model supports, in a fixed order.
func (m *Model) Formats() []catalogkv.Format {
	var formats []catalogkv.Format
	for _, f := range catalogkv.Formats {
		if m.Supports(f) {
			formats = append(formats, f)
		}
	}
	return formats
}

// Route is a route together with its provider.
type Route struct {
	catalogkv.Route
	Provider *Provider
	// targets has the targets of those formats for which the route or its provider has an address.
	targets map[catalogkv.Format]targets
}

// targets are the targets of a format.
type targets struct{ whole, stream catalogkv.Target }

// NewRoute returns a route of a provider.
func NewRoute(r catalogkv.Route, p *Provider) *Route {
	route := &Route{Route: r, Provider: p}
	for _, addresses := range []catalogkv.Addresses{p.Addresses, r.Addresses} {
		for f := range addresses {
			if route.targets == nil {
				route.targets = map[catalogkv.Format]targets{}
			}
			route.targets[f] = targets{p.Target(&r, f, false), p.Target(&r, f, true)}
		}
	}
	return route
}

// Target returns where a call of a format goes, below the base URL of the provider.
func (r *Route) Target(f catalogkv.Format, stream bool) catalogkv.Target {
	own, has := r.targets[f]
	switch {
	case !has:
		return catalogkv.Target{Path: f.Path()}
	case stream:
		return own.stream
	default:
		return own.whole
	}
}

// Provider is a provider with its decrypted credentials. The encrypted ones are removed.
type Provider struct {
	catalogkv.Provider
	Credentials []Credential
	// Roots has the issuers whose servers are trusted; nil: those of the machine. RootsID is the same for equal issuers.
	Roots   *x509.CertPool
	RootsID string
}

// Betas returns the names of beta features that the provider is asked for in every request, separated by commas.
func (p *Provider) Betas() string {
	for name, value := range p.Headers {
		if strings.EqualFold(name, "anthropic-beta") {
			return value
		}
	}
	return ""
}

// Credential is a decrypted credential. Its text is never printed.
type Credential struct {
	ID string
	// Name is its name in the catalog.
	Name string
	// Kind is that of the catalog entry, but that of a secret is empty.
	Kind catalogkv.CredentialKind
	text string
	// secrets are the further secrets, nil if there are none.
	secrets *secrets
}

// secrets are the opened secrets of a credential beside its text.
type secrets struct {
	headers       map[string]string
	certificate   *tls.Certificate
	certificateID string
	// certificateExpiry is when the first certificate of the chain expires.
	certificateExpiry time.Time
}

// NewCredential returns the credential with an id and its secret.
func NewCredential(id, secret string) Credential { return Credential{ID: id, text: secret} }

// NewRenewed returns the credential of a kind that package upstream renews, with the parameters from which it does.
func NewRenewed(id string, kind catalogkv.CredentialKind, parameters string) Credential {
	return Credential{ID: id, Kind: kind, text: parameters}
}

// Reveal returns the text: the secret for the authorization header of a call, or the parameters.
func (s Credential) Reveal() string { return s.text }

// WithText returns the credential with another text, such as an access token, and the same further secrets.
func (s Credential) WithText(text string) Credential {
	s.Kind, s.text = "", text
	return s
}

// Headers returns the headers that are sent beside that of the text. It must not be modified.
func (s Credential) Headers() map[string]string {
	if s.secrets == nil {
		return nil
	}
	return s.secrets.headers
}

// Certificate returns the certificate with which the proxy authenticates itself in TLS, nil if there is none, and an id
// that is the same for equal ones.
func (s Credential) Certificate() (certificate *tls.Certificate, id string) {
	if s.secrets == nil {
		return nil, ""
	}
	return s.secrets.certificate, s.secrets.certificateID
}

// Hidden returns the texts that nobody may see.
func (s Credential) Hidden() []string {
	var hidden []string
	if s.text != "" {
		hidden = append(hidden, s.text)
	}
	for _, value := range s.Headers() {
		hidden = append(hidden, strings.TrimPrefix(value, "Bearer "))
	}
	return hidden
}

// String returns the id of the credential.
func (s Credential) String() string { return "credential " + s.ID }

// GoString returns the id of the credential.
func (s Credential) GoString() string { return s.String() }

// Snapshot is the catalog at one revision. It is immutable.
type Snapshot struct {
	Rev       int64
	Settings  catalogkv.Settings
	models    map[string]*Model
	providers map[string]*Provider
	// routes has all routes to providers of the catalog, enabled or not, by id.
	routes map[string]*Route
	grants map[string]map[string]bool
	sorted []*Model
}

// Model returns the model with a name if it is enabled and the account may use it, otherwise nil. An empty account
// may use public models only.
func (s *Snapshot) Model(name, account string) *Model {
	m := s.models[name]
	if m == nil || !s.visible(m, account) {
		return nil
	}
	return m
}

func (s *Snapshot) visible(m *Model, account string) bool {
	return m.Enabled && (m.Public || s.grants[account][m.ID])
}

// Visible returns the models that an account may use, sorted by id.
func (s *Snapshot) Visible(account string) []*Model {
	var visible []*Model
	for _, m := range s.sorted {
		if s.visible(m, account) {
			visible = append(visible, m)
		}
	}
	return visible
}

// Unserved returns the ids of the enabled models whose routes are all among the given ids. Models
// without a route are not included.
func (s *Snapshot) Unserved(routes []string) (ids []string) {
	for _, m := range s.sorted {
		callable, served := false, false
		for _, of := range m.Routes {
			for _, r := range of {
				callable, served = true, served || !slices.Contains(routes, r.ID)
			}
		}
		if m.Enabled && callable && !served {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// HasGrant reports whether models were granted to an account.
func (s *Snapshot) HasGrant(account string) bool { return len(s.grants[account]) > 0 }

// Price returns the price sheet of a model with the given version, nil if the catalog no longer has it.
func (s *Snapshot) Price(model string, version int64) *price.Sheet {
	m := s.models[model]
	if m == nil {
		return nil
	}
	for i := range m.Prices {
		if m.Prices[i].Sheet.Version == version {
			return &m.Prices[i].Sheet
		}
	}
	return nil
}

// Provider returns the provider with an id, even if it is disabled, or nil.
func (s *Snapshot) Provider(id string) *Provider { return s.providers[id] }

// Route returns the route with an id, even if it is disabled, or nil.
func (s *Snapshot) Route(id string) *Route { return s.routes[id] }

// RoutesTo returns the enabled routes to a provider in a format, sorted by id.
func (s *Snapshot) RoutesTo(provider string, f catalogkv.Format) (routes []*Route) {
	for _, m := range s.sorted {
		for _, r := range m.Routes[f] {
			if r.Provider.ID == provider {
				routes = append(routes, r)
			}
		}
	}
	slices.SortFunc(routes, func(a, b *Route) int { return strings.Compare(a.ID, b.ID) })
	return routes
}

// Store collects entries and provides the newest Snapshot. It is safe for concurrent use.
type Store struct {
	fleet     seal.Keys
	current   atomic.Pointer[Snapshot]
	appliedAt atomic.Int64 // Unix nanoseconds of the last Apply

	mu      sync.Mutex
	entries map[string]map[string][]byte // kind, then name
}

// New returns an empty Store. The fleet keys decrypt credentials.
func New(fleet ...*seal.Key) *Store {
	s := &Store{fleet: fleet}
	s.BeginReload()
	return s
}

// Snapshot returns the newest snapshot, nil before the first Apply.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// HasCredential reports whether a provider in the newest snapshot has the credential.
func (s *Store) HasCredential(id string) bool { return s.CredentialProvider(id) != "" }

// CredentialProvider returns the id of the provider in the newest snapshot that has the credential; empty if none has.
func (s *Store) CredentialProvider(id string) string {
	current := s.current.Load()
	if current == nil {
		return ""
	}
	for _, p := range current.providers {
		if slices.ContainsFunc(p.Credentials, func(c Credential) bool { return c.ID == id }) {
			return p.ID
		}
	}
	return ""
}

// Resets returns how often each route was reset, by route id; routes that never were are left out.
func (s *Snapshot) Resets() map[string]int64 {
	resets := map[string]int64{}
	for _, m := range s.sorted {
		for _, of := range m.Routes {
			for _, r := range of {
				if r.Resets != 0 {
					resets[r.ID] = r.Resets
				}
			}
		}
	}
	return resets
}

// HasRoute reports whether a model in the newest snapshot has the route.
func (s *Store) HasRoute(id string) bool {
	current := s.current.Load()
	if current == nil {
		return false
	}
	for _, m := range current.sorted {
		for _, of := range m.Routes {
			if slices.ContainsFunc(of, func(r *Route) bool { return r.ID == id }) {
				return true
			}
		}
	}
	return false
}

// Rev returns the revision of the newest snapshot, zero before the first.
func (s *Store) Rev() int64 {
	if snapshot := s.current.Load(); snapshot != nil {
		return snapshot.Rev
	}
	return 0
}

// AppliedAt returns when the newest snapshot was built.
func (s *Store) AppliedAt() time.Time { return time.Unix(0, s.appliedAt.Load()) }

// Ready returns an error before the first Apply. An empty catalog is ready, too: a new installation has none yet.
func (s *Store) Ready() error {
	if s.Snapshot() == nil {
		return errors.New("catalog: not loaded yet")
	}
	return nil
}

// BeginReload drops all entries before a new load. The current snapshot stays until Apply.
func (s *Store) BeginReload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = map[string]map[string][]byte{}
}

// Set sets one entry; a nil value deletes it.
func (s *Store) Set(kind, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		delete(s.entries[kind], name)
		return
	}
	if s.entries[kind] == nil {
		s.entries[kind] = map[string][]byte{}
	}
	s.entries[kind][name] = slices.Clone(value)
}

// Apply builds a snapshot of all entries. The error lists the invalid entries, which are left out. Apply does nothing
// before the first head entry has come.
func (s *Store) Apply() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var head catalogkv.Head
	raw, ok := s.entries[subject.CatalogHead][""]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("catalog: decode head: %w", err)
	}

	b := builder{fleet: s.fleet, snapshot: &Snapshot{
		Rev:       head.Rev,
		models:    map[string]*Model{},
		providers: map[string]*Provider{},
		routes:    map[string]*Route{},
		grants:    map[string]map[string]bool{},
	}}
	b.build(s.entries)
	s.current.Store(b.snapshot)
	s.appliedAt.Store(time.Now().UnixNano())

	return errors.Join(b.rejected...)
}

// builder builds one snapshot.
type builder struct {
	fleet    seal.Keys
	snapshot *Snapshot
	rejected []error
}

func (b *builder) reject(kind, name string, err error) {
	b.rejected = append(b.rejected, fmt.Errorf("catalog: %s %s: %w", kind, name, err))
}

func (b *builder) build(entries map[string]map[string][]byte) {
	decodeEach(b, entries, subject.KindSettings, func(_ string, s *catalogkv.Settings) { b.snapshot.Settings = *s })
	decodeEach(b, entries, subject.KindProvider, func(_ string, p *catalogkv.Provider) { b.snapshot.providers[p.ID] = b.provider(p) })
	decodeEach(b, entries, subject.KindModel, func(_ string, m *catalogkv.Model) { b.snapshot.models[m.ID] = b.model(m) })
	decodeEach(b, entries, subject.KindGrant, func(_ string, g *catalogkv.Grant) {
		b.snapshot.grants[g.AccountID] = map[string]bool{}
		for _, m := range g.Models {
			b.snapshot.grants[g.AccountID][m] = true
		}
	})
	b.snapshot.sorted = slices.SortedFunc(maps.Values(b.snapshot.models), func(x, y *Model) int { return strings.Compare(x.ID, y.ID) })
}

func decodeEach[T any](b *builder, entries map[string]map[string][]byte, kind string, take func(name string, v *T)) {
	for _, name := range slices.Sorted(maps.Keys(entries[kind])) {
		v := new(T)
		if err := json.Unmarshal(entries[kind][name], v); err != nil {
			b.reject(kind, name, err)
			continue
		}
		take(name, v)
	}
}

func (b *builder) provider(p *catalogkv.Provider) *Provider {
	opened := &Provider{Provider: *p}
	for _, c := range p.Credentials {
		text, err := b.fleet.Open(c.Sealed, catalogkv.CredentialContext(c.ID))
		if err != nil {
			b.reject("credential", c.ID, err)
			continue
		}
		kind := c.Kind
		if kind == catalogkv.SecretCredential {
			kind = ""
		}
		further, err := b.secrets(&c)
		if err != nil {
			b.reject("credential", c.ID, err)
			continue
		}
		opened.Credentials = append(opened.Credentials, Credential{
			ID:      c.ID,
			Name:    c.Name,
			Kind:    kind,
			text:    string(text),
			secrets: further,
		})
	}

	if p.CA != "" {
		opened.Roots, opened.RootsID = x509.NewCertPool(), fingerprint(p.CA)
		if !opened.Roots.AppendCertsFromPEM([]byte(p.CA)) {
			b.reject("provider", p.ID, errors.New("ca has no certificate"))
		}
	}
	opened.Provider.Credentials = nil
	return opened
}

// secrets opens the further secrets of a credential.
func (b *builder) secrets(c *catalogkv.Credential) (*secrets, error) {
	if len(c.SealedSecrets) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	text, err := b.fleet.Open(c.SealedSecrets, catalogkv.SecretsContext(c.ID))
	if err != nil {
		return nil, fmt.Errorf("open the further secrets: %w", err)
	}
	var read catalogkv.Secrets
	if json.Unmarshal(text, &read) != nil {
		return nil, errors.New("the further secrets cannot be read") // the cause could show a part of them
	}

	opened := &secrets{headers: read.Headers}
	if read.Certificate != "" {
		certificate, err := tls.X509KeyPair([]byte(read.Certificate), []byte(read.PrivateKey))
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		opened.certificate, opened.certificateID = &certificate, fingerprint(read.Certificate+read.PrivateKey)
		opened.certificateExpiry = certfile.FirstExpiry(read.Certificate)
	}
	return opened, nil
}

// fingerprint returns a text that differs for different texts and does not reveal them.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return string(sum[:])
}

func (b *builder) model(m *catalogkv.Model) *Model {
	model := &Model{Model: *m, Routes: map[catalogkv.Format][]*Route{}, supported: map[catalogkv.Format]bool{}}
	for _, r := range m.Routes {
		for _, f := range r.Formats {
			model.supported[f] = true
		}
		p := b.snapshot.providers[r.Provider]
		if p == nil {
			b.reject("model", m.ID, fmt.Errorf("route %s: there is no provider %s", r.ID, r.Provider))
			continue
		}
		route := NewRoute(r, p)
		b.snapshot.routes[r.ID] = route
		if !r.Enabled || !p.Enabled || len(p.Credentials) == 0 {
			continue
		}
		for _, f := range r.Formats {
			model.Routes[f] = append(model.Routes[f], route)
		}
	}

	return model
}
