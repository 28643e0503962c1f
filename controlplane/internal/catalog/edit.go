package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// The errors of single parts of the catalog.
var (
	ErrCredentialNotFound = errors.New("catalog: no such credential")
	ErrRouteNotFound      = errors.New("catalog: no such route")
	// ErrInUse is returned for a removal of what something else refers to.
	ErrInUse = errors.New("catalog: something else refers to it")
)

// Part leads to one entry of a Document. An entry is changed by changing the
// document that the catalog is, so that there is one set of rules.
type Part[E any] struct {
	// list finds the list that holds the entry, and its path in the document.
	list func(*Document) (entries *[]E, path string, err error)
	id   string
	idOf func(*E) *string
	// keep takes over from the old entry what a replacement leaves out.
	keep    func(entry, old *E)
	missing error
}

// ProviderPart is a provider. One that is replaced keeps its credentials if
// the new entry has none.
func ProviderPart(id string) Part[ProviderEntry] {
	return Part[ProviderEntry]{
		list: func(d *Document) (*[]ProviderEntry, string, error) { return &d.Providers, "providers", nil },
		id:   id, idOf: func(e *ProviderEntry) *string { return &e.ID }, missing: ErrProviderNotFound,
		keep: func(entry, old *ProviderEntry) {
			if entry.Credentials == nil {
				entry.Credentials = old.Credentials
			}
		},
	}
}

// ModelPart is a model. One that is replaced keeps its routes if the new entry
// has none.
func ModelPart(id string) Part[ModelEntry] {
	return Part[ModelEntry]{
		list: func(d *Document) (*[]ModelEntry, string, error) { return &d.Models, "models", nil },
		id:   id, idOf: func(e *ModelEntry) *string { return &e.ID }, missing: ErrModelNotFound,
		keep: func(entry, old *ModelEntry) {
			if entry.Routes == nil {
				entry.Routes = old.Routes
			}
		},
	}
}

// CredentialPart is a credential of a provider, by its name.
func CredentialPart(provider, name string) Part[CredentialEntry] {
	return Part[CredentialEntry]{
		list: func(d *Document) (*[]CredentialEntry, string, error) {
			for i := range d.Providers {
				if d.Providers[i].ID == provider {
					return &d.Providers[i].Credentials, validation.Index("providers", i) + ".credentials", nil
				}
			}
			return nil, "", ErrProviderNotFound
		},
		id: name, idOf: func(e *CredentialEntry) *string { return &e.Name }, missing: ErrCredentialNotFound,
		keep: func(_, _ *CredentialEntry) {},
	}
}

// RoutePart is a route of a model.
func RoutePart(model, id string) Part[RouteEntry] {
	return Part[RouteEntry]{
		list: func(d *Document) (*[]RouteEntry, string, error) {
			for i := range d.Models {
				if d.Models[i].ID == model {
					return &d.Models[i].Routes, validation.Index("models", i) + ".routes", nil
				}
			}
			return nil, "", ErrModelNotFound
		},
		id: id, idOf: func(e *RouteEntry) *string { return &e.ID }, missing: ErrRouteNotFound,
		keep: func(_, _ *RouteEntry) {},
	}
}

// find returns the place of the entry in its list, -1 if there is none.
func (p *Part[E]) find(d *Document) (entries *[]E, at int, path string, err error) {
	entries, path, err = p.list(d)
	if err != nil {
		return nil, 0, "", err
	}
	for i := range *entries {
		if *p.idOf(&(*entries)[i]) == p.id {
			return entries, i, path, nil
		}
	}
	return entries, -1, path, nil
}

// List returns the entries of the list that a part is in.
func List[E any](ctx context.Context, s *Service, p Part[E]) ([]E, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	entries, _, err := p.list(state.parts())
	if err != nil {
		return nil, err
	}
	return append([]E{}, *entries...), nil
}

// Get returns one entry, without secrets, and its tag.
func Get[E any](ctx context.Context, s *Service, p Part[E]) (entry E, tag etag.Tag, err error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return entry, "", err
	}
	return p.view(state)
}

func (p *Part[E]) view(state *State) (entry E, tag etag.Tag, err error) {
	entries, at, _, err := p.find(state.parts())
	switch {
	case err != nil:
		return entry, "", err
	case at < 0:
		return entry, "", p.missing
	}
	tag, err = etag.OfContent((*entries)[at])
	return (*entries)[at], tag, err
}

// Put makes or replaces one entry and returns it as it is now.
func Put[E any](ctx context.Context, s *Service, p Part[E], entry E, match etag.Match) (now E, tag etag.Tag, created bool, err error) {
	if *p.idOf(&entry) != p.id {
		return now, "", false, errOtherID
	}
	now, tag, err = p.change(ctx, s, match, func(old *E) (*E, error) {
		replacing := entry // a copy: asked again, it is to keep what the entry has by then
		if created = old == nil; !created {
			p.keep(&replacing, old)
		}
		return &replacing, nil
	})
	return now, tag, created, err
}

// Patch changes members of one entry by a JSON merge patch and returns it as
// it is now.
func Patch[E any](ctx context.Context, s *Service, p Part[E], patch json.RawMessage, match etag.Match) (now E, tag etag.Tag, err error) {
	return p.change(ctx, s, match, func(old *E) (*E, error) {
		if old == nil {
			return nil, p.missing
		}
		entry, err := merge(*old, patch)
		if err == nil && *p.idOf(&entry) != p.id {
			err = errOtherID
		}
		return &entry, err
	})
}

