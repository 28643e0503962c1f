package gwctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/controlplane/internal/gwctl/render"
	"modelgateway/shared/platform/apidoc"
)

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
	// maxResponse bounds a response that is held in memory, in bytes. Streams have no bound.
	maxResponse = 256 << 20
)

// operation is the command of one operation of the API.
type operation struct {
	tool *tool
	op   *apidoc.Operation
	// args are the parameters of the path, inputs the flags.
	args   []apidoc.Param
	inputs []*input
	// body is the media type of the body that flags can build; nil if there is none.
	body *apidoc.Media
	// data, all and accept are the values of the flags of those names.
	data, accept string
	all          bool
}

// operationAnnotation is the annotation of a command with the operation's id.
const operationAnnotation = "operation"

// readsAnnotation marks a command that changes nothing and needs no argument.
const readsAnnotation = "reads"

// command returns the command of an operation.
func (t *tool) command(op *apidoc.Operation, name commandName) *cobra.Command {
	o := &operation{tool: t, op: op, args: op.PathParams()}
	if o.takesFile() {
		o.args = append(o.args, fileArg)
	}
	use := []string{name.verb}
	for _, arg := range o.args {
		use = append(use, "<"+arg.Name+">")
	}

	cmd := &cobra.Command{
		Use:         strings.Join(use, " "),
		Short:       op.Summary,
		Long:        o.long(),
		Annotations: map[string]string{operationAnnotation: op.ID},
		Args:        o.checkArgs,
		RunE:        func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	if op.Method == http.MethodGet && len(o.args) == 0 {
		cmd.Annotations[readsAnnotation] = "yes"
	}

	cmd.ValidArgsFunction = o.completeArg
	o.addFlags(cmd)
	cmd.Example = o.example(name.group, name.verb)
	return cmd
}

// checkArgs checks the number of arguments.
func (o *operation) checkArgs(cmd *cobra.Command, args []string) error {
	if len(args) > len(o.args) {
		text := "takes no argument"
		if len(o.args) > 0 {
			text = "has too many arguments: " + cmd.Use
		}
		if cmd.Flags().Lookup("account-id") != nil {
			text += "; --account-id selects an account"
		}
		return fmt.Errorf("%q: the command %s", args[len(o.args)], text)
	}

	var missing []string
	for _, arg := range o.args[len(args):] {
		missing = append(missing, "<"+arg.Name+">")
	}

	if len(missing) > 0 {
		return fmt.Errorf("required: %s", strings.Join(missing, ", "))
	}

	return nil
}

// long returns the help text.
func (o *operation) long() string {
	text := o.op.Summary + ".\n"
	if o.op.Description != "" {
		text += "\n" + o.op.Description + "\n"
	}
	if o.op.ID == "getDiagnosis" {
		text += "\n`gwctl doctor` runs the same checks; it shows the problems only, with advice, and its exit code reports failures.\n"
	}
	text += "\n" + o.op.Method + " " + o.op.Path
	if o.op.Scope != "" {
		text += " requires a token of scope " + o.op.Scope
	}
	return text + "."
}

// addFlags adds a flag for every parameter outside the path and for every member of the body.
func (o *operation) addFlags(cmd *cobra.Command) {
	doc := o.tool.doc
	for _, p := range o.op.Params {
		// --accept and --output choose the media type.
		if p.In == "path" || strings.EqualFold(p.Name, "Accept") {
			continue
		}
		in := newInput(doc, p.Name, p.In, p.Required, p.Schema, o.tool.read)
		o.add(cmd, in, cmp.Or(p.Description, in.schema.Description))
	}

	if o.op.Body != nil {
		if media, found := apidoc.In(o.op.Body.Media, mediaJSON); found {
			o.body = &media
			for _, p := range doc.Members(media.Schema) {
				in := newInput(doc, p.Name, "body", p.Required, p.Schema, o.tool.read)
				o.add(cmd, in, in.schema.Description)
			}
		} else if len(o.op.Body.Media) > 0 {
			o.body = &o.op.Body.Media[0]
		}
		if !o.takesFile() {
			cmd.Flags().StringVar(&o.data, "data", "",
				"request body: `text`, @file, or - for standard input; other flags replace its members")
		}
	}

	if types := o.answerTypes(); len(types) > 1 {
		cmd.Flags().StringVar(&o.accept, "accept", "", "media type of the response: `"+strings.Join(types, ", ")+"`")
		o.tool.complete(cmd, "accept", types)
	}

	if o.op.Method == http.MethodGet && o.op.Param("query", "cursor") != nil {
		cmd.Flags().BoolVar(&o.all, "all", false, "get all pages")
	}
}

// add adds one flag. If its name is in use, it is prefixed with query-, header- or body-.
func (o *operation) add(cmd *cobra.Command, in *input, help string) {
	name := kebab(in.name)
	if o.tool.reserved(name) || cmd.Flags().Lookup(name) != nil {
		name = in.in + "-" + name
	}

	in.flag = name
	if in.in == "query" {
		help = cmp.Or(waitHelp[in.name], help)
	}

	help = strings.TrimSuffix(strings.Join(strings.Fields(strings.ReplaceAll(help, "`", "")), " "), ".")
	words := in.words()
	var notes []string
	if len(words) > 0 {
		notes = append(notes, strings.Join(words, ", "))
	}
	if in.required {
		notes = append(notes, "required")
	}
	if in.nullable {
		notes = append(notes, "null: none")
	}
	if low, high := in.schema.Minimum, in.schema.Maximum; low != nil && high != nil {
		notes = append(notes, fmt.Sprintf("%d to %d", *low, *high))
	}
	if d := in.schema.Default; d != nil {
		notes = append(notes, fmt.Sprintf("default %v", d))
	}
	if len(notes) > 0 {
		help = strings.TrimSpace(help + " (" + strings.Join(notes, "; ") + ")")
	}

	flag := cmd.Flags().VarPF(in, name, "", help)
	if in.kind == "boolean" && !in.nullable {
		flag.NoOptDefVal = "true"
	}
	if in.in == "query" && len(words) == 1 {
		flag.NoOptDefVal = words[0]
	}
	if in.isSecret() {
		cmd.Flags().Var(secretFile{in}, name+"-file", "read it from a file; - for standard input")
	}

	o.inputs = append(o.inputs, in)
	o.completeFlag(cmd, name, in, words)
}

// waitHelp replaces the descriptions of the parameters of a wait, which are those of the API.
var waitHelp = map[string]string{
	"wait":    "return when every live proxy uses the change, or after --timeout; the change is made in either case",
	"timeout": "with --wait: how long the server waits, up to 1m",
}

// answerTypes returns the media types of a successful response.
func (o *operation) answerTypes() []string {
	var types []string
	for _, media := range o.op.Success().Media {
		types = append(types, media.Type)
	}
	return types
}

// run calls the operation and writes the response.
func (o *operation) run(ctx context.Context, args []string) error {
	request, err := o.request(args)
	if err != nil {
		return err
	}
	if unknown := render.UnknownColumns(o.tool.doc, o.successSchema(), o.tool.columns); len(unknown) > 0 {
		return usagef("--columns: unknown columns: %s", strings.Join(unknown, ", "))
	}

	client, err := o.tool.client()
	if err != nil {
		return err
	}
	if o.all {
		return o.pages(ctx, client, request)
	}

	answer, err := client.Do(ctx, request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	media, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	if media != mediaJSON && media != "" {
		return o.tool.stream(answer.Body)
	}

	text, err := readResponse(answer.Body)
	if err != nil {
		return err
	}

	if len(text) == 0 {
		o.tool.printErr("done: %s", strings.Join(append([]string{o.op.Summary}, args...), " "))
	} else if err := o.tool.writer().Show(o.schema(answer.StatusCode), text); err != nil {
		return err
	}

	o.note(answer, text)
	return pending(answer, text)
}

// note prints what the body of a response does not tell, or tells by a list that is empty.
func (o *operation) note(answer *http.Response, text []byte) {
	var check struct {
		Answered bool  `json:"answered"`
		Calls    []any `json:"calls"`
	}
	if o.op.ID == "checkProvider" && json.Unmarshal(text, &check) == nil && check.Answered && len(check.Calls) == 0 {
		o.tool.printErr("nothing was called: no enabled route with a credential leads to the provider")
	}
	repeatable := slices.ContainsFunc(o.op.Responses, func(r apidoc.Response) bool { return r.Status == "201" })
	if answer.Header.Get("Idempotent-Replayed") == "true" ||
		(o.op.Method == http.MethodPost && repeatable && answer.StatusCode == http.StatusOK) {
		o.tool.printErr("nothing new: the same request was carried out before, and this is its result")
	}
	if answer.Header.Get("Applied") == "true" {
		o.tool.printErr("applied: every live proxy uses the change: %s", cmp.Or(answer.Header.Get("Applied-By"), "none is running"))
	}
}

// pending returns an error with an exit code if some proxy has not applied a change yet: a revocation with the status 202
// or a wait=applied that timed out.
func pending(answer *http.Response, text []byte) error {
	var state struct {
		Effective  *bool    `json:"effective"`
		WaitingFor []string `json:"waiting_for"`
	}
	if answer.StatusCode == http.StatusAccepted && json.Unmarshal(text, &state) == nil && state.Effective != nil && !*state.Effective {
		names := cmp.Or(strings.Join(state.WaitingFor, ", "), "unknown")
		return &exitError{
			ExitUnreachable,
			fmt.Errorf("the change is made, but these proxies have not confirmed it: %s; run the command again to wait longer", names),
		}
	}
	if answer.Header.Get("Applied") == "false" {
		names := cmp.Or(answer.Header.Get("Applied-Pending"), "unknown")
		return &exitError{ExitUnreachable, fmt.Errorf("the change is made, but these proxies may not have applied it yet: %s", names)}
	}
	return nil
}

// successSchema returns the schema of a successful response.
func (o *operation) successSchema() *apidoc.Schema {
	media, _ := apidoc.In(o.op.Success().Media, mediaJSON)
	return media.Schema
}

// schema returns the schema of the response with a status.
func (o *operation) schema(status int) *apidoc.Schema {
	answer := o.op.Success()
	for _, a := range o.op.Responses {
		if a.Status == strconv.Itoa(status) {
			answer = a
		}
	}
	media, _ := apidoc.In(answer.Media, mediaJSON)
	return media.Schema
}

// request builds the request.
func (o *operation) request(args []string) (call.Request, error) {
	r := call.Request{
		Method: o.op.Method,
		Path:   o.op.Path,
		Query:  url.Values{},
		Header: http.Header{},
	}

	for i, p := range o.args {
		if args[i] == "" {
			return r, usagef("%s is empty", p.Name)
		}
		r.Path = strings.Replace(r.Path, "{"+p.Name+"}", url.PathEscape(args[i]), 1)
	}

	for _, in := range o.inputs {
		switch {
		case in.in == "body":
		case in.set && in.in == "query":
			r.Query[in.name] = in.text()
			if o.op.Param("query", in.name).Joined() {
				r.Query[in.name] = []string{strings.Join(in.text(), ",")}
			}
		case in.set:
			r.Header.Set(in.name, strings.Join(in.text(), ", "))
		case in.required:
			return r, usagef("--%s is required", in.flag)
		}
	}

	accept, err := o.accepted()
	if err != nil {
		return r, err
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}

	return r, o.fill(&r, args)
}

// accepted returns the media type that --accept names. A part of its name is enough.
func (o *operation) accepted() (string, error) {
	types := o.answerTypes()
	if o.accept == "" {
		if len(types) == 0 || slices.Contains(types, mediaJSON) {
			return mediaJSON, nil
		}
		return types[0], nil
	}
	for _, t := range types {
		if strings.Contains(t, o.accept) {
			return t, nil
		}
	}
	return "", usagef("--accept %s: must be one of %s", o.accept, strings.Join(types, ", "))
}

// fill builds the body from --data and the flags.
func (o *operation) fill(r *call.Request, args []string) error {
	if o.op.Body == nil {
		return nil
	}
	if o.takesFile() {
		return o.sendFile(r, args[len(args)-1])
	}

	text, err := o.tool.readData(o.data)
	if err != nil {
		return err
	}

	if o.body == nil || o.body.Type != mediaJSON {
		r.Body = text
		if o.body != nil {
			r.Header.Set("Content-Type", o.body.Type)
		}
		return nil
	}

	members := map[string]json.RawMessage{}
	if o.data != "" {
		whole, err := toJSON(text)
		if err != nil {
			return usagef("--data: %w", err)
		}
		if err := json.Unmarshal(whole, &members); err != nil {
			return usagef("--data must be an object")
		}
		r.Body = whole
	}

	named := o.nameObject(members, args)
	given, err := o.overlay(members)
	if err != nil {
		return err
	}

	if given || (named && o.data != "") || (o.data == "" && o.op.Body.Required) {
		if r.Body, err = json.Marshal(members); err != nil {
			return usagef("body: %w", err)
		}
	}

	if r.Body != nil {
		r.Header.Set("Content-Type", mediaJSON)
	}

	return nil
}

// nameObject sets the member of a PUT's body that repeats the last argument, unless the body has it, and reports whether it did.
func (o *operation) nameObject(members map[string]json.RawMessage, args []string) (named bool) {
	if o.op.Method != http.MethodPut || len(args) == 0 {
		return false
	}
	for _, in := range o.inputs {
		_, present := members[in.name]
		if in.in != "body" || !in.required || present || (in.name != "id" && in.name != "name") {
			continue
		}
		// A credential can also be addressed by its generated id, which is not its name.
		if last := args[len(args)-1]; in.name == "id" || !strings.HasPrefix(last, "crd_") {
			members[in.name], _ = json.Marshal(last) //nolint:errchkjson // a string can always be encoded
			named = true
		}
	}
	return named
}

// overlay sets the members that have flags and reports whether there were any.
func (o *operation) overlay(members map[string]json.RawMessage) (bool, error) {
	given := false
	var missing []string
	for _, in := range o.inputs {
		if in.in != "body" {
			continue
		}
		if in.set {
			members[in.name], given = in.value, true
		}
		if _, present := members[in.name]; in.required && !present {
			missing = append(missing, "--"+in.flag)
		}
	}

	if o.op.Body.Required || given || o.data != "" {
		if len(missing) > 0 {
			return false, usagef("required: %s (or --data)", strings.Join(missing, ", "))
		}
	}

	return given, nil
}

// pages gets all pages of a list. NDJSON is written page by page, the other formats at the end.
func (o *operation) pages(ctx context.Context, client *call.Client, r call.Request) error {
	w := o.tool.writer()
	var all []json.RawMessage
	for {
		answer, err := client.Do(ctx, r)
		if err != nil {
			return err
		}

		text, err := readResponse(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return err
		}

		items, err := render.Items(text)
		if err != nil {
			return err
		}

		if w.Format == render.Lines {
			if err := w.Line(items); err != nil {
				return err
			}
		} else {
			all = append(all, items...)
		}

		var page struct {
			Next string `json:"next_cursor"`
		}

		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("decode the response: %w", err)
		}
		if page.Next == "" {
			break
		}

		r.Query.Set("cursor", page.Next)
	}

	if w.Format == render.Lines {
		return nil
	}

	whole := slices.Concat([]byte(`{"data":[`), bytes.Join(raws(all), []byte(",")), []byte("]}"))
	return w.Show(o.schema(http.StatusOK), whole)
}

// readResponse reads a response into memory.
func readResponse(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxResponse+1))
	if err != nil {
		return nil, fmt.Errorf("the response is incomplete: %w", err)
	}
	if len(text) > maxResponse {
		return nil, fmt.Errorf("the response has more than %d MiB", maxResponse>>20)
	}
	return text, nil
}
