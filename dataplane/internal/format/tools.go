package format

import (
	"slices"
	"strconv"
	"strings"

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
	// must have that price, which may be zero.
	ProviderTool
	// TokenTool is run by the provider and costs nothing but the tokens that it reads and writes, which the price sheet
	// prices in any case. The model's policy must allow it.
	TokenTool
	// UnpricedTool is run by the provider and has a cost that no price sheet can express. It is never offered.
	UnpricedTool
	// ImageTool and AdvisorTool are provider-run tools that use a secondary model, which must have a price.
	ImageTool
	AdvisorTool
	// UnknownTool is no tool of the format. It is always refused.
	UnknownTool
)

// Tools describes the tools of a format.
type Tools struct {
	places *toolNode
	// classFunc returns the class of a tool by its type, empty if it has none, and its definition. The definition is
	// nil if only the type is known.
	classFunc  func(kind string, tool []byte) ToolClass
	choiceFunc func(raw []byte) ToolChoice
	// checkFunc returns the refusal of a member of a definition that the model offers, with the path below the definition as
	// parameter; nil if there is none. The function is nil for a format without such members.
	checkFunc func(tool []byte) *apierr.Error
}

// NewTools returns the description of a format's tools. places lists every place of a request that carries definitions
// of tools, as paths such as input[].tools[]; a tool may contain further tools in its member tools, and its definition
// in its member definition. choiceFunc reads the member tool_choice.
func NewTools(places []string, classFunc func(kind string, tool []byte) ToolClass, choiceFunc func(raw []byte) ToolChoice) *Tools {
	t := &Tools{places: &toolNode{}, classFunc: classFunc, choiceFunc: choiceFunc}
	for _, place := range places {
		t.places.add(strings.Split(strings.ReplaceAll(place, "[]", ".[]"), "."))
	}
	return t
}

// Checked returns t with a check of the members of definitions that a model offers: some refer to what a provider has stored, or
// cost more than the price of a call.
func (t *Tools) Checked(checkFunc func(tool []byte) *apierr.Error) *Tools {
	t.checkFunc = checkFunc
	return t
}

// ToolChoice says which tools the model must call.
type ToolChoice struct {
	// Kinds are the types of the tools that alone may be called, empty if any may. Param is the path of the type, or
	// that of the list of tools.
	Kinds []string
	Param string
	// Name is the name of the only tool that may be called, empty if there is none.
	Name string
	// Required reports whether the model must call some tool, None whether it must call none.
	Required, None bool
}

// toolNode is a step on the way to definitions of tools. A node without next steps is a definition.
type toolNode struct {
	elements *toolNode            // of an array
	members  map[string]*toolNode // of an object
}

func (n *toolNode) add(steps []string) {
	if len(steps) == 0 {
		return
	}

	next := &n.elements
	if steps[0] != "[]" {
		if n.members == nil {
			n.members = map[string]*toolNode{}
		}
		if n.members[steps[0]] == nil {
			n.members[steps[0]] = &toolNode{}
		}
		n.members[steps[0]].add(steps[1:])
		return
	}

	if *next == nil {
		*next = &toolNode{}
	}

	(*next).add(steps[1:])
}

const (
	// maxToolNesting bounds how deep groups of tools are checked.
	maxToolNesting = 4
	// maxToolPath bounds the steps from the body to a tool: those of a place, and two for each level of a group.
	maxToolPath = 8 + 2*(maxToolNesting+1)
)

// toolPath is the way to the value that is being read.
type toolPath struct {
	steps [maxToolPath]pathStep
	depth int
}

// pathStep is the name of a member or, if that is empty, the index of an element.
type pathStep struct {
	name  string
	index int
}

func (p *toolPath) push(name string, index int) {
	p.steps[p.depth] = pathStep{name, index}
	p.depth++
}

func (p *toolPath) pop() { p.depth-- }

// String returns the path in the form input[3].tools[0].
func (p *toolPath) String() string {
	var b strings.Builder
	for i, step := range p.steps[:p.depth] {
		switch {
		case step.name == "":
			b.WriteString("[" + strconv.Itoa(step.index) + "]")
		case i > 0:
			b.WriteByte('.')
			fallthrough
		default:
			b.WriteString(step.name)
		}
	}
	return b.String()
}

