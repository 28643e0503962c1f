package classify

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	maxProse     = 8 << 10 // bytes of a text that regular expressions read
	maxParamName = 96
)

// paramName matches a parameter name, with or without a path.
const paramName = `[A-Za-z_][\w-]*(?:(?:\.|/)[\w-]+|\[[\w'"-]*\](?:\.[\w-]+)?)*`

// quote matches the marks that providers put around names.
const quote = "[\"'`‘’“”*]{1,2}"

// A paramPattern finds a parameter name in prose. matches is an example or a description
// of its texts. If knownOnly is set, the name must be a known one, because the pattern
// also matches ordinary nouns.
type paramPattern struct {
	matches   string
	knownOnly bool
	re        *expression
}

func paramRE(expr string) *expression {
	expr = strings.ReplaceAll(expr, "QUOTED", quote+`(`+paramName+`)`+quote)
	expr = strings.ReplaceAll(expr, "BARE", `(`+paramName+`)`)
	return lazily(`(?i)` + expr)
}

// quotedValues are names in quotes that are no parameters: the values that would be accepted, and the tool of a call.
var quotedValues = lazily(`(?i)\b(one of:?|(?:tool|function):?)(?:[\s,|(\[]*(?:or\s+)?` + quote + paramName + quote + `)+`)

