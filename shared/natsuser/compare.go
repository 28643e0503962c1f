package natsuser

import (
	"slices"
	"strings"
)

// InfoSubject is the subject of the request that a NATS server answers with the
// permissions of the user who asks.
const InfoSubject = "$SYS.REQ.USER.INFO"

// Permissions are those of a user as a server reports them. A nil list allows every
// subject that is not denied.
type Permissions struct {
	Publish   Subjects `json:"publish"`
	Subscribe Subjects `json:"subscribe"`
}

// Subjects are the subjects that a user may use, or may not.
type Subjects struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Compare compares the permissions of a user with those that it should have. It
// returns the permissions that it lacks and those that it has beyond them, as
// "publish " or "subscribe " and a subject. Nil permissions allow everything.
func (u *User) Compare(found *Permissions) (missing, extra []string) {
	if found == nil {
		found = &Permissions{}
	}

	compare := func(use string, wanted []string, subjects Subjects) {
		if subjects.Allow == nil {
			subjects.Allow = []string{">"}
		}
		for _, s := range wanted {
			allowed := slices.ContainsFunc(subjects.Allow, func(pattern string) bool { return covers(pattern, s) })
			if !allowed || slices.ContainsFunc(subjects.Deny, func(pattern string) bool { return overlap(pattern, s) }) {
				missing = append(missing, use+s)
			}
		}
		for _, s := range subjects.Allow {
			if !slices.ContainsFunc(wanted, func(pattern string) bool { return covers(pattern, s) }) {
				extra = append(extra, use+s)
			}
		}
	}
	compare("publish ", u.Publish, found.Publish)
	compare("subscribe ", u.Subscribe, found.Subscribe)

	return missing, extra
}

// covers reports whether a pattern matches every subject that another one matches.
func covers(pattern, other string) bool {
	return match(
		pattern,
		other,
		func(a, b string) bool { return a == b || (a == "*" && b != ">") },
		func(a, _ string) bool { return a == ">" },
	)
}

// overlap reports whether there is a subject that both patterns match.
func overlap(pattern, other string) bool {
	return match(
		pattern,
		other,
		func(a, b string) bool { return a == b || a == "*" || b == "*" },
		func(a, b string) bool { return a == ">" || b == ">" },
	)
}

// match compares patterns token by token, until rest says that the tokens match all
// that follow.
func match(pattern, other string, same, rest func(a, b string) bool) bool {
	x, y := strings.Split(pattern, "."), strings.Split(other, ".")
	for i := range min(len(x), len(y)) {
		if rest(x[i], y[i]) {
			return true
		}
		if !same(x[i], y[i]) {
			return false
		}
	}
	return len(x) == len(y)
}