// toolCheck checks the tools of one request.
type toolCheck struct {
	tools  *Tools
	policy *Policy
	rules  Rules
	choice ToolChoice
	// offered reports whether the model can call some tool; kinds are the types of the offered ones.
	offered bool
	kinds   []string
	// leftOut is the refusal of the first tool that is left out, nil if there is none.
	leftOut *apierr.Error
	// listed reports whether one of them is in the member tools.
	listed bool
	// forced is the refusal of the first of them that the choice names.
	forced *apierr.Error
	path   toolPath
}

// checkTools refuses the tools that the model does not offer and that the request forces it to call, or that the policy
// does not leave out. Tools that are left out are removed by AppendUpstream.
func (r *Request) checkTools(p *Policy, rules Rules) *apierr.Error {
	t := r.spec.Tools
	if t == nil {
		return nil
	}

	check := toolCheck{tools: t, policy: p, rules: rules}
	if raw := r.Value("tool_choice"); raw != nil {
		check.choice = t.choiceFunc(raw)
	}

	body, members := r.obj.Body(), r.obj.Members()
	for i := range members {
		m := &members[i]
		node := t.places.members[string(m.Name)]
		if node == nil || m.Kind == jsonspan.KindNull {
			continue
		}
		check.path.push(string(m.Name), 0)
		if _, refused := check.value(node, m.Value.Of(body), 0); refused != nil {
			return refused
		}
		check.path.pop()
	}

	if refused := check.checkChoice(); refused != nil {
		return refused
	}

	r.leftOut = check.leftOut != nil
	r.leavesOut = r.leavesOut || r.leftOut
	return nil
}

// value checks the definitions in the value at index i of text. It returns the index after the value, 0 if it is
// unknown. One object in place of a list, and a list within a list, are refused: a lenient provider would read them.
func (c *toolCheck) value(n *toolNode, text []byte, i int) (end int, refused *apierr.Error) {
	kind := jsonspan.KindOf(text[i:])
	switch {
	case n.elements != nil && kind == jsonspan.KindObject:
		return 0, Invalid(c.path.String(), "an array")
	case n.members != nil && kind == jsonspan.KindArray:
		return 0, Invalid(c.path.String(), "an object")
	case n.elements != nil:
		it := jsonspan.ArrayAt(text, i)
		for it.Next() {
			c.path.push("", it.Index())
			if end, refused = c.value(n.elements, text, it.Start()); refused != nil {
				return 0, refused
			}
			c.path.pop()
			it.SetEnd(end)
		}
		return it.SkipRest(), nil
	case n.members != nil:
		it := jsonspan.ObjectAt(text, i)
		for it.Next() {
			child := n.members[string(it.DecodedName())]
			if child == nil || it.Kind() == jsonspan.KindNull {
				continue
			}
			c.path.push(string(it.DecodedName()), 0)
			if end, refused = c.value(child, text, it.Start()); refused != nil {
				return 0, refused
			}
			c.path.pop()
			it.SetEnd(end)
		}
		return it.SkipRest(), nil
	}

	end = jsonspan.SkipValue(text, i)
	return end, c.tool(text[i:end], maxToolNesting)
}

