package postgres

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/shared/ident"
)

// Deref returns the value, or zero for a null.
func Deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Strings returns the values as strings.
func Strings[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}

// Seconds returns a number of seconds of Postgres as a duration.
func Seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// Day returns the UTC day of a time. For the zero time it returns the given infinity,
// or the day of the zero time if that is pgtype.Finite.
func Day(t time.Time, none pgtype.InfinityModifier) pgtype.Date {
	if t.IsZero() && none != pgtype.Finite {
		return pgtype.Date{InfinityModifier: none, Valid: true}
	}
	return pgtype.Date{Time: t.UTC().Truncate(24 * time.Hour), Valid: true}
}

// OptionalTime returns the time, or nil for the zero time.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// likeEscape escapes the characters that have a meaning in a pattern of LIKE.
var likeEscape = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// Containing returns the pattern of LIKE for texts that contain a part; empty for an empty part.
func Containing(part string) string {
	if part == "" {
		return ""
	}
	return "%" + likeEscape.Replace(part) + "%"
}

// Beginning returns the pattern of LIKE for texts that begin with a part.
func Beginning(part string) string { return likeEscape.Replace(part) + "%" }

// HighestID is above every UUID of version 7.
var HighestID = ident.UUID{
	0: 0xff, 1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff,
	8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff,
}

// LowestID returns the lowest UUID of version 7 of a time; zero for times before
// 1970.
func LowestID(t time.Time) ident.UUID {
	var u ident.UUID
	if t.IsZero() || t.UnixMilli() < 0 {
		return u
	}
	ms := uint64(t.UnixMilli())
	binary.BigEndian.PutUint16(u[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(u[2:6], uint32(ms))
	return u
}
