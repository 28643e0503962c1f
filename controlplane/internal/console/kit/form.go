package kit

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// Form is a change that a person makes. The template "form" shows it as a page, and a link with data-dialog in a dialog.
type Form struct {
	Title  string
	Crumbs []Link
	// Effects tell what the change will do, one sentence each.
	Effects []string
	Fields  []Field
	// Submit is the text of the button. Danger is set for what cannot be undone or stops customers.
	Submit string
	Danger bool
	// Confirm is a text that must be typed before the change, such as a name; empty for none.
	Confirm string
	// Back is the page to return to without a change.
	Back string
	// Match is the ETag of what is changed, if anything. The value that was shown is sent with the form.
	Match string
	// Command is a command of gwctl that does the same.
	Command string
	// Fresh is set if the change needs a sign-in in the last minutes.
	Fresh bool
	// Review, if set, tells what the change will do with the values that were entered. The form is then shown once more to
	// be confirmed.
	Review func(*Request, *Input) ([]string, error)
	// Do makes the change. Errors of the API with a status below 500 are shown in the form.
	Do func(*Request, *Input) (*Page, error)
}

// Field is a field of a form.
type Field struct {
	// Name is the name of the API's member, so that its problems are shown in place.
	Name, Label, Hint string
	// Kind is that of an input element, or "select", "area", SecretArea, "check", "checks" (several of the options), "file" or
	// "hidden"; empty means text.
	Kind     string
	Value    string
	Values   []string
	Unit     string
	Options  []Option
	Required bool
	// Accept is what a file may be, as the attribute of the element has it.
	Accept string
	// Mono is set for ids, amounts and code; Rows is the height of an area.
	Mono bool
	Rows int
	// Placeholder says what an empty value means.
	Placeholder string
	// Group is the title of the group that the field and its neighbours with the same group are shown in, one a line, or three
	// a line if Column is set. Wide is set for entries that are longer than an amount. A field that is seldom needed is folded
	// while it is empty.
	Group                string
	Column, Seldom, Wide bool
	// When are the choices of the form with which the field is shown; nil for all.
	When []string

	// Error is the problem of the value, Now the present value if it was changed in the meantime. The form sets them.
	Error, Now string
}

// Text returns the value as the field shows it: of a choice its text.
func (f *Field) Text() string {
	if i := slices.IndexFunc(f.Options, func(o Option) bool { return o.Value == f.Value }); i >= 0 {
		return f.Options[i].Label()
	}
	return f.Value
}

// Option is a choice of a field. An empty text means the value.
type Option struct{ Value, Text string }

// Chosen reports whether an option is one of the values of the field.
func (f *Field) Chosen(value string) bool {
	return f.Value == value || slices.Contains(f.Values, value)
}

// SecretArea is the kind of a field for a secret with several lines.
const SecretArea = "secret-area"

// Secret reports whether the page must not contain the value.
func (f *Field) Secret() bool {
	return f.Kind == "password" || f.Kind == "file" || f.Kind == SecretArea
}

// Input is what a person has sent with a form.
type Input struct {
	values url.Values
	files  map[string][]byte
	key    string
	match  string
}

// Text returns a value without spaces around it.
func (in *Input) Text(name string) string { return strings.TrimSpace(in.values.Get(name)) }

// File returns the content of a file to the byte.
func (in *Input) File(name string) []byte { return in.files[name] }

// Checked returns the value of a field of the kind "check".
func Checked(yes bool) string {
	if yes {
		return "yes"
	}
	return ""
}

// All returns the chosen values of a field of the kind "checks".
func (in *Input) All(name string) []string { return in.values[name] }

// Optional returns nil for an empty value.
func (in *Input) Optional(name string) *string { return Optional(in.Text(name)) }

// Checked reports whether a field of the kind "check" is checked.
func (in *Input) Checked(name string) bool { return in.values.Get(name) != "" }

// Int returns nil for an empty value. The error is that of the field.
func (in *Input) Int(name string) (*int64, error) {
	text := in.Text(name)
	if text == "" {
		return nil, nil //nolint:nilnil // no number is a valid value
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, Invalid(name, "must be an integer")
	}
	return &n, nil
}

// Key returns the Idempotency-Key of the form.
func (in *Input) Key() *string { return Optional(in.key) }

// Match returns the ETag of what the form showed.
func (in *Input) Match() *string { return Optional(in.match) }

