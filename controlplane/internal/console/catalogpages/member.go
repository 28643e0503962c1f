package catalogpages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/shared/catalogkv"
)

// member is a member of a provider, a route or a credential, as a form shows it. Its field is named by its path in the body, so
// that a problem of the API stands at its field.
type member struct {
	path, label, hint, unit, placeholder string
	shape                                shape
	required                             bool
	// group is the title of the group that is folded while it is empty; empty for what is always shown.
	group string
	// options are those of a member with the shape asChoice.
	options []kit.Option
	// kinds are the kinds of credentials that have the member; nil for all.
	kinds []catalogkv.CredentialKind
}

// shape is how a member is entered.
type shape int

const (
	// asText is one line, asArea are several.
	asText shape = iota
	asArea
	asNumber
	// asChoice is one of the options, and absent if it is the empty one.
	asChoice
	// asFlag is absent if it is not checked, asOn is false then.
	asFlag
	asOn
	// asLines are the members of an object, one "NAME: VALUE" in a line.
	asLines
	// asChecks are several of the options, asJSON is an object as JSON.
	asChecks
	asJSON
	// asSecret, asSecretArea and asSecretLines are asText, asArea and asLines that are never shown.
	asSecret
	asSecretArea
	asSecretLines
)

// elements are the kinds of fields of shapes.
var elements = map[shape]string{
	asArea:        "area",
	asNumber:      "number",
	asChoice:      "select",
	asFlag:        "check",
	asOn:          "check",
	asLines:       "area",
	asChecks:      "checks",
	asJSON:        "area",
	asSecret:      "password",
	asSecretArea:  kit.SecretArea,
	asSecretLines: kit.SecretArea,
}

// of reports whether credentials of a kind have the member.
func (m *member) of(kind catalogkv.CredentialKind) bool {
	return m.kinds == nil || slices.Contains(m.kinds, kind)
}

// membersOf returns the members that credentials of a kind have.
func membersOf(all []member, kind catalogkv.CredentialKind) (some []member) {
	for i := range all {
		if all[i].of(kind) {
			some = append(some, all[i])
		}
	}
	return some
}

// field returns the field of the member; at is the path of its object in the body, with a dot, and now the object as it is.
func (m *member) field(at string, now map[string]any) kit.Field {
	f := kit.Field{
		Name:        at + m.path,
		Label:       m.label,
		Hint:        m.hint,
		Unit:        m.unit,
		Placeholder: m.placeholder,
		Kind:        elements[m.shape],
		Options:     m.options,
		Required:    m.required,
		Group:       m.group,
		Wide:        m.group != "",
		Seldom:      m.group != "",
		Mono:        m.shape != asChoice,
	}
	for _, kind := range m.kinds {
		f.When = append(f.When, string(kind))
	}

	value := valueAt(now, m.path)
	switch m.shape {
	case asText, asNumber, asChoice, asArea:
		if value != nil {
			f.Value = fmt.Sprint(value)
		}
	case asFlag:
		f.Value = kit.Checked(value == true)
	case asOn:
		f.Value = kit.Checked(value != false)
	case asLines:
		f.Value = linesText(value)
	case asChecks:
		list, _ := value.([]any)
		for _, chosen := range list {
			f.Values = append(f.Values, fmt.Sprint(chosen))
		}
	case asJSON:
		f.Value = jsonText(value)
	case asSecret, asSecretArea, asSecretLines:
	}
	if f.Kind == "area" || f.Kind == kit.SecretArea {
		f.Rows = 3
	}

	return f
}

func fieldsOf(members []member, at string, now map[string]any) []kit.Field {
	fields := make([]kit.Field, len(members))
	for i := range members {
		fields[i] = members[i].field(at, now)
	}
	return fields
}

// valueAt returns the member of an object with a path; nil if it has none.
func valueAt(object map[string]any, path string) any {
	var value any = object
	for name := range strings.SplitSeq(path, ".") {
		below, _ := value.(map[string]any)
		value = below[name]
	}
	return value
}

// jsonText returns an object as JSON, empty for none.
func jsonText(value any) string {
	if value == nil {
		return ""
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil { // it was read as JSON
		panic(err)
	}
	return string(text)
}

func linesText(value any) string {
	object, _ := value.(map[string]any)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fmt.Fprintf(&b, "%s: %s\n", name, object[name])
	}
	return b.String()
}

