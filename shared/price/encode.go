package price

import "modelgateway/shared/internal/jsonappend"

// AppendMembers appends the JSON object of the usage without its braces, as
// encoding/json encodes it.
func (u *Usage) AppendMembers(b []byte) []byte {
	for i, count := range u.Counts() {
		b = jsonappend.NonZero(b, string(Kinds[i].Line), *count)
	}

	b = jsonappend.NonEmpty(b, "size", u.Size)
	b = jsonappend.NonEmpty(b, "quality", u.Quality)
	b = jsonappend.NonEmpty(b, "service_tier", u.ServiceTier)
	if u.Secondary != (Secondary{}) {
		b = append(u.Secondary.appendMembers(jsonappend.Object(b, "secondary")), '}')
	}

	return b
}
