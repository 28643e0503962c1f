package providersim

import "fmt"

// Format names one of the public request formats.
type Format string

// The formats that the simulator speaks.
const (
	Chat      Format = "chat"      // POST /v1/chat/completions
	Responses Format = "responses" // POST /v1/responses
	Messages  Format = "messages"  // POST /v1/messages
	Images    Format = "images"    // POST /v1/images/generations
	Videos    Format = "videos"    // /v1/videos and below
)

const (
	// DefaultOutputTokens is the length of an answer, per choice, when neither
	// the request's limit nor a directive says otherwise.
	DefaultOutputTokens = 16
	// ImageOutputTokens is what one picture counts.
	ImageOutputTokens = 272
	// DefaultVideoSeconds is the length of a video whose request names none.
	DefaultVideoSeconds = 4
	// NoLimit as an output limit means that the request set none.
	NoLimit = -1
)

// contentMembers carry the prompt; nothing else of a body is counted.
var contentMembers = map[Format][]string{
	Chat:      {"messages", "tools", "functions", "response_format"},
	Responses: {"input", "instructions", "tools", "text"},
	Messages:  {"system", "messages", "tools"},
	Images:    {"prompt"},
}

// limitMembers bound the output, the first that is present decides.
var limitMembers = map[Format][]string{
	Chat:      {"max_completion_tokens", "max_tokens"},
	Responses: {"max_output_tokens"},
	Messages:  {"max_tokens"},
}

// TokensOf returns the tokens that n bytes of content count: a quarter,
// rounded up.
func TokensOf(n int64) int64 { return (n + 3) / 4 }

// ContentBytes sums the lengths of the content-carrying top-level values of a
// JSON body, exactly as received: quotes, escapes and inner white space count,
// white space around a value does not. An explicit null counts as absent. It
// fails when the body is not a JSON object.
func ContentBytes(f Format, body []byte) (int64, error) {
	m, err := splitObject(body)
	if err != nil {
		return 0, fmt.Errorf("count %s content: %w", f, err)
	}
	return m.contentBytes(f), nil
}

// PromptTokens returns TokensOf(ContentBytes): the prompt tokens that the
// simulator reports for the body, cached ones included.
func PromptTokens(f Format, body []byte) (int64, error) {
	n, err := ContentBytes(f, body)
	return TokensOf(n), err
}

// OutputLimit returns the request's own bound of output tokens per choice, or
// NoLimit. It fails when the body is not a JSON object.
func OutputLimit(f Format, body []byte) (int64, error) {
	m, err := splitObject(body)
	if err != nil {
		return 0, fmt.Errorf("read %s output limit: %w", f, err)
	}
	return m.outputLimit(f), nil
}

// OutputTokens returns how many of want tokens are produced under limit (or
// NoLimit), and whether the limit cut the answer short.
func OutputTokens(want, limit int64) (n int64, truncated bool) {
	if limit != NoLimit && limit < want {
		return limit, true
	}
	return want, false
}

// Predict returns the usage that the simulator reports for a JSON body that it
// answers in full, directives in the model name included, rules not.
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

// Counts is reported usage, normalised: the classes of input are disjoint and
// reasoning is part of output. All numbers are tokens unless said otherwise.
type Counts struct {
	Input         int64 `json:"input"`           // neither read from nor written to a cache
	CachedInput   int64 `json:"cached_input"`    // read from a cache
	CacheWrite5m  int64 `json:"cache_write_5m"`  // written, messages format
	CacheWrite30m int64 `json:"cache_write_30m"` // written, chat and responses
	Output        int64 `json:"output"`          // all billed output
	Reasoning     int64 `json:"reasoning"`       // part of Output
	Images        int64 `json:"images"`          // pictures delivered
	ImageOut      int64 `json:"image_out"`       // picture tokens, part of Output
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