// paramPatterns are matched in order; the first name found is used.
var paramPatterns = []paramPattern{
	{matches: "text (param: x)", re: paramRE(`\(param(?:eter)?\s*[:=]\s*BARE\s*\)`)},
	{matches: "x.y, and its fault on the next line", re: paramRE(`(?:^|\n)\s*([a-z]\w*(?:\.[\w-]+)*)\n\s+(?:input|field|value|extra|string|list)\b`)},
	{matches: "x.y is not a valid schema", knownOnly: true, re: paramRE(`\bBARE is not a valid\b`)},
	{matches: "text: parameters.x", re: paramRE(`:\s*(?:parameters|params|body)\.BARE\s*$`)},
	{matches: `Unknown name "x" at 'y'`, re: paramRE(`(?:unknown|unrecognized) name\W{0,3}` + quote + `(` + paramName + `)`)},
	{matches: "unexpected keyword argument 'x'", re: paramRE(`keyword argument\W{0,3}QUOTED`)},
	{matches: "Unsupported parameter: 'x'; unrecognized request argument supplied: x", re: paramRE(
		`(?:parameters?|params?|arguments?|fields?|propert(?:y|ies)|keys?|options?|inputs?)(?: is| are| was)?(?: supplied| provided| named?| value| in body| not permitted| not supported)?\s*[:=]?\s*[\[(]?\s*QUOTED`,
	)},
	{matches: "extraneous key [x]", re: paramRE(`(?:keys?|parameters?|params?|arguments?|fields?)\s*:?\s*\[\s*BARE\s*\]`)},
	{matches: "#/x: 2 is not less or equal to 1", re: paramRE(`#/(?:properties/)?BARE\s*:`)},
	{matches: "body -> x -> y: text", re: paramRE(`\bbody -> BARE`)},
	{matches: "only supports x set to true", re: paramRE(`only (?:supports?|accepts?|allows?) (?:the |parameter )?BARE (?:set|equal) to`)},
	{
		matches: "argument not supported on this model: x",
		re:      paramRE(`(?:parameters?|params?|arguments?|fields?) (?:is |are )?(?:not|un)[ -]?supported[^:\n]{0,40}:\s*BARE`),
	},
	{matches: "messages: text", knownOnly: true, re: paramRE(`(?:^|\n)\s*BARE\s*: `)},
	{
		matches:   "does not support x",
		knownOnly: true,
		re:        paramRE(`(?:not|n't|no) support (?:the |this |these )?(?:parameter |param )?BARE`),
	},
	{matches: "allow_all for x is not supported", knownOnly: true, re: paramRE(`\bfor BARE (?:is|are) (?:currently |not )`)},
	{
		matches: "'x' is not supported, `x` must be",
		re: paramRE(
			`QUOTED[^.'"` + "`" + `]{0,40}?\b(?:is|are|was|does|do|isn't|aren't|doesn't|must|should|can(?:not|'t)?|may|has|have|not|only|out of|and|exceeds?|needs?|requires?|parameter|field|argument|option|value)\b`,
		),
	},
	{matches: "'x' supports up to 4", knownOnly: true, re: paramRE(`QUOTED (?:supports|accepts|allows|takes)\b`)},
	{
		matches: "Invalid type for 'x', Invalid 'x'",
		re: paramRE(
			`(?:invalid|unsupported|unknown|unexpected|unrecognized|illegal|bad|wrong|incorrect|missing|extra|value|type|for|of|parameter|field)[ :]+(?:the )?QUOTED`,
		),
	},
	{
		matches: "unrecognized request argument supplied: x",
		re: paramRE(
			`(?:unrecognized|unknown|unsupported|unexpected|extra|invalid|illegal|missing required|additional|not supported) (?:request )?(?:parameters?|params?|arguments?|fields?|propert(?:y|ies)|keys?)(?: supplied| provided)?\s*:\s*BARE`,
		),
	},
	{
		matches: "x.y: Extra inputs are not permitted",
		re: paramRE(
			`(?:^|\n|error: |- )\s*BARE\s*: (?:extra|field|input|value|unexpected|unknown|must|should|invalid|not|cannot|range|this|property|string|none|expected|the)`,
		),
	},
	{matches: "max_tokens: 9 > 8", re: paramRE(`(?:^|\n)\s*([a-z]\w*(?:\.\w+)*_\w+|[a-z]\w*(?:\.\w+)+)\s*: `)},
	{
		matches:   "parameter x",
		knownOnly: true,
		re: paramRE(
			`(?:\b(?:parameter|param|argument|field|property|option|keyword|(?:invalid |bad |wrong )?value (?:for|of)|invalid|unsupported|wrong|incorrect|bad)\b|参数|параметр\p{L}*|пол[ея]|значени[ея]|допустим\p{L}* значения)\s*[:=]?\s*BARE`,
		),
	},
	{matches: "x parameter", knownOnly: true, re: paramRE(`\bBARE (?:parameter|param|argument|field|option|value|参数)`)},
	{
		matches:   "x must be",
		knownOnly: true,
		re: paramRE(
			`\bBARE\b\s*(?:\([^)]{0,40}\))?\s*(?:=\s*\S+ )?(?:(?:is|are|must|should|cannot|can|may|has to|out of|exceeds?|too|not|larger|value|type|needs?|only|range|and|or|unavailable)\b|:|=|必须|不|取值|应|错误|无效|参数)`,
		),
	},
	{
		matches: "x must be between 0 and 1",
		re: paramRE(
			`(?:^|[:\n-]\s*)BARE (?:must|should) be (?:between|within|one of|in the range|positive|non-negative|a multiple|divisible|greater|less|at least|at most)`,
		),
	},
	{matches: "a name before text of another script", knownOnly: true, re: paramRE(`\bBARE\s*[\p{Han}\p{Cyrillic}\p{Hangul}\p{Hiragana}\p{Katakana}]`)},
	{matches: "x VALUE is not valid", knownOnly: true, re: paramRE(`\bBARE \S{1,60} is (?:not|in)`)},
	{matches: "text: x", knownOnly: true, re: paramRE(`:\s*BARE\s*[.)]?$`)},
	{matches: "a name in a sentence of any language", knownOnly: true, re: lazily(`\b((?:[a-z]+_)+[a-z]+|temperature|logprobs)\b`)},
	{matches: "a name in quotes alone", re: lazily(quote + `([a-z]\w*_\w+)` + quote)},
}

