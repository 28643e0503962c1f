package providersim

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// unset is the default of directives for which zero has a meaning.
const unset = -1

// directives control one answer. directiveTable describes them.
type directives struct {
	status                                    int64
	code, kind, message, param, body, style   string
	retryAfter, header, lacks                 string
	delay, chunk, takes                       time.Duration
	out, reasoning, cached, cacheWrite        int64
	perEvent, wordBytes                       int64
	cut, failAfter, stall                     int64
	drop, reset, hang, slow                   bool
	noUsage, usageInChoice, usageEveryChunk   bool
	usageOnLast, xGroq, zeroStart, azureFirst bool
	reasoningOutside, reasoningContent        bool
	keepalive, plainJSON, refuse, filter      bool
	noImage                                   bool
	images, polls, seconds, made, content     int64
	fail, expired, foreign, lostCreate        bool
	answerModel, tier                         string
}

func newDirectives(cfg Config) *directives {
	return &directives{
		delay:     cfg.Delay,
		chunk:     cfg.ChunkDelay,
		perEvent:  max(int64(cfg.WordsPerEvent), 1),
		out:       DefaultOutputTokens,
		polls:     1,
		content:   64 << 10,
		cut:       unset,
		failAfter: unset,
		stall:     unset,
		images:    unset,
		seconds:   unset,
	}
}

// directive is an entry of the table. set parses the value.
type directive struct {
	name, help string
	set        func(d *directives, value string) error
}

var directiveTable = []directive{
	{"status", "=N error answer with this HTTP status", number(func(d *directives) *int64 { return &d.status })},
	{"code", "=X code of the error (status, error=)", text(func(d *directives) *string { return &d.code })},
	{"type", "=X type of the error", text(func(d *directives) *string { return &d.kind })},
	{"message", "=X message of the error", text(func(d *directives) *string { return &d.message })},
	{"param", "=X param of the error", text(func(d *directives) *string { return &d.param })},
	{"body", "=X raw body of the error answer, or the name of a canned one", text(func(d *directives) *string { return &d.body })},
	{"retry_after", "=X Retry-After header of the error answer", text(func(d *directives) *string { return &d.retryAfter })},
	{"header", "=Name:Value extra header of the answer", text(func(d *directives) *string { return &d.header })},
	{"lacks", "=X+Y members of a request that are unknown", text(func(d *directives) *string { return &d.lacks })},
	{
		"tier",
		"=X text formats: service tier named in the answer instead of the requested one; messages without the fast mode",
		text(func(d *directives) *string { return &d.tier }),
	},
	{"model", "=X model named in the answer instead of the requested one", text(func(d *directives) *string { return &d.answerModel })},

	{"delay", "=D pause before the first byte of the answer", duration(func(d *directives) *time.Duration { return &d.delay })},
	{"chunk", "=D pause between two events", duration(func(d *directives) *time.Duration { return &d.chunk })},
	{
		"slow",
		"JSON and video bytes are sent in small pieces, with the chunk pause between them",
		flag(func(d *directives) *bool { return &d.slow }),
	},
	{"hang", "never answers", flag(func(d *directives) *bool { return &d.hang })},
	{"stall", "=N hangs after N events", number(func(d *directives) *int64 { return &d.stall })},
	{"drop", "closes the connection without any answer", flag(func(d *directives) *bool { return &d.drop })},
	{"cut", "=N closes the connection after N events, or N bytes of a JSON body", number(func(d *directives) *int64 { return &d.cut })},
	{"reset", "drop and cut reset the connection instead of closing it", flag(func(d *directives) *bool { return &d.reset })},
	{"error", "=N error event after N events, then the stream ends", number(func(d *directives) *int64 { return &d.failAfter })},
	{
		"error_style",
		"=flat|groq|choice other shapes of the error event (responses; chat)",
		text(func(d *directives) *string { return &d.style }),
	},

	{"out", "=N output tokens per choice before the request's limit, default 16", number(func(d *directives) *int64 { return &d.out })},
	{"reasoning", "=N reasoning tokens before them", number(func(d *directives) *int64 { return &d.reasoning })},
	{
		"reasoning_content",
		"chat: reasoning is also delivered, as reasoning_content",
		flag(func(d *directives) *bool { return &d.reasoningContent }),
	},
	{"cached", "=N prompt tokens read from the cache", number(func(d *directives) *int64 { return &d.cached })},
	{"cache_write", "=N prompt tokens written to the cache", number(func(d *directives) *int64 { return &d.cacheWrite })},
	{"per_event", "=N words per event, default 1", number(func(d *directives) *int64 { return &d.perEvent })},
	{"word_bytes", "=N minimum size of a word in bytes", number(func(d *directives) *int64 { return &d.wordBytes })},
	{"refuse", "the model refuses inside a 200", flag(func(d *directives) *bool { return &d.refuse })},
	{"filter", "a content filter ends the answer: finish_reason content_filter", flag(func(d *directives) *bool { return &d.filter })},
	{"plainjson", "a stream request is answered with JSON", flag(func(d *directives) *bool { return &d.plainJSON })},
	{
		"keepalive",
		"comment, keepalive event or ping before every event except the first",
		flag(func(d *directives) *bool { return &d.keepalive }),
	},

	{"nousage", "no usage anywhere", flag(func(d *directives) *bool { return &d.noUsage })},
	{
		"usage_in_choice",
		"chat stream: usage in choices[0] of the finish chunk",
		flag(func(d *directives) *bool { return &d.usageInChoice }),
	},
	{"usage_every_chunk", "chat stream: running totals on every chunk", flag(func(d *directives) *bool { return &d.usageEveryChunk })},
	{"usage_on_last", "chat stream: usage on the finish chunk", flag(func(d *directives) *bool { return &d.usageOnLast })},
	{"x_groq", "chat stream: x_groq.usage on the finish chunk", flag(func(d *directives) *bool { return &d.xGroq })},
	{"azure_first", "chat stream: starts with a chunk without choices", flag(func(d *directives) *bool { return &d.azureFirst })},
	{
		"reasoning_outside",
		"chat: completion_tokens without reasoning, total_tokens with it",
		flag(func(d *directives) *bool { return &d.reasoningOutside }),
	},
	{"zero_start", "messages stream: zeros in message_start", flag(func(d *directives) *bool { return &d.zeroStart })},

	{"noimage", "images: success without an image", flag(func(d *directives) *bool { return &d.noImage })},
	{"images", "=N images: at most N images", number(func(d *directives) *int64 { return &d.images })},

	{"polls", "=N videos: polls answered in_progress before the end, default 1", number(func(d *directives) *int64 { return &d.polls })},
	{"takes", "=D videos: not finished before this time has passed", duration(func(d *directives) *time.Duration { return &d.takes })},
	{"fail", "videos: the job fails", flag(func(d *directives) *bool { return &d.fail })},
	{"made", "=N videos: seconds that a failed job reports to have made", number(func(d *directives) *int64 { return &d.made })},
	{"seconds", "=N videos: seconds reported instead of the requested ones", number(func(d *directives) *int64 { return &d.seconds })},
	{"expired", "videos: the content has expired", flag(func(d *directives) *bool { return &d.expired })},
	{"foreign_status", "videos: status words of other providers", flag(func(d *directives) *bool { return &d.foreign })},
	{"lostcreate", "videos: the job is created, but no answer is sent", flag(func(d *directives) *bool { return &d.lostCreate })},
	{"content", "=N videos: size of the content in bytes, default 65536", number(func(d *directives) *int64 { return &d.content })},
}

