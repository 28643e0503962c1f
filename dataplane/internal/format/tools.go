package format

import (
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// ToolClass is the class of a tool: which side runs it and how it is charged.
type ToolClass uint8

// The classes of tools.
const (
	// ClientTool is run by the client, or left to the provider to refuse.
	ClientTool ToolClass = iota
	// ProviderTool is run by the provider at a price per call. The model's policy must allow it and its price sheet
	// must have that price.
	ProviderTool
	// UnpricedTool has a cost that no price sheet can express. It is always refused.
	UnpricedTool
	// ImageTool and AdvisorTool are provider-run tools that use a secondary model, which must have a price.
	ImageTool
	AdvisorTool
)

// maxToolNesting bounds how deep groups of tools are checked.
const maxToolNesting = 4

// CheckTools refuses the tools that the model does not offer. classFunc returns the class of a tool by its type,
// which is empty if the tool has none.
func (r *Request) CheckTools(p *Policy, rules Rules, classFunc func(kind string) ToolClass) *apierr.Error {
	return checkTools("tools", r.Value("tools"), maxToolNesting, func(kind string) bool {
		return p.OffersTool(kind, rules, classFunc(kind))
	})
}

// OffersTool reports whether the policy and the prices allow a tool of the given type and class.
func (p *Policy) OffersTool(kind string, rules Rules, class ToolClass) bool {
	row := p.params["tools"]
	offered := false
	switch class {
	case ClientTool:
		return true
	case ProviderTool:
		offered = rules.HasToolPrice
	case ImageTool:
		offered = rules.HasSecondaryPrice(price.ImageTool)
	case AdvisorTool:
		offered = rules.HasSecondaryPrice(price.Advisor)
	case UnpricedTool:
	}
	return offered && row != nil && row.allowsTool([]byte(kind))
}

func checkTools(path string, raw []byte, depth int, offered func(kind string) bool) *apierr.Error {
	i := 0
	for tool := range jsonspan.Elements(raw) {
		kind := jsonspan.FindText(tool, "type")
		if !offered(kind) {
			return Unsupported(ElementPath(path, i) + ".type")
		}
		if group, ok := jsonspan.Find(tool, "tools"); ok {
			if depth == 0 {
				return Unsupported(ElementPath(path, i) + ".tools")
			}
			if e := checkTools(ElementPath(path, i)+".tools", group, depth-1, offered); e != nil {
				return e
			}
		}
		i++
	}
	return nil
}