// Delete removes one entry, or returns ErrInUse if another one refers to it.
func Delete[E any](ctx context.Context, s *Service, p Part[E], match etag.Match) error {
	_, _, err := p.change(ctx, s, match, func(old *E) (*E, error) {
		if old == nil {
			return nil, p.missing
		}
		return nil, nil //nolint:nilnil // no entry is what is wanted
	})
	if _, refused := validation.As(err); refused {
		return fmt.Errorf("%w: %w", ErrInUse, errors.New(err.Error()))
	}
	return err
}

var errOtherID = validation.New("", "must have the id that the path names")

// change asks decide for the entry that is to stand in the place of the old
// one, nil for none, and applies the document with it.
func (p *Part[E]) change(ctx context.Context, s *Service, match etag.Match, decide func(old *E) (*E, error)) (now E, tag etag.Tag, err error) {
	removed := false
	after, err := s.edit(ctx, func(state *State, d *Document) (string, error) {
		entries, at, path, err := p.find(d)
		if err != nil {
			return "", err
		}
		old, err := p.matched(state, entries, at, match)
		if err != nil {
			return "", err
		}
		entry, err := decide(old)
		switch {
		case err != nil:
			return "", err
		case entry == nil:
			removed = true
			*entries = append((*entries)[:at], (*entries)[at+1:]...)
			return path, nil
		case old == nil:
			*entries = append(*entries, *entry)
			at = len(*entries) - 1
		default:
			(*entries)[at] = *entry
		}
		return validation.Index(path, at), nil
	})
	if err != nil || removed {
		return now, "", err
	}
	return p.view(after)
}

// matched returns a copy of the old entry, nil if there is none, if the
// condition of the change holds for it.
func (p *Part[E]) matched(state *State, entries *[]E, at int, match etag.Match) (*E, error) {
	if at < 0 {
		return nil, match.CheckAbsent()
	}
	_, tag, err := p.view(state)
	if err != nil {
		return nil, err
	}
	old := (*entries)[at]
	return &old, match.Check(tag)
}

// edit changes the document that the catalog is, and applies it. Change
// returns the path of what it changed: faults are told relative to it.
func (s *Service) edit(ctx context.Context, change func(*State, *Document) (part string, err error)) (after *State, err error) {
	_, err = s.cfg.Store.Apply(ctx, func(state *State) (*Plan, error) {
		after = state
		d := state.editable()
		part, err := change(state, d)
		if err != nil {
			return nil, err
		}
		target, err := d.target()
		if err != nil {
			return nil, relative(err, part)
		}
		plan, err := s.plan(state, target)
		return plan, relative(err, part)
	}, func(before, now *State) ([]Entry, error) {
		after = now
		return s.entries(before, now)
	})
	return after, err
}

// editable is the document of the state, to be changed and applied again.
func (s *State) editable() *Document {
	d := s.document()
	d.Currency = s.Currency()
	d.Grants = nil // they stay, but for those on models that go
	return d
}

// parts is the document of the state for looking at single entries.
func (s *State) parts() *Document {
	d := s.document()
	for i := range d.Providers {
		p := &d.Providers[i]
		for j := range p.Credentials {
			p.Credentials[j].ID = s.Providers[p.ID].Credentials[p.Credentials[j].Name].ID
		}
	}
	return d
}

// relative tells the faults of a document from where a part of it is.
func relative(err error, part string) error {
	invalid, ok := validation.As(err)
	if !ok {
		return err
	}
	told := make(validation.Errors, len(invalid))
	for i, f := range invalid {
		if rest, under := strings.CutPrefix(f.Path, part); under && (rest == "" || strings.HasPrefix(rest, ".")) {
			f.Path = strings.TrimPrefix(rest, ".")
		}
		told[i] = f
	}
	return told
}

// merge applies a JSON merge patch (RFC 7396) to an entry.
func merge[E any](entry E, patch json.RawMessage) (E, error) {
	var merged E
	members, ok := plain(patch).(map[string]any)
	if !ok {
		return merged, validation.New("", "must be an object")
	}
	text, err := json.Marshal(mergeInto(canonical(entry), members))
	if err != nil {
		return merged, fmt.Errorf("catalog: merge: %w", err)
	}
	return merged, strict.JSON(text, &merged)
}

func mergeInto(old any, patch map[string]any) map[string]any {
	into, ok := old.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, name)
		case map[string]any:
			into[name] = mergeInto(into[name], v)
		default:
			into[name] = v
		}
	}
	return into
}

// plain decodes JSON, with numbers as they were written; nil if it is none.
func plain(text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// SettingsEntry is the settings of the whole system.
type SettingsEntry struct {
	Currency string `json:"currency"`
	SettingsDocument
}

// GetSettings returns the settings and their tag.
func (s *Service) GetSettings(ctx context.Context) (SettingsEntry, etag.Tag, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return SettingsEntry{}, "", err
	}
	return settingsOf(state)
}

func settingsOf(state *State) (SettingsEntry, etag.Tag, error) {
	entry := settingsEntry(state.Settings)
	entry.Currency = state.Currency()
	tag, err := etag.OfContent(entry)
	return entry, tag, err
}

// PutSettings replaces the settings and returns them.
func (s *Service) PutSettings(ctx context.Context, entry SettingsEntry, match etag.Match) (SettingsEntry, etag.Tag, error) {
	after, err := s.edit(ctx, func(state *State, d *Document) (string, error) {
		_, tag, err := settingsOf(state)
		if err == nil {
			err = match.Check(tag)
		}
		d.Currency, d.Settings = entry.Currency, entry.SettingsDocument
		return "settings", err
	})
	if err != nil {
		return SettingsEntry{}, "", err
	}
	return settingsOf(after)
}

func settingsEntry(s catalogkv.Settings) SettingsEntry {
	return SettingsEntry{s.Currency, SettingsDocument{ImageInputTokens: s.ImageInputTokens}}
}
