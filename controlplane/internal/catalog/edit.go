package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// The errors of operations on single entries.
var (
	ErrCredentialNotFound = errors.New("catalog: no such credential")
	ErrRouteNotFound      = errors.New("catalog: no such route")
	// ErrInUse is returned by Delete for an entry that another one refers to.
	ErrInUse = errors.New("catalog: something else refers to it")
)

// Part identifies one entry of a Document, such as a model. An entry is changed
// by changing the document that describes the catalog, so that the rules of
// documents hold for it.
type Part[E any] struct {
	// list returns the list that holds the entry, and its path in the document.
	list func(*Document) (entries *[]E, path string, err error)
	id   string
	idOf func(*E) *string
	// keepOmitted copies the lists that a replacement omits from the old entry.
	keepOmitted func(entry, old *E)
	missing     error
}

// ProviderPart identifies a provider. A replacement without credentials keeps
// those of the old entry.
func ProviderPart(id string) Part[ProviderEntry] {
	return Part[ProviderEntry]{
		list:    func(d *Document) (*[]ProviderEntry, string, error) { return &d.Providers, "providers", nil },
		id:      id,
		idOf:    func(e *ProviderEntry) *string { return &e.ID },
		missing: ErrProviderNotFound,
		keepOmitted: func(entry, old *ProviderEntry) {
			if entry.Credentials == nil {
				entry.Credentials = old.Credentials
			}
		},
	}
}

// ModelPart identifies a model. A replacement without routes keeps those of the
// old entry.
func ModelPart(id string) Part[ModelEntry] {
	return Part[ModelEntry]{
		list:    func(d *Document) (*[]ModelEntry, string, error) { return &d.Models, "models", nil },
		id:      id,
		idOf:    func(e *ModelEntry) *string { return &e.ID },
		missing: ErrModelNotFound,
		keepOmitted: func(entry, old *ModelEntry) {
			if entry.Routes == nil {
				entry.Routes = old.Routes
			}
		},
	}
}

// CredentialPart identifies a credential of a provider by its name.
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
		id:          name,
		idOf:        func(e *CredentialEntry) *string { return &e.Name },
		missing:     ErrCredentialNotFound,
		keepOmitted: func(_, _ *CredentialEntry) {},
	}
}

// RoutePart identifies a route of a model.
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
		id:          id,
		idOf:        func(e *RouteEntry) *string { return &e.ID },
		missing:     ErrRouteNotFound,
		keepOmitted: func(_, _ *RouteEntry) {},
	}
}

// entryPosition is the position of an entry in a document.
type entryPosition[E any] struct {
	doc     *Document
	entries *[]E
	// at is the entry's index; -1 if the document has no such entry.
	at int
	// path is the path of the list.
	path string
}

// find returns the position of the entry; ErrProviderNotFound or ErrModelNotFound
// if the document does not have the object that holds its list.
func (p *Part[E]) find(d *Document) (entryPosition[E], error) {
	entries, path, err := p.list(d)
	if err != nil {
		return entryPosition[E]{}, err
	}
	at := slices.IndexFunc(*entries, func(e E) bool { return *p.idOf(&e) == p.id })
	return entryPosition[E]{d, entries, at, path}, nil
}

// entry returns a copy of the entry, nil if there is none.
func (s *entryPosition[E]) entry() *E {
	if s.at < 0 {
		return nil
	}
	e := (*s.entries)[s.at]
	return &e
}

// put writes an entry at the position and returns its path.
func (s *entryPosition[E]) put(e E) string {
	if s.at < 0 {
		*s.entries = append(*s.entries, e)
		s.at = len(*s.entries) - 1
	} else {
		(*s.entries)[s.at] = e
	}
	return validation.Index(s.path, s.at)
}

// remove removes the entry and returns the path of its list.
func (s *entryPosition[E]) remove() string {
	*s.entries = slices.Delete(*s.entries, s.at, s.at+1)
	return s.path
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

// Edited is an entry after a change, without secrets.
type Edited[E any] struct {
	Entry E
	Tag   etag.Tag
	// Created reports that there was no such entry before.
	Created bool
	// Rev is the catalog revision that includes the change.
	Rev int64
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
	found, err := p.find(state.parts())
	if err != nil {
		return entry, "", err
	}
	e := found.entry()
	if e == nil {
		return entry, "", p.missing
	}
	tag, err = etag.OfContent(*e)
	return *e, tag, err
}

// Put creates or replaces one entry.
func Put[E any](ctx context.Context, s *Service, p Part[E], entry E, match etag.Match) (Edited[E], error) {
	if *p.idOf(&entry) != p.id {
		return Edited[E]{}, errOtherID
	}
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		found, err := p.read(state, match)
		if err != nil {
			return nil, err
		}
		replacement := entry // a copy: a second call keeps what the entry has by then
		if old := found.entry(); old != nil {
			p.keepOmitted(&replacement, old)
		}
		return s.planPart(state, found.doc, found.put(replacement))
	})
	return p.edited(applied, err)
}

