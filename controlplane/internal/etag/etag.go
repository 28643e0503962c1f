// Package etag owns entity tags: the short texts that stand for one state of an
// object, and the conditions that a change names them in. What a tag is made
// of is decided by the object: its revision, or all of its content.
//
// The condition of a change is to be checked in the transaction that writes it,
// against the state that it changes.
package etag

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/internal/validation"
)

// ErrMismatch is returned for a change that is meant for another state.
var ErrMismatch = errors.New("etag: the object is in another state")

// Tag is an entity tag as it is sent, with its quotes.
type Tag string

// OfRev is the tag of a state that has a revision.
func OfRev(rev int64) Tag { return Tag(`"` + strconv.FormatInt(rev, 10) + `"`) }

// OfContent is the tag of a state that has no revision of its own: it is made
// of its JSON form.
func OfContent(v any) (Tag, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("etag: encode: %w", err)
	}
	sum := sha256.Sum256(text)
	return Tag(`"` + hex.EncodeToString(sum[:12]) + `"`), nil
}

// Match is the condition of a change. The zero Match holds always.
type Match struct {
	given bool
	any   bool
	tags  []Tag
}

// Parse reads an If-Match header; an empty one gives the zero Match. A weak tag
// is valid and matches nothing. An error is a validation.Errors.
func Parse(header string) (Match, error) {
	header = strings.TrimSpace(header)
	switch header {
	case "":
		return Match{}, nil
	case "*":
		return Match{given: true, any: true}, nil
	}
	m := Match{given: true}
	for rest := header; rest != ""; {
		weak := strings.HasPrefix(rest, "W/")
		body := strings.TrimPrefix(rest, "W/")
		end := strings.IndexByte(strings.TrimPrefix(body, `"`), '"')
		if !strings.HasPrefix(body, `"`) || end < 0 {
			return Match{}, malformed()
		}
		if !weak {
			m.tags = append(m.tags, Tag(body[:end+2]))
		}
		rest = strings.TrimLeft(body[end+2:], " \t")
		if rest == "" {
			break
		}
		next, comma := strings.CutPrefix(rest, ",")
		if rest = strings.TrimLeft(next, " \t"); !comma || rest == "" {
			return Match{}, malformed()
		}
	}
	return m, nil
}

func malformed() error {
	return validation.New("If-Match", `must be "*" or a list of entity tags, each in double quotes`)
}

// Check returns ErrMismatch unless the condition holds for an object with a
// tag.
func (m Match) Check(current Tag) error {
	if !m.given || m.any || slices.Contains(m.tags, current) {
		return nil
	}
	return ErrMismatch
}

// CheckAbsent returns ErrMismatch if the condition asks for an object, since
// there is none.
func (m Match) CheckAbsent() error {
	if m.given {
		return ErrMismatch
	}
	return nil
}
