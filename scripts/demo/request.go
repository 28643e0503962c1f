package demo

import "strings"

var prompts = []string{
	"Summarize this meeting in three sentences.", "Write a release note for the new search.", "Which of these orders is late?",
	"Translate the letter into French.", "Explain the difference between the two contracts.", "Draft an answer to this customer.",
}

// next returns the next request: mostly one of a customer with enough money, sometimes one that is refused.
func (t *Traffic) next() call {
	r := t.random
	switch n := r.IntN(100); {
	case n < 12:
		return t.refused()
	case n < 14:
		return t.video()
	}

	c := t.demo.pick(r)
	for c.left != "" && r.IntN(4) > 0 || c.suspended { // those with little money ask seldom
		c = t.demo.pick(r)
	}

	model := c.models[r.IntN(len(c.models))]
	key := pastKey(r, c)
	for key.name == revokedKey {
		key = pastKey(r, c)
	}

	prompt := prompts[r.IntN(len(prompts))] + strings.Repeat(" The text follows.", r.IntN(60))
	request := textCall(model, prompt, r.IntN(3) > 0)
	request.key, request.abandon = key.secret, r.IntN(40) == 0
	return request
}

// textCall returns a request for text, or for an image if the model makes images, in the format of the model.
func textCall(model, prompt string, stream bool) call {
	messages := []map[string]string{{"role": "user", "content": prompt}}
	switch model {
	case "demo-image":
		return call{
			path: "/v1/images/generations",
			body: map[string]any{"model": model, "prompt": prompt, "size": "1024x1024", "quality": "high"},
		}
	case "demo-responses":
		return call{path: "/v1/responses", body: map[string]any{"model": model, "input": prompt, "stream": stream}}
	case "demo-messages", "demo-all":
		return call{path: "/v1/messages", body: map[string]any{"model": model, "max_tokens": 400, "messages": messages, "stream": stream}}
	default:
		return call{
			path: "/v1/chat/completions",
			body: map[string]any{"model": model, "max_tokens": 400, "messages": messages, "stream": stream},
		}
	}
}

// video returns the creation of a video job. Its prompt decides how it ends (rules).
func (t *Traffic) video() call {
	kinds := []string{
		"a quiet harbour at dawn",
		"a train that crosses a bridge",
		"a storm that never comes",
		"an endless road",
		"a letter that is lost",
	}
	c := t.demo.customer("Oakline Studio")
	return call{path: "/v1/videos", key: c.issued[0].secret, body: map[string]any{
		"model": "demo-video", "prompt": kinds[t.random.IntN(len(kinds))], "seconds": "4", "size": "1280x720",
	}}
}

// refused returns a request that is refused or fails, each kind in turn.
func (t *Traffic) refused() call {
	good := t.demo.customer("Harbour Analytics").issued[0].secret
	ask := func(key, model, prompt string) call {
		request := textCall(model, prompt, false)
		request.key = key
		return request
	}

	keyOf := func(c *customer, name string) string {
		for _, key := range c.issued {
			if key.name == name {
				return key.secret
			}
		}
		return ""
	}

	all := []call{
		ask("mgw_wrong", "demo-chat", prompts[0]),
		ask(keyOf(t.demo.customers[0], revokedKey), "demo-chat", prompts[0]),
		ask(t.demo.customer(exhaustedAccount).issued[0].secret, fastModel, prompts[1]),
		ask(t.demo.customer(suspendedAccount).issued[0].secret, "demo-chat", prompts[2]),
		ask(keyOf(t.demo.customer(limitedAccount), limitedKey), fastModel, prompts[3]),
		ask(good, "demo-unknown", prompts[0]),
		ask(good, previewModel, prompts[0]),
		ask(t.demo.customers[1].issued[0].secret, previewModel, prompts[0]),
		ask(good, "demo-chat", "Read a novel of a million pages."),
		ask(good, "demo-chat", "Tell me something forbidden."),
		ask(good, "demo-chat", "There is no answer at all."),
		{path: "/v1/chat/completions", key: good, body: map[string]any{"model": "demo-chat"}},
		{path: "/v1/chat/completions", key: good, body: map[string]any{"model": "demo-chat", "messages": []any{}, "no_such_parameter": 1}},
		ask(t.demo.customer(busyAccount).issued[0].secret, "demo-chat", "Tell me a long story."),
		ask(t.demo.customer(busyAccount).issued[1].secret, "demo-chat", "Tell me a long story, too."),
	}
	return all[t.random.IntN(len(all))]
}
