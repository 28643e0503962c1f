package providersim

import (
	"net/http"
	"slices"
	"strings"
)

var anthropicVersions = []string{"2023-01-01", "2023-06-01", "2026-10-21"}

// answer chooses the answer to a request and sends it.
func (x *exchange) answer() error {
	switch {
	case int64(len(x.body)) > x.sim.cfg.MaxBodyBytes:
		return x.refuse(faultOf(http.StatusRequestEntityTooLarge))
	case !x.authorized():
		f := faultOf(http.StatusUnauthorized)
		if x.entry.APIKey == "" {
			f.message = "No API key was given."
		}
		return x.refuse(f)
	}

	handle, bad := x.route()
	if bad != nil {
		return x.refuse(bad)
	}
	if bad := x.parse(); bad != nil {
		return x.refuse(bad)
	}
	if bad := x.applyDirectives(); bad != nil {
		return x.refuse(bad)
	}

	x.sim.journal.update(&x.entry)
	if ended, err := x.replaceAnswer(); ended {
		return err
	}

	return handle()
}

// route returns the handler of the request's method and path.
func (x *exchange) route() (func() error, *fault) {
	posts := map[string]func() error{
		"/v1/chat/completions":   x.chat,
		"/v1/responses":          x.responses,
		"/v1/messages":           x.messages,
		"/v1/images/generations": x.images,
		"/v1/videos":             x.createVideo,
	}

	method, path := x.r.Method, x.r.URL.Path
	post, known := posts[path]
	switch {
	case known && method == http.MethodPost:
		return post, nil
	case path == "/v1/videos" && method == http.MethodGet:
		return x.listVideos, nil
	case strings.HasPrefix(path, "/v1/videos/"):
		return x.routeVideo(strings.TrimPrefix(path, "/v1/videos/"))
	case known:
		return nil, &fault{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "The method is not allowed here."}
	}

	return nil, &fault{status: http.StatusNotFound, code: "unknown_url", message: "There is no such path."}
}

// parse splits and checks the body of a POST.
func (x *exchange) parse() *fault {
	if x.r.Method != http.MethodPost {
		return nil
	}

	f := x.entry.Format
	if f == Messages {
		version := x.r.Header.Get("Anthropic-Version")
		if version == "" {
			return invalid("", "", "anthropic-version: header is required")
		}
		if !slices.Contains(anthropicVersions, version) {
			return invalid("", "", "anthropic-version: %q is not a valid version", version)
		}
	}

	var err error
	switch {
	case hasMediaType(x.r.Header, "application/json"):
		x.members, err = splitObject(x.body)
	case f == Videos && hasMediaType(x.r.Header, "multipart/form-data"):
		x.members, err = splitForm(x.r.Header, x.body)
	default:
		return &fault{
			status:  http.StatusUnsupportedMediaType,
			code:    "unsupported_content_type",
			message: "The content type is not supported.",
		}
	}

	if err != nil {
		return invalid("invalid_json", "", "The body of the request could not be parsed: %v.", err)
	}

	x.entry.Model = x.members.text("model", "")
	x.entry.Stream = x.members.isTrue("stream")
	x.entry.PromptCount = TokensOf(x.members.contentBytes(f))
	return check(f, x.members, x.r.Header)
}

// applyDirectives applies the directives of the model name and of the first matching rule. The
// directives of a video's model apply to its creation and its state; only rules apply to
// later requests for the job.
func (x *exchange) applyDirectives() *fault {
	list := ""
	if x.r.Method == http.MethodPost {
		list = modelDirectives(x.entry.Model)
	}
	if rule, ok := x.sim.rules.take(x.entry.Model, x.r.URL.Path, x.body); ok {
		x.entry.Rule = rule.ID
		list = strings.Trim(list+","+rule.Directives, ",")
	}
	x.entry.Directives = list
	if err := x.d.apply(list); err != nil {
		return invalid("unknown_directive", "model", "%v", err)
	}
	for name := range strings.SplitSeq(x.d.lacks, "+") {
		if x.members.has(name) {
			return x.entry.Format.unknown(name)
		}
	}
	return nil
}

// replaceAnswer executes a directive that replaces the whole answer.
func (x *exchange) replaceAnswer() (ended bool, err error) {
	switch {
	case x.d.hang:
		return true, x.wait()
	case x.d.drop:
		if err := x.pause(x.d.delay); err != nil {
			return true, err
		}
		return true, errCut
	case x.d.status != 0 || x.d.body != "":
		return true, x.directedError()
	}
	return false, nil
}

// directedError sends the error that status=, body= and related directives describe.
func (x *exchange) directedError() error {
	if x.d.retryAfter != "" {
		x.w.Header().Set("Retry-After", x.d.retryAfter)
	}

	status := int(x.d.status)
	orElse := func(fallback int) int {
		if status != 0 {
			return status
		}
		return fallback
	}
	if canned, ok := cannedBodies[x.d.body]; ok {
		return x.bytes(orElse(canned.status), canned.contentType, []byte(canned.body))
	}

	if canned, ok := cannedFaults[x.d.body]; ok {
		canned.status = orElse(canned.status)
		return x.refuse(canned.override(x.d))
	}

	if x.d.body != "" {
		return x.json(orElse(http.StatusInternalServerError), []byte(x.d.body))
	}

	return x.refuse(faultOf(status).override(x.d))
}