// FormView is the data of the template "form".
type FormView struct {
	Form
	// Action is the address that the form is sent to.
	Action string
	// Key is the Idempotency-Key, which stays the same until the API has refused the change.
	Key string
	// Reviewed is set if the form is shown to be confirmed: its fields cannot be changed.
	Reviewed bool
	// Stale is set if the person has to sign in again first.
	Stale bool
	// Problem is shown above the fields, Others are problems of what is no field.
	Problem, Detail string
	Others          []adminclient.FieldError
	// Typed is the problem of the text that had to be typed.
	Typed string
}

// FieldGroup is a row of fields that are shown together. Folded are those that are shown when somebody asks for them.
type FieldGroup struct {
	Title         string
	Column, Wide  bool
	Shown, Folded []Field
}

// Groups returns the fields in groups; fields without a group are each one of their own.
func (v *FormView) Groups() []FieldGroup {
	var groups []FieldGroup
	for _, f := range v.Fields {
		last := len(groups) - 1
		if f.Group == "" || last < 0 || groups[last].Title != f.Group {
			groups = append(groups, FieldGroup{Title: f.Group, Column: f.Column, Wide: f.Wide})
			last++
		}
		g := &groups[last]
		if f.Seldom && f.Value == "" && f.Error == "" && f.Now == "" && !f.Column {
			g.Folded = append(g.Folded, f)
		} else {
			g.Shown = append(g.Shown, f)
		}
	}
	for i := range groups {
		groups[i].fold()
	}
	return groups
}

// fold folds a group that has nothing but empty fields that are seldom needed.
func (g *FieldGroup) fold() {
	if g.Column && !slices.ContainsFunc(g.Shown, func(f Field) bool { return !f.Seldom || f.Value != "" || f.Error != "" || f.Now != "" }) {
		g.Shown, g.Folded = nil, g.Shown
	}
}

// Multipart reports whether the form has a file.
func (v *FormView) Multipart() bool {
	return slices.ContainsFunc(v.Fields, func(f Field) bool { return f.Kind == "file" })
}

const (
	keyName     = "idempotency_key"
	matchName   = "if_match"
	stepName    = "step"
	confirmName = "confirmation"
	secretName  = "not_kept"
	stepDo      = "do"
	stepEdit    = "edit"
)

// FormRoutes returns the routes of a form. build returns the form for what the request names, as it is at present. The
// form takes values of the query as its first values, so that a link can fill it in.
func FormRoutes(pattern, scope string, build func(*Request) (*Form, error)) []Route {
	return []Route{
		{Pattern: "GET " + pattern, Scope: scope, Handle: func(r *Request) (*Page, error) { return showForm(r, build) }},
		{Pattern: "POST " + pattern, Scope: scope, Handle: func(r *Request) (*Page, error) { return takeForm(r, build) }},
	}
}

func showForm(r *Request, build func(*Request) (*Form, error)) (*Page, error) {
	form, err := build(r)
	if err != nil {
		return nil, err
	}
	if form.Fresh && !r.Session.Fresh() {
		return Go("/console/sign-in?again=1&return_to="+url.QueryEscape(r.URL.RequestURI()), nil)
	}
	query := r.URL.Query()
	for i := range form.Fields {
		if f := &form.Fields[i]; !f.Secret() && query.Has(f.Name) {
			f.Value, f.Values = query.Get(f.Name), query[f.Name]
		}
	}
	return formPage(r, &FormView{Form: *form, Key: rand.Text()}), nil
}

func formPage(r *Request, view *FormView) *Page {
	view.Action = r.URL.RequestURI()
	return &Page{
		Template: "form",
		Title:    view.Title,
		Crumbs:   view.Crumbs,
		Command:  view.Command,
		Data:     view,
	}
}

func takeForm(r *Request, build func(*Request) (*Form, error)) (*Page, error) {
	in, err := read(r)
	if err != nil {
		return nil, err
	}

	form, err := build(r)
	if err != nil {
		return nil, err
	}

	view := &FormView{Form: *form, Key: in.key}
	view.fill(in)
	page, err := view.take(r, in)
	if err == nil {
		return page, nil
	}

	refused, ok := errors.AsType[*adminclient.Error](err)
	if !ok {
		return nil, err
	}

	view.refuse(refused, form)
	page = formPage(r, view)
	page.Status = refused.StatusCode
	return page, nil
}

