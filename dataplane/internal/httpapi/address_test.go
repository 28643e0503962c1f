package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/shared/catalogkv"
)

// onlyAt answers requests for one target, and 404 to all others, as a server does that has nothing else.
func onlyAt(target string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != target {
			http.NotFound(w, r)
			return
		}
		answer(w, r)
	}
}

func TestCallsGoToTheAddressOfTheirFormat(t *testing.T) {
	t.Parallel()
	addresses := catalogkv.Addresses{
		catalogkv.Chat:      {Path: "/v4/chat", StreamPath: "/v4/{model}:stream", Query: map[string]string{"api-version": "preview"}},
		catalogkv.Responses: {Path: "/v4/{model}/responses"},
		catalogkv.Messages:  {Query: map[string]string{"beta": "true"}},
		catalogkv.Images:    {Path: "/deployments/{model}/images"},
	}
	const stream = `data: {"id":"c","object":"chat.completion.chunk","model":"up-model","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	for _, tt := range []struct {
		name, path, body, target string
		answer                   http.HandlerFunc
	}{
		{"chat", "/v1/chat/completions", chatBody, "/v4/chat?api-version=preview", jsonAnswer(http.StatusOK, wireJSON)},
		{"chat stream", "/v1/chat/completions", chatStreamBody, "/v4/up%2Fmodel:stream?api-version=preview", streamAnswer(stream)},
		{"responses", "/v1/responses", `{"model":"text","input":"hi"}`, "/v4/up%2Fmodel/responses", jsonAnswer(http.StatusOK, responsesJSON)},
		{
			"messages", "/v1/messages", `{"model":"text","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "/v1/messages?beta=true",
			jsonAnswer(http.StatusOK, `{"id":"m","type":"message","role":"assistant","model":"up-model","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`),
		},
		{"images", "/v1/images/generations", `{"model":"image","prompt":"x"}`, "/deployments/up%2Fmodel/images", jsonAnswer(http.StatusOK, `{"created":1,"data":[{"b64_json":"eA=="}]}`)},
	} {
		for _, of := range []string{"provider", "route"} {
			t.Run(tt.name+" of the "+of, func(t *testing.T) {
				t.Parallel()
				g := newGatewayWith(t, options{
					provider: func(_ int, p *catalogkv.Provider) {
						if p.Addresses = addresses; of == "route" {
							p.Addresses = catalogkv.Addresses{}
							for f := range addresses {
								p.Addresses[f] = catalogkv.Address{Path: "/nothing/here"}
							}
						}
					},
					model: func(m *catalogkv.Model) {
						m.Routes[0].UpstreamModel = "up/model"
						if of == "route" {
							m.Routes[0].Addresses = addresses
						}
					},
				}, onlyAt(tt.target, tt.answer))
				if got := g.post(tt.path, tt.body); got.status != http.StatusOK {
					t.Errorf("got %d %s; the provider got %+v", got.status, got.body, g.sims[0].received())
				}
			})
		}
	}
}

// The job is looked at, and its content read, below the address at which it was created.
func TestVideoJobsAreBelowTheAddressOfTheirCreation(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{
		provider: func(_ int, p *catalogkv.Provider) {
			p.Addresses = catalogkv.Addresses{catalogkv.Videos: {Path: "/nothing/here"}}
		},
		model: func(m *catalogkv.Model) {
			m.Routes[0].Addresses = catalogkv.Addresses{catalogkv.Videos: {Path: "/jobs/{model}", Query: map[string]string{"api-version": "preview"}}}
		},
	}, nil)
	g.sims[0].setAnswer(onlyAt("/jobs/up-model?api-version=preview", jsonAnswer(http.StatusOK, strings.Replace(providerVideo("queued"), "up_1", "a/b?", 1))))
	v := g.post("/v1/videos", videoBody).video(t)
	g.sims[0].setAnswer(onlyAt("/jobs/up-model/a%2Fb%3F?api-version=preview", jsonAnswer(http.StatusOK, providerVideo("completed"))))
	g.pass(time.Second)
	if got := g.send(http.MethodGet, "/v1/videos/"+v.ID, "").video(t); got.Status != "completed" {
		t.Errorf("the job: got %+v; the provider got %+v", got, g.sims[0].received())
	}
	g.sims[0].setAnswer(onlyAt("/jobs/up-model/a%2Fb%3F/content?api-version=preview&variant=thumbnail", videoProvider("completed")))
	if got := g.send(http.MethodGet, "/v1/videos/"+v.ID+"/content?variant=thumbnail", ""); got.status != http.StatusOK || got.body != theVideo {
		t.Errorf("the content: got %d %s; the provider got %+v", got.status, got.body, g.sims[0].received())
	}
}