// Directives returns the description of every directive, by its name.
func Directives() map[string]string {
	list := make(map[string]string, len(directiveTable))
	for _, entry := range directiveTable {
		list[entry.name] = entry.help
	}
	return list
}

// modelDirectives returns the directives in a model name, empty if there are none.
func modelDirectives(model string) string {
	_, list, _ := strings.Cut(model, "@")
	return list
}

// apply sets the directives of a comma-separated list, over those of earlier calls.
func (d *directives) apply(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		name, value, _ := strings.Cut(item, "=")
		if err := d.set(name, value); err != nil {
			return fmt.Errorf("directive %q: %w", item, err)
		}
	}
	d.perEvent = max(d.perEvent, 1)
	return nil
}

func (d *directives) set(name, value string) error {
	decoded, err := url.PathUnescape(value)
	if err != nil {
		return fmt.Errorf("unescape: %w", err)
	}
	for _, entry := range directiveTable {
		if entry.name == name {
			return entry.set(d, decoded)
		}
	}
	return fmt.Errorf("unknown directive %q", name)
}

func number(field func(*directives) *int64) func(*directives, string) error {
	return func(d *directives, value string) error {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a count", value)
		}
		*field(d) = n
		return nil
	}
}

func text(field func(*directives) *string) func(*directives, string) error {
	return func(d *directives, value string) error {
		*field(d) = value
		return nil
	}
}

func duration(field func(*directives) *time.Duration) func(*directives, string) error {
	return func(d *directives, value string) error {
		v, err := time.ParseDuration(value)
		if err != nil || v < 0 {
			return fmt.Errorf("%q is not a duration", value)
		}
		*field(d) = v
		return nil
	}
}

func flag(field func(*directives) *bool) func(*directives, string) error {
	return func(d *directives, value string) error {
		if value != "" {
			return fmt.Errorf("takes no value, got %q", value)
		}
		*field(d) = true
		return nil
	}
}
