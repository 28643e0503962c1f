package catalogfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Changes is the server's response to a catalog document.
type Changes struct {
	DryRun   bool      `json:"dry_run"`
	Revision int64     `json:"revision"`
	Changes  []Change  `json:"changes"`
	Accounts []Account `json:"accounts"`
}

// Change is one difference.
type Change struct {
	Action string          `json:"action"`
	Kind   string          `json:"kind"`
	ID     string          `json:"id"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	Reach  *Reach          `json:"reach"`
	Calls  []Call          `json:"calls"`
}

// Call is an address of a provider that a change makes or changes.
type Call struct {
	Route  string `json:"route"`
	Format string `json:"format"`
	Stream bool   `json:"stream"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Reach has the numbers of accounts that a change affects.
type Reach struct {
	Models  []string `json:"models"`
	Public  bool     `json:"public"`
	Granted int64    `json:"granted_accounts"`
	Active  int64    `json:"active_accounts"`
}

// Account is an account that recently used a model that changes.
type Account struct {
	ID       string   `json:"account_id"`
	Name     string   `json:"name"`
	Models   []string `json:"models"`
	Requests int64    `json:"requests"`
	Cost     string   `json:"cost"`
}

// Empty reports whether there are no changes.
func (c *Changes) Empty() bool { return len(c.Changes) == 0 }

var signs = map[string]string{"create": "+", "update": "~", "remove": "-"}

// Write writes the changes for people.
func (c *Changes) Write(w io.Writer) error {
	var out bytes.Buffer
	if c.Empty() {
		fmt.Fprintf(&out, "No changes: the catalog at revision %d is the same.\n", c.Revision)
	}
	for i := range c.Changes {
		c.Changes[i].write(&out)
	}
	c.accounts(&out)
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (c *Change) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "%s %s %s%s\n", signs[c.Action], c.Kind, c.ID, c.Reach)
	before, after := leaves(c.Before), leaves(c.After)
	paths := slices.Sorted(maps.Keys(before))
	for path := range after {
		if _, both := before[path]; !both {
			paths = append(paths, path)
		}
	}

	slices.Sort(paths)
	for _, path := range paths {
		was, had := before[path]
		is, has := after[path]
		label := path
		if label == "" {
			label = "value"
		}
		switch {
		case had && has && was == is:
		case had && has:
			fmt.Fprintf(out, "    %s: %s → %s%s\n", label, was, is, percent(c.Kind, was, is))
		case has:
			fmt.Fprintf(out, "    %s: %s\n", plus(label, c.Action), is)
		case c.Action != "remove":
			fmt.Fprintf(out, "    - %s: %s\n", label, was)
		}
	}
	c.calls(out)
}

// calls writes the addresses that will be called. Those of a provider are on several routes.
func (c *Change) calls(out *bytes.Buffer) {
	for _, call := range c.Calls {
		what := call.Format
		if call.Stream {
			what += " streams"
		}
		if c.Kind != "route" {
			what += " of route " + call.Route
		}
		if call.Before != "" {
			call.After = call.Before + " → " + call.After
		}
		fmt.Fprintf(out, "    calls for %s: %s\n", what, call.After)
	}
}

// plus marks a new member of an object.
func plus(label, action string) string {
	if action == "update" {
		return "+ " + label
	}
	return label
}

// String returns the affected models and accounts in brackets.
func (r *Reach) String() string {
	if r == nil {
		return ""
	}
	var parts []string
	if len(r.Models) > 1 {
		parts = append(parts, fmt.Sprintf("%d models", len(r.Models)))
	}
	if r.Public {
		parts = append(parts, "public")
	} else {
		parts = append(parts, count(r.Granted, "grant"))
	}
	return "  (" + strings.Join(append(parts, count(r.Active, "account")+" in 30 days"), ", ") + ")"
}

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// percent returns the change of a price in percent.
func percent(kind, was, is string) string {
	before, ok := new(big.Rat).SetString(was)
	after, okToo := new(big.Rat).SetString(is)
	if kind != "price" || !ok || !okToo || before.Sign() == 0 {
		return ""
	}
	change := after.Sub(after, before)
	change.Mul(change.Quo(change, before), big.NewRat(100, 1))
	text := change.FloatString(1)
	if change.Sign() > 0 {
		text = "+" + text
	}
	return " (" + text + " %)"
}

// leaves returns the values of an object by dotted path. A list of scalars is one value.
func leaves(text json.RawMessage) map[string]string {
	found := map[string]string{}
	if len(text) == 0 {
		return found
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) == nil && value != nil {
		walk(found, "", value)
	}
	return found
}

func walk(found map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			walk(found, strings.TrimPrefix(path+"."+name, "."), member)
		}
	case []any:
		if !slices.ContainsFunc(v, isObject) {
			texts := make([]string, len(v))
			for i, item := range v {
				texts[i] = fmt.Sprint(item)
			}
			found[path] = "[" + strings.Join(texts, ", ") + "]"
			return
		}
		for i, item := range v {
			walk(found, path+"["+label(item, i)+"]", item)
		}
	default:
		found[path] = fmt.Sprint(v)
	}
}

// label identifies an entry of a list by its members, so that an inserted entry does not change the paths of those that
// follow.
func label(item any, i int) string {
	object, _ := item.(map[string]any)
	for _, name := range []string{"above_input", "size", "name", "id"} {
		if value, found := object[name]; found {
			text := fmt.Sprint(value)
			if quality, ok := object["quality"]; ok {
				text += " " + fmt.Sprint(quality)
			}
			return text
		}
	}
	if object["price"] != nil {
		return strings.TrimSpace(fmt.Sprint("any ", orEmpty(object["quality"])))
	}
	return strconv.Itoa(i)
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

func isObject(v any) bool {
	_, is := v.(map[string]any)
	return is
}

// accounts writes the accounts that used models which change.
func (c *Changes) accounts(out *bytes.Buffer) {
	if len(c.Accounts) == 0 {
		return
	}
	fmt.Fprintf(out, "\nAccounts that used these models in the last 30 days:\n")
	for _, a := range c.Accounts {
		fmt.Fprintf(
			out,
			"  %s  %q  %s requests, %s  (%s)\n",
			a.ID,
			a.Name,
			strconv.FormatInt(a.Requests, 10),
			a.Cost,
			strings.Join(a.Models, ", "),
		)
	}
}
