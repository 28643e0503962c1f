package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

func TestParamIsSetOnlyForAParameter(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		a.refusedPost(t, e.path, "{", refusal{400, "invalid_request", ""})
		a.refusedPost(t, e.path, e.with(e.model, "warp_factor", 9), refusal{400, "unsupported_parameter", "warp_factor"})
	}
}

func TestErrorHasTheRequestIDOfTheHeader(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		answer := a.post(t, e.path, "{")
		if p := answer.Problem(t); p.RequestID != answer.RequestID() || !strings.HasPrefix(p.RequestID, "req_") {
			t.Errorf("%s: got request_id %q with the header %q", e.path, p.RequestID, answer.RequestID())
		}
	}
}

// In the messages envelope the type depends on the status alone. checkRefusal has the table.
// Status 500 cannot be provoked from outside.
func TestMessagesEnvelopeHasTheTypeOfTheStatus(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t,
		rig.Model{Directives: "status=429"}, rig.Model{Directives: "drop"},
		rig.Model{Routes: []rig.Route{{UpstreamModel: "x", Formats: []string{"messages"}, Enabled: rig.False()}}})
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	_, spent := a.account.NewKey(t, "0.000000001")
	body, key := messages.body("demo-all"), a.account.Key
	for _, tt := range []struct {
		key  string
		body any
		want refusal
	}{
		{key, "[]", refusal{400, "invalid_request", ""}},
		{"", body, refusal{401, "invalid_api_key", ""}},
		{poor.Key, body, refusal{402, "insufficient_quota", ""}},
		{spent, body, refusal{403, "spend_limit_exceeded", ""}},
		{key, messages.body("no-such-model"), refusal{404, "model_not_found", "model"}},
		{key, padded(25<<20 + 1), refusal{413, "invalid_request", ""}},
		{key, messages.body(models[0]), refusal{429, "rate_limit_exceeded", ""}},
		{key, messages.body(models[1]), refusal{502, "upstream_unavailable", ""}},
		{key, messages.body(models[2]), refusal{503, "", ""}},
	} {
		a.refused(t, rig.Request{Path: messages.path, Key: tt.key, Body: tt.body}, tt.want)
	}
	a.refused(t, rig.Request{Path: "/v1/messages/count_tokens", Key: key, Body: body}, refusal{404, "not_found", ""})
}

func TestMalformedBodyIsInvalid(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		for _, body := range []string{
			"", " ", "{", "null", "[]", `"text"`, "1", `{"model":"demo-all"`, `{"model":}`, `{"model":1}`, `{"model":null}`, `{"model":""}`, `{}`,
			`{"model":"demo-all"} {}`, `{"model":"demo-all"}x`, "\ufeff{}", `{"model":"demo-all",}`, "{\"model\":\"\xff\"}",
			`{"model":"demo-all","x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`,
		} {
			answer := a.post(t, e.path, body)
			if p := answer.Problem(t); p.Status != 400 || p.Code != "invalid_request" {
				t.Errorf("%s: %.40q: got %s; want 400 invalid_request", e.path, body, answer)
			}
		}
		// If the gateway read the first member and the provider the last, the request would be
		// billed as another.
		text, err := json.Marshal(e.body(e.model))
		if err != nil {
			t.Fatal(err)
		}
		doubled := strings.TrimSuffix(string(text), "}") + `,"model":"demo-chat"}`
		a.refusedPost(t, e.path, doubled, refusal{400, "invalid_request", "model"})
	}
	nested := `{"model":"demo-all","messages":[{"role":"user","content":"a","content":"b"}]}`
	a.refusedPost(t, chat.path, nested, refusal{400, "invalid_request", "messages[0].content"})
}

func TestUnclassifiedRejectionKeepsTheProvidersStatus(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "status=409,code=odd,message=The%20stars%20are%20not%20right."})
	for _, e := range texts {
		message := a.refusedPost(t, e.path, e.body(model), refusal{409, "invalid_request", ""})
		if !strings.Contains(message, "The stars are not right.") {
			t.Errorf("%s: the message is %q; want the provider's", e.path, message)
		}
	}
}

