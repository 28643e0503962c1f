package catalog

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/certfile"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// Action is the kind of a change.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Remove Action = "remove"
	// Reset closes the circuit breaker of a route.
	Reset Action = "reset"
)

// Change is one difference between the catalog and a document, for display. Before and After never
// contain a secret.
type Change struct {
	Action Action `json:"action"`
	// Kind is "settings", "provider", "credential", "model", "price", "route", "provider_price", "grant" or
	// "maintenance".
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	// Reach describes who is affected; only a dry run computes it.
	Reach *Reach `json:"-"`
	// Calls are the addresses that the change of a provider or route changes; only a dry run computes them.
	Calls []Call `json:"-"`
}

// Plan is what the Store has to write, in the order of the members; removals are written in
// reverse order.
type Plan struct {
	Changes  []Change
	Settings *catalogkv.Settings
	// Providers are replaced; Credentials are only added and removed.
	Providers         []catalogkv.Provider
	RemoveProviders   []string
	Credentials       []NewCredential
	RemoveCredentials []string
	// EnableCredentials enables or disables credentials, by id.
	EnableCredentials map[string]bool
	Models            []catalogkv.Model
	RemoveModels      []string
	Prices            []NewPrice
	Schedule          []NewScheduled
	Unschedule        []PriceID
	Routes            []ModelRoute
	ProviderPrices    []NewProviderPrice
	RemoveRoutes      []string
	// Grants are the new models of all accounts whose grants change.
	Grants map[account.ID][]string
}

// NewCredential is a credential to be added.
type NewCredential struct {
	ID       string
	Provider string
	Name     string
	Kind     catalogkv.CredentialKind
	Sealed   vault.Sealed
	Enabled  bool
	// CertificateExpires is when the first of its client certificates expires; zero if it has none.
	CertificateExpires time.Time
}

// NewPrice is a new price version of a model.
type NewPrice struct {
	Model string
	Sheet price.Sheet
}

// NewProviderPrice is a new version of the provider's price of a route. Without a Sheet, the price is unknown from then on.
type NewProviderPrice struct {
	Route string
	Sheet *price.Sheet
}

// NewScheduled is a new scheduled price of a model.
type NewScheduled struct {
	Model string
	Scheduled
}

// ModelRoute is a route with its model.
type ModelRoute struct {
	Model string
	Route catalogkv.Route
}

func (p *Plan) note(action Action, kind, id string, before, after any) {
	p.Changes = append(p.Changes, Change{
		Action: action,
		Kind:   kind,
		ID:     id,
		Before: before,
		After:  after,
	})
}

// plan compares the catalog with a document. The error is validation.Errors, or that a stored
// credential cannot be decrypted.
func (s *Service) plan(state *State, t *target) (*Plan, error) {
	p := &Plan{Grants: map[account.ID][]string{}}
	var invalid validation.Errors
	if current := state.Currency(); state.Booked && current != t.settings.Currency {
		invalid.Add("currency", "cannot be changed from %s, because money was booked in it", current)
	}

	p.settings(state, t)
	for _, id := range slices.Sorted(maps.Keys(t.providers)) {
		if err := s.planProvider(p, state, t.providers[id], &invalid); err != nil {
			return nil, err
		}
	}

	sheets := map[string]price.Sheet{}
	for id := range state.Models {
		maps.Copy(sheets, state.Models[id].ProviderSheets)
	}

	for _, id := range slices.Sorted(maps.Keys(t.models)) {
		p.model(state, t.models[id], sheets)
	}

	p.removals(state, t, sheets)
	p.grants(state, t)
	return p, invalid.Err()
}

func (p *Plan) settings(state *State, t *target) {
	after := t.settings
	after.Maintenance = state.Settings.Maintenance // documents do not contain maintenance
	if same(state.Settings, after) {
		return
	}
	p.Settings = &after
	p.note(Update, "settings", "settings", settingsView(state.Settings), settingsView(after))
}

