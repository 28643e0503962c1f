// Package search finds accounts, API keys, projects, requests, video jobs, models and providers by a text that a person has at
// hand: a name, an id or its beginning, an id of another system, or an API key.
//
// Invariant: the text of an API key is hashed, and only the hash reaches the store.
package search

import (
	"context"
	"strings"
	"unicode/utf8"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
)

// Type is the type of an object.
type Type string

// The types, in the order of results.
const (
	Account  Type = "account"
	Key      Type = "key"
	Project  Type = "project"
	Request  Type = "request"
	Video    Type = "video_job"
	Model    Type = "model"
	Provider Type = "provider"
)

// Result is an object that was found.
type Result struct {
	Type Type
	// ID is the text form, such as acc_… or the name of a model.
	ID string
	// Name is the name of an account, key or project, or the model of a request or video job.
	Name       string
	ExternalID string
	// AccountID is the text form of the account that the object belongs to; empty for models and providers.
	AccountID string
}

// Limit is the maximum number of results, and PerType that of each type. ShortestInside is the number of characters from which
// a text is also found within names.
const (
	Limit          = 20
	PerType        = 6
	ShortestInside = 3
)

// Range is a range of ids of one type.
type Range struct {
	Type            Type
	Lowest, Highest ident.UUID
}

// Store finds objects, at most PerType of each type.
type Store interface {
	// ByText finds ids of other systems that begin with a text, names, models and providers that contain it, accounts with
	// a payment of this reference, keys whose hint it is, and requests whose id at the provider it is, or whose id it ends.
	ByText(ctx context.Context, text string) ([]Result, error)
	// ByID finds objects with ids in a range.
	ByID(ctx context.Context, r Range) ([]Result, error)
	// ByHash finds the API key with one of the hashes.
	ByHash(ctx context.Context, hashes []apikey.Hash) ([]Result, error)
}

// Service searches.
type Service struct {
	store Store
	// hashers are those of the current and the previous peppers.
	hashers []*apikey.Hasher
}

// NewService returns a Service.
func NewService(store Store, hashers []*apikey.Hasher) *Service { return &Service{store, hashers} }

// maxLen bounds the text, in characters.
const maxLen = 200

// kinds are the prefixes of ids that are found by their beginnings.
var kinds = map[ident.Kind]Type{ident.Account: Account, ident.Key: Key, ident.Project: Project, ident.Request: Request, ident.Video: Video}

// Find returns at most Limit objects.
func (s *Service) Find(ctx context.Context, text string) ([]Result, error) {
	text = strings.TrimSpace(text)
	if text == "" || utf8.RuneCountInString(text) > maxLen {
		return nil, validation.New("q", "must have 1 to %d characters", maxLen)
	}

	if apikey.Check(text) == nil {
		hashes := make([]apikey.Hash, len(s.hashers))
		for i, h := range s.hashers {
			hashes[i] = h.Hash(text)
		}
		return s.store.ByHash(ctx, hashes)
	}

	for kind, of := range kinds {
		if lowest, highest, ok := kind.Range(text); ok {
			found, err := s.store.ByID(ctx, Range{of, lowest, highest})
			if err != nil || len(found) > 0 {
				return found, err
			}
		}
	}

	found, err := s.store.ByText(ctx, text)
	return found[:min(len(found), Limit)], err
}
