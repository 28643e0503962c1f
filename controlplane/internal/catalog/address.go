package catalog

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// maxAddressLen bounds a path and a parameter of a query, in bytes.
const maxAddressLen = 1000

// secretParameters are parameters of a query whose values are secrets, in lower case.
var secretParameters = []string{
	"key", "api_key", "api-key", "apikey", "access_token", "access-token", "token", "sig", "signature", "secret", "client_secret",
	"password", "subscription-key", "x-amz-signature", "x-amz-security-token", "x-goog-signature",
}

// addresses checks the addresses of a provider or a route.
func (b *builder) addresses(path string, all catalogkv.Addresses) {
	for _, f := range slices.Sorted(maps.Keys(all)) {
		at, a := validation.Member(path, string(f)), all[f]
		b.refuse(!slices.Contains(catalogkv.Formats, f), at, "", "is not a known format")
		b.refuse(a.Path == "" && a.StreamPath == "" && len(a.Query) == 0, at, "", "must have a path or a query")
		b.addressPath(validation.Member(at, "path"), a.Path)
		b.addressPath(validation.Member(at, "stream_path"), a.StreamPath)
		streamless := a.StreamPath != "" && f.Type() != catalogkv.Text
		b.refuse(streamless, at, "stream_path", "is for formats with streams: chat, responses and messages")

		query := validation.Member(at, "query")
		for name, value := range a.Query {
			tooLong := len(name) > maxAddressLen || len(value) > maxAddressLen
			b.refuse(name == "" || tooLong, query, name, "must have a name, and at most %d bytes", maxAddressLen)
			b.refuse(slices.Contains(secretParameters, strings.ToLower(name)), query, name,
				"carries a secret, and addresses can be read by everybody who may read the catalog: give it to a credential")
			b.refuse(strings.Contains(value, catalogkv.ModelPlace), query, name,
				"must not have %s, which is replaced in paths only", catalogkv.ModelPlace)
		}
	}
}

// addressPath refuses a path that would not reach a provider as it is written.
func (b *builder) addressPath(at, path string) {
	if path == "" {
		return
	}

	filled := strings.ReplaceAll(path, catalogkv.ModelPlace, "model")
	u, err := url.ParseRequestURI(filled)
	switch {
	case len(path) > maxAddressLen:
		b.invalid.Add(at, "must have at most %d bytes", maxAddressLen)
	case !strings.HasPrefix(path, "/"):
		b.invalid.Add(at, "must begin with a slash")
	case strings.ContainsAny(filled, "{}"):
		b.invalid.Add(at, "has a place other than %s", catalogkv.ModelPlace)
	case strings.ContainsRune(path, '?'):
		b.invalid.Add(at, "must have no query: it belongs into query")
	case err != nil || u.EscapedPath() != filled || strings.ContainsRune(path, '#'):
		b.invalid.Add(at, "has a character that must be escaped, such as %%20 for a space")
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." }):
		b.invalid.Add(at, "must have no part . or ..")
	}
}