// tool checks one definition and those inside of it.
func (c *toolCheck) tool(tool []byte, depth int) *apierr.Error {
	if jsonspan.KindOf(tool) != jsonspan.KindObject {
		return Invalid(c.path.String(), "an object")
	}
	if depth == 0 {
		return Unsupported(c.path.String())
	}

	kind := jsonspan.FindText(tool, "type")
	if class := c.tools.classFunc(kind, tool); !c.policy.offersTool(kind, c.rules, class) {
		refusal := unsupportedTool(c.path.String()+".type", kind)
		named := c.choice.Name != "" && jsonspan.FindText(tool, "name") == c.choice.Name
		if class == UnknownTool || named || c.policy.Row("tools").Otherwise != Drop {
			return refusal
		}
		if c.leftOut == nil {
			c.leftOut = refusal
		}
		c.listed = c.listed || c.path.steps[0].name == "tools"
		if c.forced == nil && slices.Contains(c.choice.Kinds, kind) {
			c.forced = refusal
		}
		return nil
	}

	if refused := c.members(tool); refused != nil {
		return refused
	}

	definition, isDefined := jsonspan.Find(tool, "definition")
	if shape := jsonspan.KindOf(definition); isDefined {
		isDefined = shape == jsonspan.KindObject || shape == jsonspan.KindArray
	}

	if isDefined {
		c.path.push("definition", 0)
		if refused := c.tool(definition, depth-1); refused != nil {
			return refused
		}
		c.path.pop()
	}

	group, ok := jsonspan.Find(tool, "tools")
	if ok && jsonspan.KindOf(group) == jsonspan.KindObject {
		return Invalid(c.path.String()+".tools", "an array")
	}

	if !ok || jsonspan.KindOf(group) != jsonspan.KindArray {
		if !isDefined {
			c.offered, c.kinds = true, append(c.kinds, kind)
		}
		return nil
	}

	it := jsonspan.ArrayAt(group, 0)
	for it.Next() {
		c.path.push("tools", 0)
		c.path.push("", it.Index())
		if refused := c.tool(it.Value(), depth-1); refused != nil {
			return refused
		}
		c.path.pop()
		c.path.pop()
	}

	return nil
}

// members checks the members of a definition that the model offers.
func (c *toolCheck) members(tool []byte) *apierr.Error {
	if c.tools.checkFunc == nil {
		return nil
	}
	refused := c.tools.checkFunc(tool)
	if refused != nil {
		refused.Param = c.path.String() + "." + refused.Param
	}
	return refused
}

// checkChoice refuses a choice of tools none of which the model offers, or that demands a call although no tool is left.
func (c *toolCheck) checkChoice() *apierr.Error {
	isOffered := func(kind string) bool {
		return slices.Contains(c.kinds, kind) || c.policy.offersTool(kind, c.rules, c.tools.classFunc(kind, nil))
	}
	some := slices.ContainsFunc(c.choice.Kinds, isOffered)
	if !some && c.forced != nil {
		return c.forced
	}

	for i, kind := range c.choice.Kinds {
		if isOffered(kind) {
			continue
		}
		param := c.choice.Param
		if !strings.HasSuffix(param, ".type") {
			param = ElementPath(param, i) + ".type"
		}
		c.leftOut = unsupportedTool(param, kind)
		if !some || c.policy.Row("tools").Otherwise != Drop {
			return c.leftOut
		}
	}

	// A request that has no other tools asks for nothing but these: an answer without them would be an invented one.
	if !c.offered && (c.choice.Required || c.listed && !c.choice.None) {
		return c.leftOut
	}

	return nil
}

// offersTool reports whether the policy and the prices allow a tool of the given type and class.
func (p *Policy) offersTool(kind string, rules Rules, class ToolClass) bool {
	row := p.params["tools"]
	offered := false
	switch class {
	case ClientTool:
		return true
	case ProviderTool:
		offered = rules.HasToolPrice()
	case TokenTool:
		offered = true
	case ImageTool:
		offered = rules.HasSecondaryPrice(price.ImageTool)
	case AdvisorTool:
		offered = rules.HasSecondaryPrice(price.Advisor)
	case UnpricedTool, UnknownTool:
	}

	return offered && row != nil && row.allowsTool([]byte(kind))
}

// OffersResult reports whether a request may ask for the results of provider-run tools whose type begins with kind:
// because the model offers them, or because the request defines such a tool and both are left out.
func (r *Request) OffersResult(p *Policy, rules Rules, kind string) bool {
	if p.offersTool(kind, rules, r.spec.Tools.classFunc(kind, nil)) {
		return true
	}
	for tool := range jsonspan.Elements(r.Value("tools")) {
		if r.leavesOut && strings.HasPrefix(jsonspan.FindText(tool, "type"), kind) {
			return true
		}
	}
	return false
}

// ToolOfResult returns the beginning of the type of the tool whose results a member of include names, such as
// web_search for web_search_call.results; ok is false if it names no results of a tool.
func ToolOfResult(name string) (kind string, ok bool) {
	kind, _, ok = strings.Cut(name, "_call")
	return kind, ok
}