func (s *Service) planProvider(p *Plan, state *State, t targetProvider, invalid *validation.Errors) error {
	before, known := state.Providers[t.spec.ID]
	spec := t.spec
	spec.Maintenance = before.Spec.Maintenance
	if s.cfg.RequireHTTPS && spec.BaseURL != before.Spec.BaseURL && !strings.HasPrefix(spec.BaseURL, "https://") {
		invalid.Add(validation.Member(t.path, "base_url"), "must be an https address, unless the setting catalog.require_https is false")
	}

	switch {
	case !known:
		p.Providers = append(p.Providers, spec)
		p.note(Create, "provider", spec.ID, nil, providerView(spec))
	case !same(before.Spec, spec):
		p.Providers = append(p.Providers, spec)
		p.note(Update, "provider", spec.ID, providerView(before.Spec), providerView(spec))
	}

	for _, name := range slices.Sorted(maps.Keys(t.secrets)) {
		if err := s.planCredential(p, before, t, name, invalid); err != nil {
			return err
		}
	}

	for _, name := range slices.Sorted(maps.Keys(before.Credentials)) {
		if _, stays := t.secrets[name]; !stays {
			p.RemoveCredentials = append(p.RemoveCredentials, before.Credentials[name].ID)
			p.note(Remove, "credential", spec.ID+"/"+name, nil, nil)
		}
	}

	return nil
}

func (s *Service) planCredential(p *Plan, before Provider, t targetProvider, name string, invalid *validation.Errors) error {
	wanted := t.secrets[name]
	stored, known := before.Credentials[name]
	known = known && omitSecret(stored.Kind) == omitSecret(wanted.kind) // one of another kind is another credential
	action := Create
	if stored.ID != "" {
		action = Update
	}
	if !known && !wanted.given() && wanted.kind != catalogkv.SecretCredential {
		wanted.secret = catalogkv.EncodeParameters(nil) // the identity of the proxy needs no parameters
		checkParameters(wanted.path, wanted.kind, nil, invalid)
	}
	switch {
	case !known && !wanted.given():
		invalid.Add(wanted.member(), "is required, because no secret is stored under this name")
		return nil
	case !wanted.given() && exposing(&before.Spec, &t.spec) != "":
		// Otherwise the change would send the stored secret, which nobody can read, to a server of the caller's choice.
		invalid.Add(wanted.member(), "is required, because %s", exposing(&before.Spec, &t.spec))
		return nil
	case !wanted.given():
		p.enableCredential(t.spec.ID+"/"+name, &stored, wanted.enabled)
		return nil
	case known:
		secret, err := s.cfg.Vault.Open(stored.Sealed, catalogkv.CredentialContext(stored.ID))
		if err != nil {
			return fmt.Errorf("catalog: compare credential %s: %w", stored.ID, err)
		}
		if subtle.ConstantTimeCompare(secret, wanted.stored()) == 1 {
			p.enableCredential(t.spec.ID+"/"+name, &stored, wanted.enabled)
			return nil
		}
	}
	if stored.ID != "" {
		p.RemoveCredentials = append(p.RemoveCredentials, stored.ID)
	}

	id := ident.Credential.New()
	p.Credentials = append(p.Credentials, NewCredential{
		ID:       id,
		Provider: t.spec.ID,
		Name:     name,
		Kind:     wanted.kind,
		Enabled:  wanted.enabled,
		Sealed:   s.cfg.Vault.Seal(wanted.stored(), catalogkv.CredentialContext(id)),

		CertificateExpires: certfile.FirstExpiry(wanted.further.Certificate),
	})
	p.note(action, "credential", t.spec.ID+"/"+name, nil, nil)

	return nil
}

// sameOrigin reports whether two addresses have the same scheme, host and port.
func sameOrigin(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Hostname(), y.Hostname()) && port(x) == port(y)
}

// port returns the port of an address; that of its scheme if it names none.
func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// enableCredential enables or disables a stored credential.
func (p *Plan) enableCredential(name string, stored *Credential, enabled bool) {
	if stored.Disabled != enabled {
		return
	}
	if p.EnableCredentials == nil {
		p.EnableCredentials = map[string]bool{}
	}
	p.EnableCredentials[stored.ID] = enabled
	type view struct {
		Enabled bool `json:"enabled"`
	}
	p.note(Update, "credential", name, view{!stored.Disabled}, view{enabled})
}

