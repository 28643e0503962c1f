// Package project manages the projects of accounts: groups of keys that have limits in common, and whose usage is counted together.
//
// Invariants: a key is in at most one project, which is of its account; a project that was deleted has no key that works, and keeps
// its name for the usage that names it.
package project

import (
	"errors"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
)

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	ErrNotFound        = errors.New("project: no such project")
	ErrExternalIDTaken = errors.New("project: another project of the account has this external id")
	// ErrInUse is returned for the deletion of a project with a key that is not revoked.
	ErrInUse = errors.New("project: a key that is not revoked is in the project")
)

const (
	maxNameLen        = 200
	maxExternalIDLen  = 200
	maxDescriptionLen = 1000
)

// ID identifies a project. Its text form is "prj_…".
type ID ident.UUID

// None stands in a filter for what is in no project; it is the id of none. NoneText is its text.
var None = ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// NoneText is how a filter asks for None.
const NoneText = "none"

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Project.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Project.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text form.
func (id *ID) UnmarshalText(text []byte) error {
	u, err := ident.Project.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%q is not the id of a project", text)
	}
	*id = ID(u)
	return nil
}

// Project is a project of an account. The audit log keeps its JSON form.
type Project struct {
	ID        ID         `json:"id"`
	AccountID account.ID `json:"account_id"`
	// ExternalID is the id of the project in the operator's own system, unique in the account; empty if it has none.
	ExternalID string `json:"external_id,omitempty"`
	Name       string `json:"name"`
	// Description and Metadata are of the operator; the gateway only keeps them.
	Description string            `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	DeletedAt   *time.Time        `json:"deleted_at,omitempty"`
	Rev         int64             `json:"rev"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
}

// Tag returns the entity tag.
func (p *Project) Tag() etag.Tag { return etag.OfRev(p.Rev) }

// New describes a project to create.
type New struct {
	// ID is the id of the new project. Creating the same id twice creates one project.
	ID          ident.UUID
	AccountID   account.ID
	ExternalID  string
	Name        string
	Description string
	Metadata    map[string]string
}

// Validate reports all invalid fields as validation.Errors.
func (n *New) Validate() error {
	var invalid validation.Errors
	checkName(n.Name, &invalid)
	if utf8.RuneCountInString(n.ExternalID) > maxExternalIDLen {
		invalid.Add("external_id", "is longer than %d characters", maxExternalIDLen)
	}
	checkDescription(n.Description, &invalid)
	account.CheckMetadata("metadata", n.Metadata, &invalid)
	return invalid.Err()
}

// Patch is a change of a project; nil members stay unchanged.
type Patch struct {
	// Match is the If-Match condition of the change.
	Match       etag.Match
	Name        *string
	Description *string
	// Metadata replaces all of it.
	Metadata *map[string]string
}

// Validate reports all invalid fields as validation.Errors.
func (p *Patch) Validate() error {
	var invalid validation.Errors
	if p.Name != nil {
		checkName(*p.Name, &invalid)
	}
	if p.Description != nil {
		checkDescription(*p.Description, &invalid)
	}
	if p.Metadata != nil {
		account.CheckMetadata("metadata", *p.Metadata, &invalid)
	}
	return invalid.Err()
}

// Apply changes a project, and reports whether that changes anything.
func (p *Patch) Apply(before Project) (after Project, changed bool, err error) {
	if err := p.Match.Check(before.Tag()); err != nil {
		return Project{}, false, fmt.Errorf("project: %w", err)
	}
	after = before
	if p.Name != nil {
		after.Name = *p.Name
	}
	if p.Description != nil {
		after.Description = *p.Description
	}
	if p.Metadata != nil {
		after.Metadata = *p.Metadata
	}
	changed = after.Name != before.Name || after.Description != before.Description || !maps.Equal(after.Metadata, before.Metadata)
	return after, changed, nil
}

func checkName(name string, invalid *validation.Errors) {
	if name == "" || utf8.RuneCountInString(name) > maxNameLen {
		invalid.Add("name", "must have 1 to %d characters", maxNameLen)
	}
}

func checkDescription(text string, invalid *validation.Errors) {
	if utf8.RuneCountInString(text) > maxDescriptionLen {
		invalid.Add("description", "is longer than %d characters", maxDescriptionLen)
	}
}
