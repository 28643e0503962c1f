package price

import "modelgateway/shared/internal/jsonappend"

// AppendMembers appends the JSON object of the usage without its braces, as
// encoding/json encodes it.
func (u *Usage) AppendMembers(b []byte) []byte {
	b = jsonappend.NonZero(b, "input", u.Input)
	b = jsonappend.NonZero(b, "cached_input", u.CachedInput)
	b = jsonappend.NonZero(b, "cache_write_5m", u.CacheWrite5m)
	b = jsonappend.NonZero(b, "cache_write_1h", u.CacheWrite1h)
	b = jsonappend.NonZero(b, "cache_write_30m", u.CacheWrite30m)
	b = jsonappend.NonZero(b, "cache_write_12h", u.CacheWrite12h)
	b = jsonappend.NonZero(b, "cache_write_other", u.CacheWriteOther)
	b = jsonappend.NonZero(b, "output", u.Output)
	b = jsonappend.NonZero(b, "reasoning", u.Reasoning)
	b = jsonappend.NonZero(b, "audio_in", u.AudioIn)
	b = jsonappend.NonZero(b, "audio_out", u.AudioOut)
	b = jsonappend.NonZero(b, "image_in", u.ImageIn)
	b = jsonappend.NonZero(b, "image_out", u.ImageOut)
	b = jsonappend.NonZero(b, "images", u.Images)
	b = jsonappend.NonZero(b, "seconds", u.Seconds)
	b = jsonappend.NonZero(b, "server_tool_requests", u.ServerToolRequests)
	b = jsonappend.NonEmpty(b, "size", u.Size)
	b = jsonappend.NonEmpty(b, "quality", u.Quality)
	if u.Secondary != (Secondary{}) {
		b = append(u.Secondary.appendMembers(jsonappend.Object(b, "secondary")), '}')
	}

	return b
}