// readMembers returns the object that was entered; at is the path of the object in the body, with a dot.
func readMembers(members []member, in *kit.Input, at string) (map[string]any, error) {
	object := map[string]any{}
	for i := range members {
		m := &members[i]
		name := at + m.path
		entered := strings.ReplaceAll(in.Text(name), "\r\n", "\n")
		switch {
		case m.shape == asOn:
			object[m.path] = in.Checked(name)
		case m.shape == asChecks:
			chosen := in.All(name)
			if len(chosen) == 0 {
				return nil, kit.Invalid(name, "must have at least one")
			}
			object[m.path] = chosen
		case entered == "":
		case m.shape == asFlag:
			object[m.path] = true
		case m.shape == asNumber:
			n, err := in.Int(name)
			if err != nil {
				return nil, err
			}
			kit.SetMember(object, m.path, n)
		case m.shape == asJSON:
			read, err := readJSON(name, entered)
			if err != nil {
				return nil, err
			}
			kit.SetMember(object, m.path, read)
		case m.shape == asLines || m.shape == asSecretLines:
			values, err := readLines(name, entered)
			if err != nil {
				return nil, err
			}
			m.setLines(object, values)
		default:
			kit.SetMember(object, m.path, entered)
		}
	}
	return object, nil
}

// setLines sets the member to an object. The further members of a request for a token are parameters with a prefix.
func (m *member) setLines(object map[string]any, values map[string]any) {
	parent, prefixed := strings.CutSuffix(m.path, "."+strings.TrimSuffix(catalogkv.FormParameter, "."))
	if !prefixed {
		kit.SetMember(object, m.path, values)
		return
	}
	if _, ok := object[parent].(map[string]any); !ok {
		object[parent] = map[string]any{}
	}
	for name, value := range values {
		object[parent].(map[string]any)[catalogkv.FormParameter+name] = value //nolint:forcetypeassert // set above
	}
}

func readJSON(field, entered string) (object map[string]any, err error) {
	d := json.NewDecoder(strings.NewReader(entered))
	d.UseNumber()
	err = d.Decode(&object)
	if _, more := d.Token(); err != nil || object == nil || !errors.Is(more, io.EOF) {
		return nil, kit.Invalid(field, "must be one object in JSON")
	}
	return object, nil
}

func readLines(field, entered string) (map[string]any, error) {
	values := map[string]any{}
	n := 0
	for line := range strings.Lines(entered) {
		n++
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if _, twice := values[name]; !ok || name == "" || twice {
			return nil, kit.Invalid(field, fmt.Sprintf("must have one NAME: VALUE in a line, each name once; line %d has not", n))
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, nil
}

// objectOf returns an object of the API by the names of its members.
func objectOf(now any) (map[string]any, error) {
	object := map[string]any{}
	text, err := json.Marshal(now)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&object)
	}
	if err != nil {
		return nil, fmt.Errorf("read an object of the catalog: %w", err)
	}
	return object, nil
}

// changeMembers returns the merge patch that makes the members of an object those that were entered, and others what they are in
// others; nil for none.
func changeMembers(members []member, in *kit.Input, now, others map[string]any) (patch, error) {
	wanted, err := readMembers(members, in, "")
	if err != nil {
		return nil, err
	}

	before := map[string]any{}
	for name, value := range others {
		if was, ok := now[name]; ok {
			before[name] = was
		}
		if value != nil {
			wanted[name] = value
		}
	}

	for i := range members {
		m := &members[i]
		top, _, _ := strings.Cut(m.path, ".")
		if value, ok := now[top]; ok {
			before[top] = value
		}
		// A browser sends a text without its last line end. That alone is no change.
		was, isText := valueAt(now, m.path).(string)
		if entered, ok := valueAt(wanted, m.path).(string); ok && isText && strings.TrimSpace(was) == entered {
			kit.SetMember(wanted, m.path, was)
		}
	}

	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode an object of the catalog: %w", err)
	}
	to, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encode an object of the catalog: %w", err)
	}
	text, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("compare an object of the catalog: %w", err)
	}
	change := patch{}
	if err := json.Unmarshal(text, &change); err != nil {
		return nil, fmt.Errorf("read a change of the catalog: %w", err)
	}

	return change, nil
}

const (
	groupAddresses  = "Addresses of formats"
	groupHeaders    = "Headers"
	groupConnection = "Connection"
	groupTimes      = "Time limits"
	groupHabits     = "What the provider does"
	groupSecrets    = "Further secrets, client certificate"
	groupParams     = "Parameters of requests"
)

// addressMembers are the addresses by format. hint is that of the first.
func addressMembers(hint string) []member {
	var all []member
	for _, f := range catalogkv.Formats {
		at := "addresses." + string(f) + "."
		all = append(all, member{
			path:        at + "path",
			label:       string(f) + ": path",
			group:       groupAddresses,
			placeholder: f.Path(),
			hint:        hint,
		})
		hint = ""
		if f.Type() == catalogkv.Text {
			all = append(all, member{
				path:        at + "stream_path",
				label:       string(f) + ": path of streams",
				group:       groupAddresses,
				placeholder: "as the path",
			})
		}
		all = append(all, member{
			path:        at + "query",
			label:       string(f) + ": query",
			group:       groupAddresses,
			shape:       asLines,
			placeholder: "api-version: preview",
		})
	}
	return all
}