func TestUnsupportedParameterIsRefused(t *testing.T) {
	a := newAPI(t)
	for _, tt := range []struct {
		endpoint
		name  string
		value any
		param string
	}{
		{chat, "banana", 1, "banana"},
		{chat, "web_search_options", map[string]any{}, "web_search_options"},
		{responses, "previous_response_id", "resp_1", "previous_response_id"},
		{responses, "tool_choice", map[string]any{"type": "web_search"}, "tool_choice.type"},
		{messages, "container", "c_1", "container"},
		{images, "stream", true, "stream"},
		{images, "partial_images", 2, "partial_images"},
		{videos, "banana", 1, "banana"},
	} {
		a.refusedPost(t, tt.path, tt.with(tt.model, tt.name, tt.value), refusal{400, "unsupported_parameter", tt.param})
		// An explicit null counts as absent.
		a.ok(t, tt.path, tt.with(tt.model, tt.name, nil))
	}
	model := a.Model(t, rig.Model{Directives: "body=unknown_param"})
	a.refusedPost(t, chat.path, chat.with(model, "seed", 1), refusal{400, "unsupported_parameter", "seed"})
}

// A parameter that one route does not accept is not dropped: another route gets the request.
// Without another route the request is refused.
func TestParameterUnsupportedByOneRouteUsesAnother(t *testing.T) {
	a := newAPI(t)
	u := rig.Unique()
	narrow := map[string]any{"chat": map[string]any{"seed": map[string]any{"policy": "reject"}}}
	models := a.Models(t,
		rig.Model{Routes: []rig.Route{{UpstreamModel: "narrow-" + u, Params: narrow}, {UpstreamModel: "wide-" + u, Priority: 1}}},
		rig.Model{Routes: []rig.Route{{UpstreamModel: "alone-" + u, Params: narrow}}})
	a.ok(t, chat.path, chat.with(models[0], "seed", 7))
	if got := a.routed(t, "narrow-"+u, "wide-"+u); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the routes got %v requests; want the second to serve", got)
	}
	a.refusedPost(t, chat.path, chat.with(models[1], "seed", 7), refusal{400, "unsupported_parameter", "seed"})
	a.ok(t, chat.path, chat.body(models[1]))
}

func TestUnsupportedAndInvalidValuesAreRefused(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "body=unsupported"})
	a.refusedPost(t, chat.path, chat.with(model, "temperature", 0.2), refusal{400, "unsupported_value", "temperature"})
	for _, n := range []any{"3", 2.5, []any{}} {
		a.refusedPost(t, images.path, images.with(images.model, "n", n), refusal{400, "invalid_value", "n"})
	}
}

func TestContextLengthExceeded(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "body=context_length"})
	for _, e := range texts {
		answer := a.post(t, e.path, e.body(model))
		p := answer.Problem(t)
		if p.Status != 400 || p.Code != "context_length_exceeded" || !strings.HasPrefix(p.Message, "Prompt is too long:") {
			t.Errorf("%s: got %s; want context_length_exceeded with its prefix", e.path, answer)
		}
	}
}

func TestContentPolicyViolation(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "body=content_policy"})
	for _, e := range texts {
		a.refusedPost(t, e.path, e.body(model), refusal{400, "content_policy_violation", ""})
	}
	picture := a.Model(t, rig.Model{Type: "image", Directives: "body=content_policy"})
	a.refusedPost(t, images.path, images.body(picture), refusal{400, "content_policy_violation", ""})
	if balance := a.account.AwaitIdle(t); balance != 100*money.Unit {
		t.Errorf("the balance is %v; want nothing charged", balance)
	}
}

func TestInvalidImage(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Directives: "body=invalid_image"})
	for _, e := range texts {
		a.refusedPost(t, e.path, e.body(model), refusal{400, "invalid_image", ""})
	}
}

