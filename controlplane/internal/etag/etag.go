// Package etag implements entity tags and the If-Match and If-None-Match conditions of changes. The tag of an object
// is made from its revision, or from its content if it has none.
//
// A condition has to be checked in the transaction that writes the change, against the state that
// the change replaces.
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

// ErrMismatch is returned if the state of the object does not satisfy the condition.
var ErrMismatch = errors.New("etag: the object is in another state")

// ErrExists is returned if the object exists and the condition requires that it does not.
var ErrExists = errors.New("etag: the object exists already")

// Tag is an entity tag in its HTTP form, with quotes.
type Tag string

// OfRev returns the tag of an object that has a revision.
func OfRev(rev int64) Tag { return Tag(`"` + strconv.FormatInt(rev, 10) + `"`) }

// OfContent returns the tag of an object that has no revision: a hash of its JSON form.
func OfContent(v any) (Tag, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("etag: encode: %w", err)
	}
	sum := sha256.Sum256(text)
	return Tag(`"` + hex.EncodeToString(sum[:12]) + `"`), nil
}

// Match is the condition of a change: If-Match, or If-None-Match with "*". The zero Match is always satisfied.
type Match struct {
	given bool
	any   bool
	tags  []Tag
	// absent means that there must be no object.
	absent bool
}

// ParseForPut parses the headers of an operation that creates or replaces an object: one of If-Match and If-None-Match, or
// none. The error is validation.Errors.
func ParseForPut(ifMatch, ifNoneMatch string) (Match, error) {
	switch none := strings.TrimSpace(ifNoneMatch); {
	case none == "":
		return Parse(ifMatch)
	case none != "*":
		return Match{}, validation.New("If-None-Match", `must be "*"`)
	case strings.TrimSpace(ifMatch) != "":
		return Match{}, validation.New("If-None-Match", "must not be sent with If-Match")
	}
	return Match{absent: true}, nil
}

// Parse parses an If-Match header; an empty one gives the zero Match. A weak tag is valid but
// never matches. The error is validation.Errors.
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

// Check returns ErrMismatch or ErrExists unless an object with this tag satisfies the condition.
func (m Match) Check(current Tag) error {
	if m.absent {
		return ErrExists
	}
	if !m.given || m.any || slices.Contains(m.tags, current) {
		return nil
	}
	return ErrMismatch
}

// CheckAbsent returns ErrMismatch if the condition requires an object; call it if there is none.
func (m Match) CheckAbsent() error {
	if m.given {
		return ErrMismatch
	}
	return nil
}