// providerMembers are the members of a provider, but for its id and credentials.
var providerMembers = slices.Concat(
	[]member{
		{path: "name", label: "Name"},
		{
			path:     "base_url",
			label:    "Base URL",
			required: true,
			hint:     "The address before /v1, or before the paths in addresses, such as https://api.example.com.",
		},
		{
			path:  "kind",
			label: "Cloud",
			shape: asChoice,
			hint:  "Only for Claude over the clouds’ own interfaces, which depart from the formats.",
			options: []kit.Option{
				{Text: "none: it speaks the formats"},
				{Value: string(catalogkv.Bedrock), Text: "Amazon Bedrock"},
				{Value: string(catalogkv.Vertex), Text: "Google Vertex AI"},
			},
		},
		{
			path:        "auth",
			label:       "Authentication",
			placeholder: catalogkv.Bearer,
			hint:        "bearer, or the name of the header of the secret, such as x-api-key. Empty means bearer.",
		},
		{path: "enabled", label: "Enabled: routes may use it", shape: asOn},
	},
	addressMembers("The path after the base URL. {model} stands for the name of the model there. Empty means the usual path."),
	[]member{
		{path: "anthropic_version", label: "anthropic-version", group: groupHeaders, placeholder: "2023-06-01"},
		{
			path:  "headers",
			label: "Headers of every call",
			group: groupHeaders,
			shape: asLines,
			hint: "One NAME: VALUE in a line. Everybody who may read the catalog can read them: headers for secrets belong to " +
				"a credential.",
		},
		{
			path:        "proxy",
			label:       "Forward proxy",
			group:       groupConnection,
			placeholder: "http://proxy.example.com:3128",
			hint:        "Empty means that of the proxies’ environment, if there is one.",
		},
		{
			path:  "ca",
			label: "Trusted issuers",
			group: groupConnection,
			shape: asArea,
			hint:  "Certificates (PEM) of the only issuers that its server may have. Empty means those of the proxies’ machines.",
		},
		{path: "http2", label: "HTTP/2", group: groupConnection, shape: asFlag},
		{path: "connect_timeout", label: "To connect", group: groupTimes, placeholder: "5s", hint: "At most 1m."},
		{path: "first_byte_timeout", label: "Until the answer begins", group: groupTimes, placeholder: "10m", hint: "At most 1h."},
		{path: "idle_timeout", label: "Between two parts of an answer", group: groupTimes, placeholder: "10m", hint: "At most 1h."},
		{path: "total_timeout", label: "Of a whole call", group: groupTimes, placeholder: "none", hint: "At most 24h."},
		{path: "keeps_billing", label: "It bills cancelled streams in full", group: groupHabits, shape: asFlag},
		{
			path:  "recognises_repeats",
			label: "It recognises a repeated creation of a video by its Idempotency-Key",
			group: groupHabits,
			shape: asFlag,
		},
		{path: "wants_user", label: "It gets a pseudonym of the account", group: groupHabits, shape: asFlag},
	},
)

var (
	ofSecret = []catalogkv.CredentialKind{catalogkv.SecretCredential}
	ofOAuth  = []catalogkv.CredentialKind{catalogkv.OAuthCredential}
	ofGoogle = []catalogkv.CredentialKind{catalogkv.GoogleCredential}
	ofAzure  = []catalogkv.CredentialKind{catalogkv.AzureCredential}
	ofAWS    = []catalogkv.CredentialKind{catalogkv.AWSCredential}
)

const kindMember = "kind"