func TestInvalidKeyIsRefusedBeforeTheBodyIsChecked(t *testing.T) {
	a := newAPI(t)
	// The key is checked before anything that could reveal information to strangers.
	for _, body := range []any{"{", chat.body("no-such-model"), padded(25<<20 + 1)} {
		a.refused(t, rig.Request{Path: chat.path, Key: "mgw_no", Body: body}, refusal{401, "invalid_api_key", ""})
	}
}

func TestInsufficientQuota(t *testing.T) {
	a := newAPI(t)
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	for _, e := range generations {
		message := a.refused(t, rig.Request{Path: e.path, Key: poor.Key, Body: e.body(e.model)}, refusal{402, "insufficient_quota", ""})
		if !strings.Contains(message, "exhausted") {
			t.Errorf("%s: the message is %q; want it to say that the balance is exhausted", e.path, message)
		}
	}
	h := rig.NewBlockingProvider(t, a.Rig)
	body := chatBody(h.Model, "Hold on", false)
	reservation := reservationOf(t, a.Rig, chatBody("demo-chat", "Hold on", false))
	held := a.Account(t, rig.AccountSpec{Credit: reservation.String()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.Try(t.Context(), rig.Request{Path: chat.path, Key: held.Key, Body: body})
	}()
	h.Await(t, 1)
	message := a.refused(t, rig.Request{Path: chat.path, Key: held.Key, Body: chatBody("demo-chat", "Hold on", false)}, refusal{402, "insufficient_quota", ""})
	if strings.Contains(message, "exhausted") || !strings.Contains(message, "reserved") {
		t.Errorf("the message is %q; want it to say that the rest is reserved", message)
	}
	h.Release()
	<-done
}

func TestSpendLimitExceeded(t *testing.T) {
	a := newAPI(t)
	_, key := a.account.NewKey(t, "0.000000001")
	a.refused(t, rig.Request{Path: chat.path, Key: key, Body: chat.body("demo-all")}, refusal{403, "spend_limit_exceeded", ""})
}

func TestUnknownModelOrPathIsNotFound(t *testing.T) {
	a := newAPI(t)
	a.refusedPost(t, chat.path, chat.body("no-such-model"), refusal{404, "model_not_found", "model"})
	a.refusedPost(t, chat.path, chat.body(strings.Repeat("m", 10_000)), refusal{404, "model_not_found", "model"})
	a.refused(t, rig.Request{Path: "/v1/nowhere", Key: a.account.Key}, refusal{404, "not_found", ""})
	a.refused(t, rig.Request{Path: "/v1/videos/video_1", Key: a.account.Key}, refusal{404, "not_found", ""})
}

func TestBodyTooLarge(t *testing.T) {
	a := newAPI(t)
	a.refusedPost(t, chat.path, padded(25<<20+1), refusal{413, "invalid_request", ""})
}

func TestGenerationFailed(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "image", Directives: "noimage"})
	a.refusedPost(t, images.path, images.body(model), refusal{422, "generation_failed", ""})
	if balance := a.account.AwaitIdle(t); balance != 100*money.Unit {
		t.Errorf("the balance is %v; want nothing charged", balance)
	}
}

func TestRateLimitExceeded(t *testing.T) {
	a := newAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	h := rig.NewBlockingProvider(t, a.Rig)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.Try(t.Context(), rig.Request{Path: chat.path, Key: account.Key, Body: chatBody(h.Model, "Hold on", false)})
	}()
	h.Await(t, 1)
	for proxy := range a.Proxies {
		for _, e := range generations[:4] {
			answer := a.Do(t, rig.Request{Proxy: proxy, Path: e.path, Key: account.Key, Body: e.body(e.model)})
			checkRefusal(t, e.path, answer, refusal{429, "rate_limit_exceeded", ""})
			if answer.Header.Get("Retry-After") != "1" {
				t.Errorf("%s: Retry-After is %q; want 1", e.path, answer.Header.Get("Retry-After"))
			}
		}
	}
	h.Release()
	<-done
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: account.Key, Body: chat.body("demo-all")}, http.StatusOK)
}

