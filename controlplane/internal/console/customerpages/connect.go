package customerpages

import (
	"embed"
	"regexp"
	"slices"
	"strings"

	"modelgateway/controlplane/adminclient"
)

//go:embed snippet
var snippetFiles embed.FS

// snippet is an example of a client, filled in.
type snippet struct {
	// Title is the name of the client, Where the place of the text; empty if it is a program.
	Title, Where, Text string
}

// example is a file of the folder snippet. Its formats are those of which a model must have one; empty for any text model.
type example struct {
	file, title, where string
	formats            []adminclient.CatalogRouteFormats
}

// The formats of routes.
const (
	chat      = adminclient.CatalogRouteFormatsChat
	responses = adminclient.CatalogRouteFormatsResponses
	messages  = adminclient.CatalogRouteFormatsMessages
	images    = adminclient.CatalogRouteFormatsImages
	videos    = adminclient.CatalogRouteFormatsVideos
)

// examples are texts of docs/connect.md, which tests run with the real clients, and the official clients in Python.
var examples = []example{
	{"curl.sh", "curl", "", []adminclient.CatalogRouteFormats{chat}},
	{"curl-images.sh", "curl", "", []adminclient.CatalogRouteFormats{images}},
	{"curl-videos.sh", "curl", "", []adminclient.CatalogRouteFormats{videos}},
	{"openai.py", "OpenAI SDK, Python", "", []adminclient.CatalogRouteFormats{chat}},
	{"openai.mjs", "OpenAI SDK, JavaScript", "", []adminclient.CatalogRouteFormats{responses}},
	{"anthropic.py", "Anthropic SDK, Python", "", []adminclient.CatalogRouteFormats{messages}},
	{"anthropic.mjs", "Anthropic SDK, JavaScript", "", []adminclient.CatalogRouteFormats{messages}},
	{"claude-code.sh", "Claude Code", "in the environment", []adminclient.CatalogRouteFormats{messages}},
	{"codex.toml", "Codex CLI", "~/.codex/config.toml", []adminclient.CatalogRouteFormats{responses}},
	{"opencode.json", "opencode", "opencode.json", []adminclient.CatalogRouteFormats{chat}},
	{"qwen-code.sh", "Qwen Code", "in the environment", []adminclient.CatalogRouteFormats{chat}},
}

// The places in examples that are filled in. ANTHROPIC_MODEL is a variable and no place.
var modelPlace = regexp.MustCompile(`\b(IMAGE_MODEL|VIDEO_MODEL|MODEL)\b`)

const hostPlace = "https://HOST"

// snippets returns the examples that work with a model. An empty address or model stays a place to fill in.
func snippets(address, model string, formats []adminclient.CatalogRouteFormats) []snippet {
	var all []snippet
	for _, e := range examples {
		if model != "" &&
			!slices.ContainsFunc(e.formats, func(f adminclient.CatalogRouteFormats) bool { return slices.Contains(formats, f) }) {
			continue
		}
		text, err := snippetFiles.ReadFile("snippet/" + e.file)
		if err != nil {
			continue // never: the files are embedded, and a test compares them
		}
		filled := string(text)
		if model != "" {
			filled = modelPlace.ReplaceAllLiteralString(filled, model)
		}
		if address != "" {
			filled = strings.ReplaceAll(filled, hostPlace, address)
		}
		all = append(all, snippet{e.title, e.where, strings.TrimSuffix(filled, "\n")})
	}

	return all
}

// formatsOf returns the formats that a model is offered in.
func formatsOf(m *adminclient.CatalogModel) []adminclient.CatalogRouteFormats {
	var formats []adminclient.CatalogRouteFormats
	for _, r := range m.Routes {
		if r.Enabled == nil || *r.Enabled {
			formats = append(formats, r.Formats...)
		}
	}
	slices.Sort(formats)
	return slices.Compact(formats)
}
