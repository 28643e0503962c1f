package pricelist

import (
	"maps"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// provider has the properties of a provider in the list.
type provider struct {
	// name is the display name, url the address before /v1, variable the usual environment variable of the key.
	name, url, variable string
	// messages means that the provider uses the messages format for text instead of chat.
	messages bool
	// all means that the provider supports every format but messages.
	all bool
}

// providers has the providers that support a format of the gateway. The addresses are proposals for the review.
var providers = map[string]provider{
	"anthropic":    {name: "Anthropic", url: "https://api.anthropic.com", variable: "ANTHROPIC_API_KEY", messages: true},
	"cerebras":     {name: "Cerebras", url: "https://api.cerebras.ai", variable: "CEREBRAS_API_KEY"},
	"deepseek":     {name: "DeepSeek", url: "https://api.deepseek.com", variable: "DEEPSEEK_API_KEY"},
	"fireworks_ai": {name: "Fireworks", url: "https://api.fireworks.ai/inference", variable: "FIREWORKS_API_KEY"},
	"groq":         {name: "Groq", url: "https://api.groq.com/openai", variable: "GROQ_API_KEY"},
	"mistral":      {name: "Mistral", url: "https://api.mistral.ai", variable: "MISTRAL_API_KEY"},
	"openai":       {name: "OpenAI", url: "https://api.openai.com", variable: "OPENAI_API_KEY", all: true},
	"openrouter":   {name: "OpenRouter", url: "https://openrouter.ai/api", variable: "OPENROUTER_API_KEY"},
	"together_ai":  {name: "Together", url: "https://api.together.xyz", variable: "TOGETHER_API_KEY"},
	"xai":          {name: "xAI", url: "https://api.x.ai", variable: "XAI_API_KEY"},
}

// CheckProviders returns validation.Errors if a name is none of the known providers, so that it would select no entry.
func CheckProviders(names []string) error {
	var invalid validation.Errors
	for i, name := range names {
		if _, known := providers[name]; !known {
			invalid.Add(validation.Index("providers", i), "must be one of %s", strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
		}
	}
	return invalid.Err()
}

// id returns the provider's id in the catalog.
func id(provider string) string { return strings.ReplaceAll(provider, "_", "-") }

// entry returns the provider as a catalog entry.
func (p provider) entry(name string) catalog.ProviderEntry {
	e := catalog.ProviderEntry{
		ID:          id(name),
		Name:        p.name,
		BaseURL:     p.url,
		Credentials: []catalog.CredentialEntry{{Name: "main", Secret: "${" + p.variable + "}"}},
	}
	if p.messages {
		e.Auth, e.AnthropicVersion = "x-api-key", "2023-06-01"
	}
	return e
}

// offers returns the type of a model and its formats, or the reason why the gateway cannot offer it.
func (p provider) offers(mode string, endpoints any) (kind catalogkv.Type, formats []catalogkv.Format, reason string) {
	switch {
	case mode == "chat" && p.messages:
		return catalogkv.Text, []catalogkv.Format{catalogkv.Messages}, ""
	case mode == "chat" && p.all:
		return catalogkv.Text, textFormats(endpoints), ""
	case mode == "chat":
		return catalogkv.Text, []catalogkv.Format{catalogkv.Chat}, ""
	case mode == "responses" && p.all:
		return catalogkv.Text, []catalogkv.Format{catalogkv.Responses}, ""
	case mode == "image_generation" && p.all:
		return catalogkv.Image, []catalogkv.Format{catalogkv.Images}, ""
	case mode == "video_generation" && p.all:
		return catalogkv.Video, []catalogkv.Format{catalogkv.Videos}, ""
	case mode == "":
		return "", nil, "it has no mode"
	default:
		return "", nil, "the gateway does not support the mode " + mode + " of this provider"
	}
}

// textFormats returns chat, and responses if the list has its endpoint.
func textFormats(endpoints any) []catalogkv.Format {
	list, _ := endpoints.([]any)
	if len(list) == 0 {
		return []catalogkv.Format{catalogkv.Chat}
	}

	var formats []catalogkv.Format
	for _, each := range []struct {
		path   string
		format catalogkv.Format
	}{{"/v1/chat/completions", catalogkv.Chat}, {"/v1/responses", catalogkv.Responses}} {
		if slices.Contains(list, any(each.path)) {
			formats = append(formats, each.format)
		}
	}

	if formats == nil {
		return []catalogkv.Format{catalogkv.Chat}
	}

	return formats
}