// paramNames lists the parameter names of the served formats. Names are compared without
// case and underscores.
const paramNames = `temperature top_p top_k min_p max_tokens max_completion_tokens max_output_tokens max_new_tokens max_tokens_to_sample
	frequency_penalty presence_penalty repetition_penalty seed stop stop_sequences stream stream_options logprobs top_logprobs logit_bias n
	response_format tool_choice tools parallel_tool_calls functions function_call reasoning reasoning_effort thinking budget_tokens messages
	system user metadata modalities service_tier store size quality style prompt input image images aspect_ratio duration seconds resolution
	background output_format output_compression guidance_scale cfg_scale steps num_inference_steps enable_thinking verbosity negative_prompt
	width height instructions truncation include previous_response_id candidate_count generation_config safety_settings input_reference
	prediction audio voice web_search_options prompt_cache_retention image_size image_url fps ratio moderation mask prompt_extend watermark context_management
	cache_control output_config speed mcp_servers container betas text safety_identifier prompt_cache_key max_prompt_tokens num_ctx
	stop_sequence top_a typical_p length_penalty best_of echo suffix thinking_budget incremental_output output_compression partial_images
	thinking_config thinking_level num_images sampler scheduler strength complexity`

var knownParams = nameSet(paramNames)

func nameSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[plainName(w)] = true
	}
	return set
}