// Patch changes members of one entry by a JSON merge patch (RFC 7396).
func Patch[E any](ctx context.Context, s *Service, p Part[E], patch json.RawMessage, match etag.Match) (Edited[E], error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		found, err := p.read(state, match)
		if err != nil {
			return nil, err
		}

		old := found.entry()
		if old == nil {
			return nil, p.missing
		}

		patched, err := merge(*old, patch)
		if err != nil {
			return nil, err
		}
		if *p.idOf(&patched) != p.id {
			return nil, errOtherID
		}

		return s.planPart(state, found.doc, found.put(patched))
	})
	return p.edited(applied, err)
}

// Delete removes one entry and returns the revision without it, or ErrInUse if
// another entry refers to it.
func Delete[E any](ctx context.Context, s *Service, p Part[E], match etag.Match) (rev int64, err error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		found, err := p.read(state, match)
		if err != nil {
			return nil, err
		}
		if found.at < 0 {
			return nil, p.missing
		}
		return s.planPart(state, found.doc, found.remove())
	})
	if _, invalid := validation.As(err); invalid {
		err = fmt.Errorf("%w: %w", ErrInUse, errors.New(err.Error()))
	}
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

var errOtherID = validation.New("", "must have the id that the path names")

// read returns the position of the entry in the document that describes the
// catalog, if the entry satisfies the condition of the change.
func (p *Part[E]) read(state *State, match etag.Match) (entryPosition[E], error) {
	found, err := p.find(state.editable())
	if err != nil {
		return entryPosition[E]{}, err
	}
	if found.at < 0 {
		return found, match.CheckAbsent()
	}
	_, tag, err := p.view(state)
	if err != nil {
		return entryPosition[E]{}, err
	}
	return found, match.Check(tag)
}

// edited returns the entry after a change.
func (p *Part[E]) edited(applied Applied, err error) (Edited[E], error) {
	if err != nil {
		return Edited[E]{}, err
	}
	_, _, err = p.view(applied.Before)
	created := errors.Is(err, p.missing)
	entry, tag, err := p.view(applied.After)
	return Edited[E]{entry, tag, created, applied.After.Rev}, err
}

// planPart plans the change of the catalog to a document that differs from it
// in one part. Field errors are reported relative to the part.
func (s *Service) planPart(state *State, d *Document, part string) (*Plan, error) {
	target, err := d.target()
	if err != nil {
		return nil, relative(err, part)
	}
	plan, err := s.plan(state, target)
	return plan, relative(err, part)
}

// editable returns the document that describes the catalog, to be changed and
// applied again. It has no grants: they stay, except those of removed models.
func (s *State) editable() *Document {
	d := s.document()
	d.Currency = s.Currency()
	d.Grants = nil
	return d
}

// parts returns the document that describes the catalog, with the ids of
// credentials and when their certificates expire.
func (s *State) parts() *Document {
	d := s.document()
	for i := range d.Providers {
		p := &d.Providers[i]
		for j := range p.Credentials {
			stored := s.Providers[p.ID].Credentials[p.Credentials[j].Name]
			p.Credentials[j].ID, p.Credentials[j].CertificateExpires = stored.ID, stored.CertificateExpires
		}
	}
	return d
}

// relative makes the paths of a document's field errors relative to a part.
func relative(err error, part string) error {
	invalid, ok := validation.As(err)
	if !ok {
		return err
	}
	moved := make(validation.Errors, len(invalid))
	for i, f := range invalid {
		if rest, under := strings.CutPrefix(f.Path, part); under && (rest == "" || strings.HasPrefix(rest, ".")) {
			f.Path = strings.TrimPrefix(rest, ".")
		}
		moved[i] = f
	}
	return moved
}

// merge applies a JSON merge patch to an entry.
func merge[E any](entry E, patch json.RawMessage) (E, error) {
	var merged E
	if !bytes.HasPrefix(bytes.TrimSpace(patch), []byte("{")) {
		return merged, validation.New("", "must be an object")
	}
	old, err := json.Marshal(entry)
	if err == nil {
		old, err = jsonpatch.MergePatch(old, patch)
	}
	if err != nil {
		return merged, fmt.Errorf("catalog: merge: %w", err)
	}
	return merged, strict.JSON(old, &merged)
}

// SettingsEntry holds the settings of the whole system.
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

// PutSettings replaces the settings.
func (s *Service) PutSettings(ctx context.Context, entry SettingsEntry, match etag.Match) (Edited[SettingsEntry], error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		_, tag, err := settingsOf(state)
		if err != nil {
			return nil, err
		}
		if err := match.Check(tag); err != nil {
			return nil, err
		}
		d := state.editable()
		d.Currency, d.Settings = entry.Currency, entry.SettingsDocument
		return s.planPart(state, d, "settings")
	})
	if err != nil {
		return Edited[SettingsEntry]{}, err
	}

	now, tag, err := settingsOf(applied.After)
	return Edited[SettingsEntry]{Entry: now, Tag: tag, Rev: applied.After.Rev}, err
}

func settingsEntry(s catalogkv.Settings) SettingsEntry {
	return SettingsEntry{s.Currency, SettingsDocument{ImageInputTokens: s.ImageInputTokens}}
}