func TestUpstreamUnavailable(t *testing.T) {
	a := newAPI(t)
	for _, directives := range []string{
		"drop", "status=500", "body=html", "body=empty", "body=plain", "body=broken_json", "body=string_error", // the provider fails
		"body=invalid_key", "body=quota", "body=model_not_found", "status=402", // it refuses the account of the gateway
	} {
		t.Run(directives, func(t *testing.T) {
			t.Parallel()
			// The model needs a provider of its own, because a refused credential goes into
			// cooldown.
			provider := a.Provider(t, rig.Provider{BaseURL: a.Sim.URL})
			upstream := "secret-name@" + directives
			model := a.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: upstream}}})
			message := a.refusedPost(t, chat.path, chat.body(model), refusal{502, "upstream_unavailable", ""})
			for _, secret := range []string{"API key", "quota", "billing", "html", "internal failure", "upstream connect", "secret-name"} {
				if strings.Contains(message, secret) {
					t.Errorf("%s: the message %q reveals something about the provider", directives, message)
				}
			}
		})
	}
	// The next route is tried first.
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: "first@drop"}, {UpstreamModel: "second", Priority: 1}}})
	a.ok(t, chat.path, chat.body(model))
}

func TestModelWithoutAvailableRouteIsUnavailable(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: "x", Enabled: rig.False()}}})
	for _, e := range texts {
		a.refusedPost(t, e.path, e.body(model), refusal{503, "", ""})
	}
	a.account.AwaitIdle(t)
}

func TestErrorInTheMiddleOfAStreamIsAnEvent(t *testing.T) {
	a := newAPI(t)
	for _, e := range texts {
		model := a.Model(t, rig.Model{Formats: []string{e.format}, Directives: "error=6"})
		answer := a.ok(t, e.path, e.with(model, "stream", true))
		checkHeaders(t, answer)
		found := false
		for _, ev := range answer.Events() {
			var data struct {
				Type      string
				RequestID string `json:"request_id"`
				Error     *struct {
					Type, Code, Message string
					RequestID           string `json:"request_id"`
				}
			}
			if ev.Data == "[DONE]" || json.Unmarshal([]byte(ev.Data), &data) != nil || data.Error == nil {
				continue
			}
			found = true
			if id := data.RequestID + data.Error.RequestID; id != answer.RequestID() || data.Error.Message == "" || data.Error.Code == "" {
				t.Errorf("%s: the error is %s; want a message, a code and the request's id", e.path, ev.Data)
			}
			if want := map[string]string{"chat": "", "responses": "error", "messages": "error"}[e.format]; ev.Name != want {
				t.Errorf("%s: the error's event is named %q; want %q", e.path, ev.Name, want)
			}
		}
		if !found {
			t.Errorf("%s: no error in the stream: %s", e.path, answer.Body)
		}
		if usage := a.AwaitUsage(t, answer.RequestID()); usage.Status != "failed" || usage.Cost == "0.00" {
			t.Errorf("%s: billed %s as %s; want what was delivered", e.path, usage.Cost, usage.Status)
		}
	}
	a.account.AwaitIdle(t)
}

func TestRetryableErrorsAreCuredByARetry(t *testing.T) {
	a := newAPI(t)
	// checkRefusal checks that other errors are marked as final. This test checks that a retry
	// of an error that is not final succeeds.
	for _, directives := range []string{"status=429", "status=500", "status=503"} {
		model := a.Model(t, rig.Model{})
		a.Sim.Once(t, model, directives)
		first := a.post(t, chat.path, chat.body(model))
		if first.Status < 429 || first.Header.Get("X-Should-Retry") == "false" {
			t.Errorf("%s: got %s; want an error that a retry cures", directives, first)
		}
		a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(model)}, http.StatusOK)
	}
}
