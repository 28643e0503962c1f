package format

import "strings"

// Added is a set of members that the gateway adds to requests although no client asked for them. A provider that refuses one
// gets the request without it.
type Added uint8

// The members.
const (
	// AddedStore keeps the provider from storing the answer.
	AddedStore Added = 1 << iota
	// AddedServiceTier asks for the service tier that the price is for.
	AddedServiceTier
	// AddedStreamOptions asks for the usage of a stream.
	AddedStreamOptions
	// AddedInclude asks for the content of what is not stored.
	AddedInclude
)

// AllAdded has all members.
const AllAdded = AddedInclude<<1 - 1

// addedNames has the names of the members in the order of their bits.
var addedNames = [...]string{"store", "service_tier", "stream_options", "include"}

// AddedOf returns the set with the member of a name, the empty set if the gateway does not add it.
func AddedOf(name string) Added {
	for i, added := range addedNames {
		if added == name {
			return 1 << i
		}
	}
	return 0
}

// Each calls yield with the set of each single member.
func (a Added) Each(yield func(member Added) bool) {
	for i := range addedNames {
		if member := Added(1) << i; a&member != 0 && !yield(member) {
			return
		}
	}
}

// String returns the names of the members.
func (a Added) String() string {
	var names []string
	for i, name := range addedNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Adds reports whether the gateway adds a member to the body for a target, and notes that it does. A forced parameter that is
// none of the members is always sent: the operator has set it.
func (e *Edit) Adds(member Added, t *Target) bool {
	if t.Without&member != 0 {
		return false
	}
	e.added |= member
	return true
}
