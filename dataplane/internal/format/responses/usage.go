package responses

import (
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/price"
)

// recordUsage reads the usage and the calls of provider-run tools of an answer or event.
func (a *reader) recordUsage(p *responseParts, data []byte) {
	part := a.Counts
	if !a.Reported { // the report of the whole response replaces that of a part
		a.Counts = usagereport.Counts{}
	}
	found := a.Report(p.usage)
	if found == answer.Nothing {
		found = a.ReportElsewhere(data)
	}
	if found == answer.Nothing {
		response, _ := jsonspan.Find(data, "response")
		found = a.ReportElsewhere(response)
	}
	if found < answer.Placeholder {
		a.Counts = part
		return
	}

	made, search := toolCalls(p.output)
	if n, ok := searchRequests(p.toolUsage); ok {
		made += n - search
	}

	second, ok := imageToolUsage(p.toolUsage, p.output)
	if !ok {
		a.Unreadable = true
		return
	}

	a.Total, a.Ambiguous = a.Counts.Inside()
	a.Reported = true
	a.Total.ServerToolRequests = max(a.Total.ServerToolRequests, made)
	a.Total.Secondary = second
}

// recordPart reads the usage that an event reports before the end of the response: it is part of the usage, and its output a
// placeholder.
func (a *reader) recordPart(p *responseParts) {
	if a.Report(p.usage) < answer.Placeholder {
		return
	}
	a.Counts.ForgetOutput()
	a.Total, a.Ambiguous = a.Counts.Inside()
}

// searchRequests reads the provider's own count of searches; ok is false if there is none that can be read.
func searchRequests(toolUsage []byte) (n int64, ok bool) {
	raw, found := jsonspan.Find(toolUsage, "web_search", "num_requests")
	n, ok = usagereport.Count(raw)
	return n, found && ok
}

// toolCalls counts the calls of provider-run tools among the items of an output: all of them, and the searches.
func toolCalls(output []byte) (all, search int64) {
	it := jsonspan.ArrayAt(output, 0)
	for it.Next() {
		kind, _ := jsonspan.Find(output[it.Start():], "type")
		name, _ := jsonspan.Text(nil, kind)
		switch string(name) {
		case "web_search_call":
			if isCharged(output[it.Start():]) {
				search++
				all++
			}
		case "code_interpreter_call", "file_search_call", "mcp_call":
			all++
		}
	}
	return all, search
}

// isCharged reports whether a call of the search tool is a search that was made. Providers do not charge pages that the
// model opens or searches within, nor calls that have failed.
func isCharged(call []byte) bool {
	raw, _ := jsonspan.Find(call, "status")
	status, _ := jsonspan.Text(nil, raw)
	raw, _ = jsonspan.Find(call, "action", "type")
	action, _ := jsonspan.Text(nil, raw)
	return string(status) != "failed" && (len(action) == 0 || string(action) == "search")
}

// imageToolUsage reads the usage of the image tool, which is not part of the usage of the model that called it. ok is false
// if it cannot be read.
func imageToolUsage(toolUsage, output []byte) (second price.Secondary, ok bool) {
	tool, _ := jsonspan.Find(toolUsage, "image_gen")
	c, _, readable := usagereport.Read(tool)
	if !readable {
		return second, false
	}

	u, _ := c.Picture()
	second = price.Secondary{
		Input:       u.Input,
		ImageIn:     u.ImageIn,
		CachedInput: u.CachedInput,
		Output:      u.Output,
		ImageOut:    u.ImageOut,
	}

	it := jsonspan.ArrayAt(output, 0)
	for it.Next() {
		call := output[it.Start():]
		if jsonspan.FindText(call, "type") == "image_generation_call" && jsonspan.FindText(call, "status") != "failed" {
			second.Images++
		}
	}

	if second != (price.Secondary{}) {
		second.Kind = price.ImageTool
	}

	return second, true
}
