package gwctl

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/gwctl/access"
	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/render"
	"modelgateway/shared/platform/apidoc"
)

// completionTimeout bounds how long a shell waits for ids; maxParents bounds the number of accounts whose keys are
// listed.
const (
	completionTimeout = 3 * time.Second
	maxParents        = 20
)

// completeArg returns ids that the server knows.
func (o *operation) completeArg(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) >= len(o.args) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if o.args[len(args)].Name == fileArg.Name {
		return nil, cobra.ShellCompDirectiveDefault
	}
	given := map[string]string{}
	for i, value := range args {
		given[o.args[i].Name] = value
	}
	return o.tool.ids(cmd.Context(), o.args[len(args)].Name, given, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeFlag registers the values of an enumeration, or ids for a flag such as --account-id.
func (o *operation) completeFlag(cmd *cobra.Command, flag string, in *input, words []string) {
	switch {
	case len(words) > 0:
		o.tool.complete(cmd, flag, words)
	case in.kind == "boolean":
		o.tool.complete(cmd, flag, []string{"true", "false"})
	case strings.HasSuffix(in.name, "_id") && in.name != "external_id":
		o.tool.failOn(
			cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return o.tool.ids(cmd.Context(), in.name, nil, typed), cobra.ShellCompDirectiveNoFileComp
			}),
		)
	}
}

// ids gets the ids of one kind of object with their names from the server. After an error the list is empty, because a
// shell cannot show errors.
func (t *tool) ids(ctx context.Context, param string, given map[string]string, typed string) []string {
	if ctx == nil {
		ctx = context.Background()
	}

	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	client, err := t.client()
	if err != nil {
		return nil
	}

	var found []string
	for _, item := range t.listOf(ctx, client, param, given) {
		id, about := identity(item, param)
		if id != "" && strings.HasPrefix(id, typed) {
			found = append(found, strings.TrimSuffix(id+"\t"+about, "\t"))
		}
	}

	return found
}

// identity returns the id of an object and its name.
func identity(item json.RawMessage, param string) (id, about string) {
	var text string
	if json.Unmarshal(item, &text) == nil {
		return text, "" // a list of ids
	}

	var object map[string]any
	if json.Unmarshal(item, &object) != nil {
		return "", ""
	}

	for _, name := range []string{param, "id"} {
		if id, _ = object[name].(string); id != "" {
			break
		}
	}

	for _, name := range []string{"name", "display_name", "status"} {
		if about, _ = object[name].(string); about != "" {
			break
		}
	}

	return id, render.Printable(about)
}

// listOf gets the objects that a parameter can name. The operation that lists them has a path that ends in the plural of
// the parameter; if there are several, the one with the fewest unknown parameters is called.
func (t *tool) listOf(ctx context.Context, client *call.Client, param string, given map[string]string) []json.RawMessage {
	var best *apidoc.Operation
	open := func(op *apidoc.Operation) []string {
		var names []string
		for _, p := range op.PathParams() {
			if given[p.Name] == "" {
				names = append(names, p.Name)
			}
		}
		return names
	}

	for _, op := range t.doc.Operations {
		if t.lists(op, param) && (best == nil || len(open(op)) < len(open(best))) {
			best = op
		}
	}

	if best == nil {
		return nil
	}

	missing := open(best)
	switch len(missing) {
	case 0:
		return t.page(ctx, client, best, given)
	case 1:
		return t.ofParents(ctx, client, best, missing[0], given)
	default:
		return nil
	}
}

// ofParents concatenates the lists of several objects, such as the keys of accounts.
func (t *tool) ofParents(
	ctx context.Context,
	client *call.Client,
	op *apidoc.Operation,
	parent string,
	given map[string]string,
) []json.RawMessage {
	var all []json.RawMessage
	parents := t.listOf(ctx, client, parent, given)
	for _, item := range parents[:min(len(parents), maxParents)] {
		id, _ := identity(item, parent)
		all = append(all, t.page(ctx, client, op, map[string]string{parent: id})...)
	}
	return all
}

// lists reports whether an operation lists the objects that a parameter such as key_id names.
func (t *tool) lists(op *apidoc.Operation, param string) bool {
	noun := kebab(strings.TrimSuffix(param, "_id"))
	last := kebab(op.Path[strings.LastIndexByte(op.Path, '/')+1:])
	return op.Method == http.MethodGet &&
		slices.Contains([]string{noun + "s", noun + "es", strings.TrimSuffix(noun, "y") + "ies", noun}, last)
}

// page returns the first page of a list.
func (t *tool) page(ctx context.Context, client *call.Client, op *apidoc.Operation, given map[string]string) []json.RawMessage {
	path := op.Path
	for name, value := range given {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(value), 1)
	}

	r := call.Request{
		Method: op.Method,
		Path:   path,
		Query:  url.Values{},
		Header: http.Header{"Accept": {mediaJSON}},
	}
	if op.Param("query", "limit") != nil {
		r.Query.Set("limit", "100")
	}

	answer, err := client.Do(ctx, r)
	if err != nil {
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := readResponse(answer.Body)
	if err != nil {
		return nil
	}

	items, err := render.Items(text)
	if err == nil && items == nil { // the list has another name than data
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil {
			for _, value := range object {
				if json.Unmarshal(value, &items) == nil && items != nil {
					break
				}
			}
		}
	}

	return items
}

// completeContext returns the contexts of the file.
func (t *tool) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	path, err := access.DefaultPath(t.cfg.EnvFunc)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f, err := access.Load(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Names(), cobra.ShellCompDirectiveNoFileComp
}
