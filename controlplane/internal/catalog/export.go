package catalog

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/catalogkv"
)

// document returns the state as a Document, sorted, without secrets.
func (s *State) document() *Document {
	d := &Document{
		Currency: s.Settings.Currency,
		Settings: SettingsDocument{ImageInputTokens: s.Settings.ImageInputTokens},
		Grants:   []GrantEntry{},
	}

	for _, id := range slices.Sorted(maps.Keys(s.Providers)) {
		d.Providers = append(d.Providers, exportProvider(s.Providers[id]))
	}

	for _, id := range slices.Sorted(maps.Keys(s.Models)) {
		d.Models = append(d.Models, exportModel(s.Models[id]))
	}

	ids := slices.SortedFunc(maps.Keys(s.Grants), func(a, b account.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		d.Grants = append(d.Grants, GrantEntry{AccountID: id, Models: s.Grants[id]})
	}

	return d
}

func exportProvider(p Provider) ProviderEntry {
	e := ProviderEntry{
		ID:                p.Spec.ID,
		Name:              p.Spec.Name,
		Kind:              p.Spec.Kind,
		BaseURL:           p.Spec.BaseURL,
		Addresses:         p.Spec.Addresses,
		Enabled:           omitTrue(p.Spec.Enabled),
		Auth:              p.Spec.Auth,
		AnthropicVersion:  p.Spec.AnthropicVersion,
		Headers:           p.Spec.Headers,
		ConnectTimeout:    fromMS(p.Spec.ConnectTimeoutMS),
		FirstByteTimeout:  fromMS(p.Spec.FirstByteTimeoutMS),
		IdleTimeout:       fromMS(p.Spec.IdleTimeoutMS),
		TotalTimeout:      fromMS(p.Spec.TotalTimeoutMS),
		KeepsBilling:      p.Spec.KeepsBilling,
		RecognisesRepeats: p.Spec.RecognisesRepeats,
		WantsUser:         p.Spec.WantsUser,
		HTTP2:             p.Spec.HTTP2,
		CA:                p.Spec.CA,
		Proxy:             p.Spec.Proxy,
	}

	for _, name := range slices.Sorted(maps.Keys(p.Credentials)) {
		c := p.Credentials[name]
		e.Credentials = append(e.Credentials, CredentialEntry{Name: name, Kind: omitSecret(c.Kind), Enabled: omitTrue(!c.Disabled)})
	}

	return e
}

func exportModel(m Model) ModelEntry {
	e := ModelEntry{
		ID:                  m.Spec.ID,
		Type:                m.Spec.Type,
		DisplayName:         m.Spec.DisplayName,
		OwnedBy:             m.Spec.OwnedBy,
		ContextWindow:       m.Spec.ContextWindow,
		MaxOutputTokens:     m.Spec.MaxOutputTokens,
		ReserveOutputTokens: m.Spec.ReserveOutputTokens,
		DefaultSeconds:      m.Spec.DefaultSeconds,
		Enabled:             omitTrue(m.Spec.Enabled),
		Public:              omitTrue(m.Spec.Public),
		Price:               priceEntry(&m.Sheet),
		Params:              m.Spec.Params,
	}

	for _, id := range slices.Sorted(maps.Keys(m.Routes)) {
		route := routeView(m.Routes[id])
		if sheet, known := m.ProviderSheets[id]; known {
			price := priceEntry(&sheet)
			route.ProviderPrice = &price
		}
		e.Routes = append(e.Routes, route)
	}

	slices.SortStableFunc(e.Routes, func(a, b RouteEntry) int {
		if a.Priority != b.Priority {
			return a.Priority - b.Priority
		}
		return strings.Compare(a.Provider+"\x00"+a.UpstreamModel, b.Provider+"\x00"+b.UpstreamModel)
	})

	return e
}

// routeView returns a route without the provider's price, whose changes are shown on their own.
func routeView(r catalogkv.Route) RouteEntry {
	return RouteEntry{
		ID:            r.ID,
		Provider:      r.Provider,
		UpstreamModel: r.UpstreamModel,
		Formats:       r.Formats,
		Addresses:     r.Addresses,
		Priority:      r.Priority,
		Weight:        r.Weight,
		FirstToken:    fromMS(r.FirstTokenTimeoutMS),
		Enabled:       omitTrue(r.Enabled),
		Params:        r.Params,
	}
}

// The views are the parts of a document that a Change shows.

func providerView(spec catalogkv.Provider) ProviderEntry { return exportProvider(Provider{Spec: spec}) }

func modelView(spec catalogkv.Model) ModelEntry { return exportModel(Model{Spec: spec}) }

func settingsView(s catalogkv.Settings) any { return settingsEntry(s) }

// omitTrue omits a value that is true by default.
func omitTrue(b bool) *bool {
	if b {
		return nil
	}
	return &b
}

func fromMS(ms int64) Duration { return Duration(time.Duration(ms) * time.Millisecond) }
