package format

import (
	"slices"
	"strings"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
)

// Departure lists every member in which the bodies for a kind of provider differ from those for the maker of the models.
type Departure struct {
	// Removed are left out.
	Removed []string
	// Added are the members with their values.
	Added []AddedMember
	// BetaMember has the names of beta features as a list, which other providers get in a header; empty: this one does, too.
	BetaMember string
}

// AddedMember is a member with its value as JSON.
type AddedMember struct{ Name, Value string }

// Departures has the departures by kind of provider and format. Bodies of other formats are the same for all providers.
//
// The path of the call names the model, and at Bedrock whether the answer is a stream; Vertex wants to read that in the body,
// too. Neither has service tiers, of which the gateway asks the maker for the standard one.
var Departures = map[catalogkv.ProviderKind]map[catalogkv.Format]Departure{
	catalogkv.Bedrock: {catalogkv.Messages: {
		Removed:    []string{"model", "stream", "service_tier"},
		Added:      []AddedMember{{"anthropic_version", `"bedrock-2023-05-31"`}},
		BetaMember: "anthropic_beta",
	}},
	catalogkv.Vertex: {catalogkv.Messages: {
		Removed: []string{"model", "service_tier"},
		Added:   []AddedMember{{"anthropic_version", `"vertex-2023-10-16"`}},
	}},
}

// depart makes the changes for the kind of the provider, after all others.
func (r *Request) depart(e *Edit, t *Target) {
	if t.Kind == "" {
		return
	}
	departure, has := Departures[t.Kind][r.spec.Format]
	if !has {
		return
	}

	for _, name := range departure.Removed {
		e.Drop(name)
		e.added &^= AddedOf(name)
	}
	for _, member := range departure.Added {
		e.Set(member.Name, []byte(member.Value))
	}
	if departure.BetaMember == "" {
		return
	}
	if betas := JoinBetas(t.Betas, r.Beta(t.Policy)); betas != "" {
		list := []byte{'['}
		for name := range strings.SplitSeq(betas, ",") {
			if len(list) > 1 {
				list = append(list, ',')
			}
			list = jsonspan.AppendString(list, name)
		}
		e.Set(departure.BetaMember, append(list, ']'))
	}
}

// JoinBetas returns two lists of names of beta features, separated by commas, as one without repetitions.
func JoinBetas(first, second string) string {
	var names []string
	for name := range strings.SplitSeq(first+","+second, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