// take makes the change, or shows the form again if something is missing.
func (v *FormView) take(r *Request, in *Input) (*Page, error) {
	step := in.values.Get(stepName)
	switch {
	case v.Fresh && !r.Session.Fresh():
		v.Stale = true
		page := formPage(r, v)
		page.Status = http.StatusForbidden
		return page, nil
	case step == stepEdit:
		return formPage(r, v), nil
	}

	confirmed := v.Confirm == "" || in.Text(confirmName) == v.Confirm
	if v.Review != nil && (step != stepDo || !confirmed) {
		effects, err := v.Review(r, in)
		if err != nil {
			return nil, err
		}
		v.Effects, v.Reviewed = effects, true
		if step != stepDo {
			return formPage(r, v), nil
		}
	}

	if !confirmed {
		v.Typed = "Type " + v.Confirm + " to confirm."
		page := formPage(r, v)
		page.Status = http.StatusBadRequest
		return page, nil
	}

	return v.Do(r, in)
}

// maxMemory bounds the memory for the files of a form; larger ones wait on the disk.
const maxMemory = 16 << 20

// read reads the values and files that were sent.
func read(r *Request) (*Input, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		if err := r.ParseMultipartForm(maxMemory); err != nil {
			return nil, Invalid("", "The form could not be read, or its file is too large")
		}
		defer func() { _ = r.MultipartForm.RemoveAll() }()
	} else if err := r.ParseForm(); err != nil {
		return nil, Invalid("", "The form could not be read")
	}

	in := &Input{values: r.PostForm, key: r.PostFormValue(keyName), match: r.PostFormValue(matchName)}
	if r.MultipartForm == nil {
		return in, nil
	}

	in.files = map[string][]byte{}
	for name, files := range r.MultipartForm.File {
		if len(files) == 0 || files[0].Size == 0 {
			continue
		}
		file, err := files[0].Open()
		if err != nil {
			return nil, err //nolint:wrapcheck // the console logs it with the path
		}
		text := make([]byte, files[0].Size)
		_, err = io.ReadFull(file, text)
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		in.files[name] = text
	}

	return in, nil
}

// fill sets the fields to what was entered. What the person saw before stays the state that is changed.
func (v *FormView) fill(in *Input) {
	v.Fields = slices.Clone(v.Fields)
	for i := range v.Fields {
		if f := &v.Fields[i]; !f.Secret() {
			f.Value, f.Values = in.values.Get(f.Name), in.values[f.Name]
		}
	}
	if in.match != "" {
		v.Match = in.match
	}
}

// refuse shows why the API refused the change.
func (v *FormView) refuse(e *adminclient.Error, now *Form) {
	if e.StatusCode < http.StatusInternalServerError {
		v.Key = rand.Text() // nothing was done, so other values are another change
	}

	v.Problem = e.Problem.Title
	if e.Problem.Detail != nil {
		v.Detail = *e.Problem.Detail
	}

	switch {
	case e.StatusCode == http.StatusPreconditionFailed:
		v.Match = now.Match
		v.Problem = "It was changed after you opened this form"
		v.Detail = "The present values stand beside yours. Send the form again to replace them."
		for i := range v.Fields {
			if present := now.Fields[i].Value; present != v.Fields[i].Value {
				v.Fields[i].Now = present
			}
		}
	case e.StatusCode >= http.StatusInternalServerError:
		v.Detail = strings.TrimSpace(v.Detail + " It is not known whether the change was made. Send the form again: it is made once.")
	}

	for _, problem := range e.Problem.Errors {
		if f := v.field(problem.Field); f != nil {
			f.Error = strings.TrimLeft(strings.TrimPrefix(problem.Field, f.Name)+" "+problem.Detail, ". ")
		} else {
			v.Others = append(v.Others, problem)
		}
	}
}

// field returns the field of a member such as "name", or "model_multipliers.example-large" of "model_multipliers". A problem of an
// object that has fields of its own is that of the first of them.
func (v *FormView) field(member string) *Field {
	at := slices.IndexFunc(v.Fields, func(f Field) bool {
		rest, ok := strings.CutPrefix(member, f.Name)
		return ok && f.Kind != "hidden" && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
	if at < 0 && member != "" {
		at = slices.IndexFunc(v.Fields, func(f Field) bool { return f.Kind != "hidden" && strings.HasPrefix(f.Name, member+".") })
	}
	if at < 0 {
		return nil
	}
	return &v.Fields[at]
}

// Label returns the text of an option.
func (o Option) Label() string { return cmp.Or(o.Text, o.Value) }

// SetMember sets the member with a path. The entries of a list are members named by their indices.
func SetMember(members map[string]any, path string, value any) {
	names := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune(".[]", c) })
	for _, name := range names[:len(names)-1] {
		below, ok := members[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			members[name] = below
		}
		members = below
	}
	members[names[len(names)-1]] = value
}
