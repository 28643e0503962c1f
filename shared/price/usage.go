// Package price owns the arithmetic of prices: the normalised usage of one
// request, the price sheet of a model, and Cost, the only function of the
// product that multiplies money.
//
// Reserve, charge and receipt all come from Cost, so they cannot disagree. It
// is exact: products are summed in 128 bits and rounded once, half up, at the
// end. The package knows no currency conversion, no accounts and no clock.
package price

// Usage is what one request used, normalised over all provider formats.
// Members that overlap say so; all counts are zero or more.
type Usage struct {
	// Input is input tokens at the plain rate: neither read from nor written to a cache. AudioIn and ImageIn are part of it.
	Input int64 `json:"input,omitempty"`
	// CachedInput is input tokens read from a cache; disjoint from Input.
	CachedInput int64 `json:"cached_input,omitempty"`
	// CacheWrite* are input tokens written to a cache, by its lifetime; disjoint from Input and from each other.
	CacheWrite5m    int64 `json:"cache_write_5m,omitempty"`
	CacheWrite1h    int64 `json:"cache_write_1h,omitempty"`
	CacheWrite30m   int64 `json:"cache_write_30m,omitempty"`
	CacheWrite12h   int64 `json:"cache_write_12h,omitempty"`
	CacheWriteOther int64 `json:"cache_write_other,omitempty"`
	// Output is all output tokens. Reasoning, AudioOut and ImageOut are part of it.
	Output    int64 `json:"output,omitempty"`
	Reasoning int64 `json:"reasoning,omitempty"`
	AudioIn   int64 `json:"audio_in,omitempty"`
	AudioOut  int64 `json:"audio_out,omitempty"`
	ImageIn   int64 `json:"image_in,omitempty"`
	ImageOut  int64 `json:"image_out,omitempty"`
	// Images is pictures delivered, all of one Size and Quality.
	Images int64 `json:"images,omitempty"`
	// Seconds is seconds of finished video of one Size.
	Seconds int64 `json:"seconds,omitempty"`
	// ServerToolRequests is calls of tools that the provider ran and prices per call.
	ServerToolRequests int64 `json:"server_tool_requests,omitempty"`
	// Size and Quality choose the price of images and seconds; empty means the default.
	Size    string `json:"size,omitempty"`
	Quality string `json:"quality,omitempty"`
	// Secondary is what a second model used, beside all of the above.
	Secondary Secondary `json:"secondary,omitzero"`
}

// TotalInput is every input token, cached and written ones included: the
// length that price tiers depend on.
func (u *Usage) TotalInput() int64 {
	return u.Input + u.CachedInput + u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther
}
