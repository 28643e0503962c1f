package providersim

import "fmt"

// Format names one of the public request formats.
type Format string

// The formats that the simulator serves.
const (
	Chat      Format = "chat"      // POST /v1/chat/completions
	Responses Format = "responses" // POST /v1/responses
	Messages  Format = "messages"  // POST /v1/messages
	Images    Format = "images"    // POST /v1/images/generations
	Videos    Format = "videos"    // /v1/videos and below
)

const (
	// DefaultOutputTokens is the length of an answer, per choice, without a limit in the
	// request and without a directive.
	DefaultOutputTokens = 16
	// ImageOutputTokens is the number of output tokens of an image.
	ImageOutputTokens = 272
	// DefaultVideoSeconds is the length of a video without a length in the request.
	DefaultVideoSeconds = 4
	// NoLimit is the output limit of a request without one.
	NoLimit = -1
)

// contentMembers are the members with the prompt. Only they are counted.
var contentMembers = map[Format][]string{
	Chat:      {"messages", "tools", "functions", "response_format"},
	Responses: {"input", "instructions", "tools", "text"},
	Messages:  {"system", "messages", "tools"},
	Images:    {"prompt"},
}

// limitMembers are the members with the output limit. The first one that is present applies.
var limitMembers = map[Format][]string{
	Chat:      {"max_completion_tokens", "max_tokens"},
	Responses: {"max_output_tokens"},
	Messages:  {"max_tokens"},
}

// TokensOf returns the number of tokens of n bytes of content: a quarter, rounded up.
func TokensOf(n int64) int64 { return (n + 3) / 4 }

// ContentBytes returns the sum of the lengths of the values with content in a JSON body, as
// received: with quotes, escapes and inner white space, without white space around a value.
// A null counts as absent. A body that is not a JSON object is an error.
func ContentBytes(f Format, body []byte) (int64, error) {
	m, err := splitObject(body)
	if err != nil {
		return 0, fmt.Errorf("count %s content: %w", f, err)
	}
	return m.contentBytes(f), nil
}

// OutputLimit returns the limit of output tokens per choice in a request, or NoLimit. A body
// that is not a JSON object is an error.
func OutputLimit(f Format, body []byte) (int64, error) {
	m, err := splitObject(body)
	if err != nil {
		return 0, fmt.Errorf("read %s output limit: %w", f, err)
	}
	return m.outputLimit(f), nil
}

// OutputTokens returns the smaller of want and limit, and whether the limit truncates the
// answer.
func OutputTokens(want, limit int64) (n int64, truncated bool) {
	if limit != NoLimit && limit < want {
		return limit, true
	}
	return want, false
}

// Predict returns the usage that the simulator reports for a JSON body whose answer is
// complete. It applies the directives in the model name, but no rules.
func Predict(f Format, body []byte) (Counts, error) {
	m, err := splitObject(body)
	if err != nil {
		return Counts{}, fmt.Errorf("predict %s usage: %w", f, err)
	}

	d := newDirectives(Config{})
	if err := d.apply(modelDirectives(m.text("model", ""))); err != nil {
		return Counts{}, fmt.Errorf("predict %s usage: %w", f, err)
	}

	switch f {
	case Images:
		return planImages(m, d).counts(), nil
	case Videos:
		return Counts{Seconds: videoSeconds(m, d)}, nil
	default:
		return planText(f, m, d).counts(f), nil
	}
}

func (m members) contentBytes(f Format) int64 {
	var n int64
	for _, name := range contentMembers[f] {
		if m.has(name) {
			n += int64(len(m[name]))
		}
	}
	return n
}

func (m members) outputLimit(f Format) int64 {
	for _, name := range limitMembers[f] {
		if m.has(name) {
			return m.number(name, NoLimit)
		}
	}
	return NoLimit
}

// Counts is normalised usage: the kinds of input are disjoint, and reasoning is part of the
// output. Numbers without a unit are tokens.
type Counts struct {
	Input         int64 `json:"input"`           // neither read from nor written to a cache
	CachedInput   int64 `json:"cached_input"`    // read from a cache
	CacheWrite5m  int64 `json:"cache_write_5m"`  // written, messages format
	CacheWrite30m int64 `json:"cache_write_30m"` // written, chat and responses
	Output        int64 `json:"output"`          // all billed output
	Reasoning     int64 `json:"reasoning"`       // part of Output
	Images        int64 `json:"images"`          // images delivered
	ImageOut      int64 `json:"image_out"`       // image tokens, part of Output
	Seconds       int64 `json:"seconds"`         // seconds of finished video
}

// Add returns the member-wise sum of c and o.
func (c Counts) Add(o Counts) Counts {
	return Counts{
		Input:         c.Input + o.Input,
		CachedInput:   c.CachedInput + o.CachedInput,
		CacheWrite5m:  c.CacheWrite5m + o.CacheWrite5m,
		CacheWrite30m: c.CacheWrite30m + o.CacheWrite30m,
		Output:        c.Output + o.Output,
		Reasoning:     c.Reasoning + o.Reasoning,
		Images:        c.Images + o.Images,
		ImageOut:      c.ImageOut + o.ImageOut,
		Seconds:       c.Seconds + o.Seconds,
	}
}