// credentialMembers are the members of a credential, but for its name and whether it is enabled.
var credentialMembers = []member{
	{
		path:     kindMember,
		label:    "How the gateway authenticates",
		shape:    asChoice,
		required: true,
		options: []kit.Option{
			{Value: string(catalogkv.SecretCredential), Text: "secret"},
			{Value: string(catalogkv.OAuthCredential), Text: "OAuth 2.0, client credentials"},
			{Value: string(catalogkv.GoogleCredential), Text: "Google Cloud"},
			{Value: string(catalogkv.AzureCredential), Text: "Microsoft Entra ID (Azure)"},
			{Value: string(catalogkv.AWSCredential), Text: "AWS signature"},
		},
	},
	{
		path:  "secret",
		label: "Secret",
		shape: asSecret,
		kinds: ofSecret,
		hint:  "The key of the provider. It is stored encrypted and never shown again.",
	},
	{
		path:        "parameters.token_url",
		label:       "Address of the token server",
		kinds:       ofOAuth,
		placeholder: "https://WORKSPACE/oidc/v1/token",
	},
	{path: "parameters.tenant_id", label: "Tenant id", kinds: ofAzure},
	{
		path:  "parameters.client_id",
		label: "Client id",
		kinds: slices.Concat(ofOAuth, ofAzure),
	},
	{
		path:  "parameters.client_secret",
		label: "Client secret",
		shape: asSecret,
		kinds: slices.Concat(ofOAuth, ofAzure),
		hint:  "At Azure, empty means the identity of the proxy; if there are several, the one of the client id.",
	},
	{path: "parameters.scopes", label: "Scopes", kinds: slices.Concat(ofOAuth, ofGoogle), hint: "Separated by spaces."},
	{
		path:  "parameters.auth_style",
		label: "How the client authenticates itself",
		shape: asChoice,
		kinds: ofOAuth,
		options: []kit.Option{
			{Text: "found out"},
			{Value: catalogkv.AuthStyleHeader, Text: "in a header"},
			{Value: catalogkv.AuthStyleForm, Text: "in the form"},
		},
	},
	{
		path:  "parameters.form",
		label: "Further members of the request for a token",
		shape: asSecretLines,
		kinds: ofOAuth,
		hint:  "One NAME: VALUE in a line.",
	},
	{
		path:  "parameters.key",
		label: "Key file of the service account",
		shape: asSecretArea,
		kinds: ofGoogle,
		hint:  "The whole file (JSON). Empty means the identity of the proxy.",
	},
	{path: "parameters.scope", label: "Scope", kinds: ofAzure, hint: "Empty means that of Azure OpenAI."},
	{
		path:        "parameters.authority",
		label:       "Authority",
		kinds:       ofAzure,
		placeholder: "https://login.microsoftonline.com",
		hint:        "For a national cloud.",
	},
	{path: "parameters.region", label: "Region", kinds: ofAWS, placeholder: "us-east-1"},
	{path: "parameters.service", label: "Service", kinds: ofAWS, placeholder: "bedrock"},
	{
		path:  "parameters.access_key_id",
		label: "Access key id",
		kinds: ofAWS,
		hint:  "Empty, with the secret access key, means the identity of the proxy.",
	},
	{path: "parameters.secret_access_key", label: "Secret access key", shape: asSecret, kinds: ofAWS},
	{path: "parameters.session_token", label: "Session token", shape: asSecret, kinds: ofAWS, hint: "Of a temporary key."},
	{path: "parameters.role_arn", label: "Role to assume", kinds: ofAWS, placeholder: "arn:aws:iam::ACCOUNT:role/NAME"},
	{path: "parameters.external_id", label: "External id", shape: asSecret, kinds: ofAWS, hint: "If the role demands one."},
	{
		path:  "headers",
		label: "Secret headers",
		group: groupSecrets,
		shape: asSecretLines,
		hint:  "One NAME: VALUE in a line, such as cf-aig-authorization: Bearer …",
	},
	{
		path:  "certificate",
		label: "Client certificate",
		group: groupSecrets,
		shape: asSecretArea,
		hint:  "In the form PEM, followed by those of its issuers.",
	},
	{path: "private_key", label: "Its private key", group: groupSecrets, shape: asSecretArea, hint: "In the form PEM."},
}

// secretMembers are the members of a credential but for its kind.
var secretMembers = credentialMembers[1:]

// credentialFields are the fields of a credential whose kind can be chosen.
func credentialFields(at string, kind catalogkv.CredentialKind) []kit.Field {
	return fieldsOf(credentialMembers, at, map[string]any{kindMember: string(kind)})
}

// kindOf returns the kind of a credential.
func kindOf(c *adminclient.CatalogCredential) catalogkv.CredentialKind {
	if c.Kind == nil {
		return catalogkv.SecretCredential
	}
	return catalogkv.CredentialKind(*c.Kind)
}

// kindWord is how people call the kind of a credential.
func kindWord(c *adminclient.CatalogCredential) string {
	options := credentialMembers[0].options
	at := slices.IndexFunc(options, func(o kit.Option) bool { return o.Value == string(kindOf(c)) })
	return options[at].Text
}

// readCredential returns the credential that was entered, without its name.
func readCredential(in *kit.Input, at string) (map[string]any, error) {
	kind := catalogkv.CredentialKind(in.Text(at + kindMember))
	if kind == "" {
		kind = catalogkv.SecretCredential
	}
	read, err := readMembers(membersOf(secretMembers, kind), in, at)
	if err != nil {
		return nil, err
	}
	// Without parameters, a credential of another kind is the identity of the proxy.
	if kind != catalogkv.SecretCredential && read["parameters"] == nil {
		read["parameters"] = map[string]any{}
	}
	read[kindMember] = string(kind)
	return read, nil
}
