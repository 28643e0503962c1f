package catalogpages

import (
	"slices"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/shared/catalogkv"
)

// routeMembers are the members of a route that forms change, but for the price of its provider.
var routeMembers = slices.Concat(
	[]member{
		{path: "upstream_model", label: "Name of the model there", required: true},
		{
			path:    formatsMember,
			label:   "Formats that the provider has for it",
			shape:   asChecks,
			options: formatOptions(catalogkv.Formats),
		},
		{path: "enabled", label: "Enabled: requests may use it", shape: asOn},
		{path: "priority", label: "Priority", shape: asNumber, hint: "Routes with the lowest priority are tried first."},
		{
			path:  "weight",
			label: "Weight",
			shape: asNumber,
			hint:  "Share of the conversations among routes of one priority; empty and 0 count as 1.",
		},
		{
			path:        "first_token_timeout",
			label:       "Time to the first token",
			placeholder: "none",
			hint:        "Such as 20s. A stream whose output begins later goes to the next route, if one is left.",
		},
	},
	addressMembers("They take the place of those of the provider. Empty means the address of the provider."),
	[]member{{
		path:        "params",
		label:       "Overrides",
		group:       groupParams,
		shape:       asJSON,
		placeholder: `{"chat": {"store": {"policy": "drop"}}}`,
		hint:        "By format and parameter (JSON), in place of those of the model. docs/catalog.md has the policies.",
	}},
)

const (
	formatsMember = "formats"
	// providerPriceMember is a member of a route that has a form of its own.
	providerPriceMember = "provider_price"
)

func formatOptions(formats []catalogkv.Format) []kit.Option {
	options := make([]kit.Option, len(formats))
	for i, f := range formats {
		options[i] = kit.Option{Value: string(f)}
	}
	return options
}

// routeMembersOf are the members of routes of models of a type.
func routeMembersOf(t adminclient.CatalogModelType) (some []member) {
	of := slices.DeleteFunc(slices.Clone(catalogkv.Formats), func(f catalogkv.Format) bool { return f.Type() != catalogkv.Type(t) })
	for _, m := range routeMembers {
		format, isAddress := strings.CutPrefix(m.path, "addresses.")
		format, _, _ = strings.Cut(format, ".")
		if isAddress && !slices.Contains(of, catalogkv.Format(format)) {
			continue
		}
		if m.path == formatsMember {
			m.options = formatOptions(of)
		}
		some = append(some, m)
	}
	return some
}