// plainName returns a name without case and underscores, for comparisons.
func plainName(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// A featureParam is a parameter that requests a feature. re matches the name of the
// feature in prose.
type featureParam struct {
	param string
	re    *expression
}

// featureParams are used for prose that names a feature and no parameter.
var featureParams = []featureParam{
	{"tool_choice", lazily(`(?i)tool[ _]choice|forced tool|"auto" tool`)},
	{"parallel_tool_calls", lazily(`(?i)parallel (?:tool|function) call`)},
	{
		"tools",
		lazily(`(?i)tool[ _-]?(?:use|call|calling)|function[ _-]?call|\btools\b|函数调用|工具|вызов\p{L}* (?:функци|инструмент)|инструмент`),
	},
	{"response_format", lazily(`(?i)json[ _]mode|structured outputs?|json[ _]schema|response[ _]format|json_object`)},
	{"reasoning_effort", lazily(`(?i)reasoning[ _]effort|effort level`)},
	{"thinking", lazily(`(?i)\bthinking\b|budget_tokens`)},
	{"logprobs", lazily(`(?i)log[ _]?prob`)},
	{"system", lazily(`(?i)system (?:instruction|prompt|message|role)|developer instruction`)},
	{"size", lazily(`(?i)(?:image|invalid|unsupported) size|\bsize \d+x\d+`)},
	{"stream", lazily(`(?i)\bstream(?:ing)?\b`)},
	{"messages", lazily(`(?i)image[ _](?:input|url)|\bvision\b|\bmessages?\b|multimodal|prefill`)},
}

// containers are path segments that contain parameters and are not parameters themselves.
var containers = nameSet(
	`body query request request_body requestbody parameters parameter params generation_config generationConfig inference_config inferenceConfig
	options additional_model_request_fields root input_parameters kwargs config data payload __root__ json extra_body`,
)

// findParam returns the parameter that an error is about, "" if it is unknown. Members
// that hold a parameter name go before prose, which is searched only if prose is true.
func findParam(u unwrapped, prose bool) string {
	for _, p := range u.params {
		if name := cleanParam(p); name != "" {
			return name
		}
	}
	if !prose {
		return ""
	}
	for _, l := range u.levels {
		if name := paramInProse(l.text); name != "" {
			return name
		}
	}
	return ""
}

// namedMembers returns the members of the request that an answer names: some providers list all that they refuse.
func namedMembers(u unwrapped, param string) []string {
	var members []string
	add := func(name string) {
		if member := firstSegment(name); member != "" && !slices.Contains(members, member) {
			members = append(members, member)
		}
	}
	add(param)
	for _, p := range u.params {
		add(cleanParam(p))
	}
	return members
}

func paramInProse(text string) string {
	if len(text) > maxProse {
		text = text[:maxProse]
	}
	text = quotedValues.get().ReplaceAllString(text, "$1")
	if name := namedWithValue(text); name != "" {
		return name
	}

	for _, p := range paramPatterns {
		for _, m := range p.re.get().FindAllStringSubmatch(text, 6) {
			name := cleanParam(m[1])
			if name == "" || p.knownOnly && !isKnown(name) {
				continue
			}
			return name
		}
	}

	if spaced := spacedNames().FindString(text); spaced != "" {
		return strings.ReplaceAll(strings.ToLower(spaced), " ", "_")
	}

	for _, f := range featureParams {
		if f.re.get().MatchString(text) {
			return f.param
		}
	}

	return ""
}

// namedValue matches a name, its value in quotation marks or with a digit in it, and a word that says what is wrong with
// the value: "reasoning_effort 'max' is not supported", "size 300x400 not allowed".
var namedValue = paramRE(
	`\bBARE(?:` + quote + `)?\s*(?:\s|=|:)\s*(?:value\s+|of\s+)?(?:` + quote + `[^\s'"` + "`" + `]{1,40}` + quote + `|[^\s'"` + "`" + `(.\[]{0,20}\d[^\s'"` + "`" + `]{0,20})\s*` +
		`(?:(?:is |are |was )?(?:currently )?(?:not |isn't|aren't|unsupported|不|не )|(?:is |are |was )(?:incompatible|invalid|unknown))`,
)

// namedWithValue returns the parameter whose value prose calls wrong, "" if it calls none.
func namedWithValue(text string) string {
	if len(text) > maxProse {
		text = text[:maxProse]
	}
	for _, m := range namedValue.get().FindAllStringSubmatch(text, 6) {
		if name := cleanParam(m[1]); knownParams[plainName(firstSegment(name))] {
			return name
		}
	}
	return ""
}

// spacedNames matches known names of several words that prose writes with blanks, such as
// "the thinking budget". It leaves out those that featureParams matches.
var spacedNames = sync.OnceValue(func() *regexp.Regexp {
	var names []string
	for name := range strings.FieldsSeq(paramNames) {
		if strings.Contains(name, "_") &&
			!slices.ContainsFunc(featureParams, func(f featureParam) bool { return f.re.get().MatchString(name) && f.param != name }) {
			names = append(names, strings.ReplaceAll(name, "_", " "))
		}
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // longer names first
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(names, "|") + `)\b`)
})

// isKnown reports whether a word is a parameter name rather than a noun: it is listed, or
// written in snake case or camel case.
func isKnown(name string) bool {
	return knownParams[plainName(firstSegment(name))] || snakeOrCamel.get().MatchString(name)
}

var snakeOrCamel = lazily(`^[a-z]+[a-z0-9]*(?:_|[A-Z])`)

// isImageParam reports whether the value of a parameter is an image.
func isImageParam(param string) bool {
	name := plainName(param)
	for _, no := range []string{"size", "format", "config", "count", "num", "quality", "style"} {
		if strings.Contains(name, no) {
			return false
		}
	}
	return strings.Contains(name, "image") || strings.Contains(name, "mask") || strings.Contains(name, "inputreference")
}

func firstSegment(path string) string {
	if i := strings.IndexAny(path, ".[/"); i > 0 {
		return path[:i]
	}
	return path
}

var wholeName = lazily(`^` + paramName + `$`)

// notParams are words that occur where a name is expected but are no parameter names.
var notParams = nameSet(
	`model the a an this that is are was for in on of request value values body error errors invalid not field parameter parameters
	param none null true false and or string integer number object array type must should only input_value supported unsupported
	user_message messages_list api url http https code auto required default queue quota validation`,
)

// cleanParam returns the path of a parameter for the client, without containers, and ""
// for a text that cannot be a parameter name.
func cleanParam(s string) string {
	s = strings.TrimSpace(strings.Trim(strings.TrimSpace(s), "\"'`$"))
	s = strings.TrimPrefix(strings.TrimPrefix(s, "."), "/")
	s = strings.ReplaceAll(strings.ReplaceAll(s, "/", "."), ".[", "[")
	for {
		head, rest, ok := strings.Cut(s, ".")
		inner := ok && (containers[plainName(head)] || strings.HasSuffix(head, "Request") || head == "" ||
			head == "input" && rest != "" && (rest[0] < '0' || rest[0] > '9')) // the container of all parameters, unless it is a list
		if !inner {
			break
		}
		s = rest
	}

	if len(s) > maxParamName || !wholeName.get().MatchString(s) || notParams[plainName(s)] || strings.HasSuffix(plainName(s), "error") ||
		containers[plainName(s)] {
		return ""
	}
	if lower := strings.ToLower(s[:1]) + s[1:]; knownParams[plainName(firstSegment(s))] {
		return lower // the name was the first word of a sentence
	}

	return s
}
