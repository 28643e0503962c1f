// Package price computes prices: it defines the normalized usage of one request
// and the price sheet of a model, and multiplies them in Cost. No other code
// multiplies money.
//
// Reservations, charges and receipts all come from the same computation, so they
// cannot disagree. It is exact: products are summed in 128 bits, and the sum is
// rounded once, half up.
//
// An example: 1,000 input tokens at 2.50 and 200 output tokens at 10.00 per million cost 0.0025 + 0.0020 = 0.0045, or
// 4,500,000 nano-units. The proxy reserves by Cost of an estimate, charges by Cost of the report, settlement computes
// Cost of the same report again from its own copy of the sheet and refuses another amount, and Receipt lists the two lines
// whose sum it is.
package price

// Usage is the usage of one request, normalized over all formats. No count is
// negative. The comments say which counts are a part of others.
type Usage struct {
	// Input is input tokens neither read from nor written to a cache. AudioIn and ImageIn are part of it.
	Input int64 `json:"input,omitempty"`
	// CachedInput is input tokens read from a cache. It is not part of Input.
	CachedInput int64 `json:"cached_input,omitempty"`
	// CacheWrite* are input tokens written to a cache, by its lifetime. They are not part of Input or of each other.
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
	// Images is the number of delivered images, all of one Size and Quality.
	Images int64 `json:"images,omitempty"`
	// Seconds is the length of the delivered video in seconds, of one Size.
	Seconds int64 `json:"seconds,omitempty"`
	// ServerToolRequests is the number of tool calls that the provider executed and bills per call.
	ServerToolRequests int64 `json:"server_tool_requests,omitempty"`
	// Size and Quality select the price of images and seconds; empty means the default.
	Size    string `json:"size,omitempty"`
	Quality string `json:"quality,omitempty"`
	// ServiceTier names the service tier whose prices of tokens apply; empty means DefaultTier.
	ServiceTier string `json:"service_tier,omitempty"`
	// Secondary is the usage of a secondary model, in addition to all of the above.
	Secondary Secondary `json:"secondary,omitzero"`
}

// TotalInput returns all input tokens, including those read from or written to a
// cache. Price tiers depend on it.
func (u *Usage) TotalInput() int64 {
	return u.Input + u.CachedInput + u.CacheWrite5m + u.CacheWrite1h + u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther
}
