package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/subject"
)

// entries returns the published entries that differ between two states, without the head.
func (s *Service) entries(before, after *State) ([]Entry, error) {
	d := entryDiff{}
	if !same(before.Settings, after.Settings) {
		d.put(subject.KindSettings, subject.KindSettings, after.Settings)
	}

	for _, id := range keysOf(before.Providers, after.Providers) {
		if p, stays := after.Providers[id]; !stays {
			d.remove(subject.KindProvider, id)
		} else if !samePublished(before.Providers[id], p) {
			entry, err := s.providerEntry(p)
			if err != nil {
				return nil, err
			}
			d.put(subject.KindProvider, id, entry)
		}
	}

	for _, id := range keysOf(before.Models, after.Models) {
		if m, stays := after.Models[id]; !stays {
			d.remove(subject.KindModel, id)
		} else if old, known := before.Models[id]; !known || !same(modelEntry(old), modelEntry(m)) {
			d.put(subject.KindModel, id, modelEntry(m))
		}
	}

	for id := range after.Grants {
		if !slices.Equal(before.Grants[id], after.Grants[id]) {
			d.put(subject.KindGrant, id.String(), catalogkv.Grant{AccountID: id.String(), Models: after.Grants[id]})
		}
	}

	for id := range before.Grants {
		if _, stays := after.Grants[id]; !stays {
			d.remove(subject.KindGrant, id.String())
		}
	}

	return d.entries, d.err
}

// entryDiff collects entries.
type entryDiff struct {
	entries []Entry
	err     error
}

func (d *entryDiff) put(kind, name string, value any) {
	payload, err := json.Marshal(value)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("catalog: encode %s %s: %w", kind, name, err)
	}
	d.entries = append(d.entries, Entry{subject.CatalogKey(kind, name), payload})
}

func (d *entryDiff) remove(kind, name string) {
	d.entries = append(d.entries, Entry{Subject: subject.CatalogKey(kind, name)})
}

func keysOf[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// samePublished reports whether the published entries of two providers are equal. The secret of a
// credential id never changes.
func samePublished(a, b Provider) bool {
	ids := func(p Provider) []string {
		var ids []string
		for _, c := range p.Credentials {
			if !c.Disabled {
				ids = append(ids, c.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	return same(a.Spec, b.Spec) && slices.Equal(ids(a), ids(b))
}

// omitSecret leaves out the usual kind.
func omitSecret(kind catalogkv.CredentialKind) catalogkv.CredentialKind {
	if kind == catalogkv.SecretCredential {
		return ""
	}
	return kind
}

// providerEntry returns the published entry, with the credentials encrypted for the proxies.
func (s *Service) providerEntry(p Provider) (catalogkv.Provider, error) {
	entry := p.Spec
	entry.Credentials, entry.FleetKey = []catalogkv.Credential{}, s.cfg.FleetFingerprint
	for _, name := range slices.Sorted(maps.Keys(p.Credentials)) {
		c := p.Credentials[name]
		if c.Disabled {
			continue
		}
		context := catalogkv.CredentialContext(c.ID)
		secret, err := s.cfg.Vault.Open(c.Sealed, context)
		if err != nil {
			return catalogkv.Provider{}, fmt.Errorf("catalog: publish provider %s: %w", entry.ID, err)
		}
		published := catalogkv.Credential{ID: c.ID, Name: name, Kind: omitSecret(c.Kind)}
		text, further := splitStored(secret)
		published.Sealed = s.cfg.Fleet.Seal(text, context)
		if further != nil {
			published.SealedSecrets = s.cfg.Fleet.Seal(further, catalogkv.SecretsContext(c.ID))
		}
		entry.Credentials = append(entry.Credentials, published)
	}
	return entry, nil
}

func modelEntry(m Model) catalogkv.Model {
	entry := m.Spec
	entry.CreatedUnix = m.CreatedAt.Unix()
	// The current price has no start time: a proxy whose clock is behind must find a price, too.
	entry.Prices = []catalogkv.ScheduledPrice{{Sheet: m.Sheet}}
	entry.Routes = []catalogkv.Route{}
	for _, id := range slices.Sorted(maps.Keys(m.Routes)) {
		entry.Routes = append(entry.Routes, m.Routes[id])
	}
	return entry
}