// model changes a model and its routes. sheets are the prices of the providers in force, by the id of the route.
func (p *Plan) model(state *State, t targetModel, sheets map[string]price.Sheet) {
	before, known := state.Models[t.spec.ID]
	spec := t.spec
	spec.Maintenance = before.Spec.Maintenance
	switch {
	case !known:
		p.Models = append(p.Models, spec)
		p.note(Create, "model", spec.ID, nil, modelView(spec))
	case !same(before.Spec, spec):
		p.Models = append(p.Models, spec)
		p.note(Update, "model", spec.ID, modelView(before.Spec), modelView(spec))
	}

	unnumbered := before.Sheet
	unnumbered.Version = 0
	if !same(unnumbered, t.sheet) {
		p.Prices = append(p.Prices, NewPrice{spec.ID, t.sheet})
		if known {
			p.note(Update, "price", spec.ID, priceEntry(&unnumbered), priceEntry(&t.sheet))
		} else {
			p.note(Create, "price", spec.ID, nil, priceEntry(&t.sheet))
		}
	}

	for _, id := range slices.Sorted(maps.Keys(t.routes)) {
		after := t.routes[id]
		route, known := before.Routes[id]
		after.Resets = route.Resets // documents do not contain resets
		switch {
		case !known:
			p.Routes = append(p.Routes, ModelRoute{spec.ID, after})
			p.note(Create, "route", id, nil, routeView(after))
		case !same(route, after):
			p.Routes = append(p.Routes, ModelRoute{spec.ID, after})
			p.note(Update, "route", id, routeView(route), routeView(after))
		}
		p.providerPrice(id, sheets, t.providerSheets)
	}
}

// providerPrice replaces the price of a route's provider, if it differs. The route may have been one of another model.
func (p *Plan) providerPrice(route string, before, after map[string]price.Sheet) {
	old, had := before[route]
	sheet, has := after[route]
	old.Version = 0
	switch {
	case !has && had:
		p.ProviderPrices = append(p.ProviderPrices, NewProviderPrice{Route: route})
		p.note(Remove, providerPriceKind, route, priceEntry(&old), nil)
	case has && !had:
		p.ProviderPrices = append(p.ProviderPrices, NewProviderPrice{route, &sheet})
		p.note(Create, providerPriceKind, route, nil, priceEntry(&sheet))
	case has && !same(old, sheet):
		p.ProviderPrices = append(p.ProviderPrices, NewProviderPrice{route, &sheet})
		p.note(Update, providerPriceKind, route, priceEntry(&old), priceEntry(&sheet))
	}
}

// removals removes the objects that the document does not name.
func (p *Plan) removals(state *State, t *target, sheets map[string]price.Sheet) {
	kept := map[string]bool{}
	for _, m := range t.models {
		for id := range m.routes {
			kept[id] = true
		}
	}

	for _, model := range slices.Sorted(maps.Keys(state.Models)) {
		before := state.Models[model]
		for _, id := range slices.Sorted(maps.Keys(before.Routes)) {
			if !kept[id] {
				p.RemoveRoutes = append(p.RemoveRoutes, id)
				p.note(Remove, "route", id, routeView(before.Routes[id]), nil)
				p.providerPrice(id, sheets, nil)
			}
		}
		if _, stays := t.models[model]; !stays {
			p.RemoveModels = append(p.RemoveModels, model)
			p.note(Remove, "model", model, modelView(before.Spec), nil)
		}
	}

	for _, id := range slices.Sorted(maps.Keys(state.Providers)) {
		if _, stays := t.providers[id]; !stays {
			p.RemoveProviders = append(p.RemoveProviders, id)
			p.note(Remove, "provider", id, providerView(state.Providers[id].Spec), nil)
		}
	}
}

// grants applies the grants of the document. If it has none, only grants of removed models are
// removed.
func (p *Plan) grants(state *State, t *target) {
	after := t.grants
	if after == nil {
		after = map[account.ID][]string{}
		for id, models := range state.Grants {
			after[id] = slices.DeleteFunc(slices.Clone(models), func(m string) bool {
				_, stays := t.models[m]
				return !stays
			})
		}
	}

	all := maps.Clone(after)
	maps.Copy(all, state.Grants)
	ids := slices.Collect(maps.Keys(all))
	slices.SortFunc(ids, func(a, b account.ID) int { return bytes.Compare(a[:], b[:]) })

	for _, id := range ids {
		p.grant(id, state.Grants[id], after[id])
	}
}

// grant replaces the models of one account, if they differ.
func (p *Plan) grant(id account.ID, before, after []string) {
	if slices.Equal(before, after) {
		return
	}
	p.Grants[id] = after
	switch {
	case len(before) == 0:
		p.note(Create, "grant", id.String(), nil, after)
	case len(after) == 0:
		p.note(Remove, "grant", id.String(), before, nil)
	default:
		p.note(Update, "grant", id.String(), before, after)
	}
}

// same compares two values by their stored JSON form, because the database preserves neither the
// order of members nor the difference between nil and empty.
func same(a, b any) bool { return reflect.DeepEqual(canonical(a), canonical(b)) }

func canonical(v any) any {
	text, err := json.Marshal(v)
	if err != nil { // the types of the catalog always marshal
		panic(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		panic(err)
	}
	return plain
}
