package catalog

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// target is a document in the form of published entries.
type target struct {
	settings  catalogkv.Settings
	providers map[string]targetProvider
	models    map[string]targetModel
	// grants is nil if the document leaves grants unchanged.
	grants map[account.ID][]string
}

type targetProvider struct {
	path    string
	spec    catalogkv.Provider
	secrets map[string]targetSecret
}

type targetSecret struct {
	path string
	kind catalogkv.CredentialKind
	// secret is the secret or the parameters.
	secret  string
	further catalogkv.Secrets
	enabled bool
}

// member is the member of the document that has the secret.
func (t *targetSecret) member() string {
	if t.kind == catalogkv.SecretCredential {
		return validation.Member(t.path, "secret")
	}
	return validation.Member(t.path, "parameters")
}

type targetModel struct {
	spec   catalogkv.Model
	sheet  price.Sheet
	routes map[string]catalogkv.Route
	// providerSheets are the prices of the providers, by the id of the route.
	providerSheets map[string]price.Sheet
}

var (
	currencyForm   = regexp.MustCompile(`^[A-Z]{3}$`)
	providerIDForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

// maxIDLen bounds ids and names, in bytes.
const maxIDLen = 200

// builder converts a document into a target and collects field errors.
type builder struct {
	invalid validation.Errors
	target  target
	// names and routeIDs are those that are in use.
	names    map[string]bool
	routeIDs map[string]bool
}

// target checks a document on its own and converts it. The error is validation.Errors.
func (d *Document) target() (*target, error) {
	b := builder{
		target:   target{providers: map[string]targetProvider{}, models: map[string]targetModel{}},
		names:    map[string]bool{},
		routeIDs: map[string]bool{},
	}
	if !currencyForm.MatchString(d.Currency) {
		b.invalid.Add("currency", "must be an ISO code such as USD")
	}

	b.notNegative("settings.image_input_tokens", d.Settings.ImageInputTokens)
	b.target.settings = catalogkv.Settings{Currency: d.Currency, ImageInputTokens: d.Settings.ImageInputTokens}
	for i := range d.Providers {
		b.provider(validation.Index("providers", i), &d.Providers[i])
	}

	for i := range d.Models {
		b.model(validation.Index("models", i), &d.Models[i])
	}

	if d.Grants != nil {
		b.target.grants = map[account.ID][]string{}
		for i := range d.Grants {
			b.grant(validation.Index("grants", i), &d.Grants[i])
		}
	}

	return &b.target, b.invalid.Err()
}

func (b *builder) refuse(wrong bool, path, member, format string, args ...any) {
	if wrong {
		b.invalid.Add(validation.Member(path, member), format, args...)
	}
}

func (b *builder) notNegative(path string, n int64) {
	b.refuse(n < 0, path, "", "must not be negative")
}

// id refuses an id that does not work in an address, or that looks like another one: ids are compared by eye and copied.
func (b *builder) id(path, member, id string) {
	odd := strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0
	b.refuse(id == "" || len(id) > maxIDLen || odd, path, member, "must have 1 to %d ASCII characters and no spaces", maxIDLen)
	b.refuse(id == "." || id == "..", path, member, "must not be . or .., which browsers take for a part of an address")
}

// name refuses a name with characters that cannot be seen, such as those that turn the direction of the text after them.
func (b *builder) name(path, member, name string) {
	const joiners = "\u200c\u200d" // words of some languages need them
	hidden := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) && !strings.ContainsRune(joiners, r) }) >= 0
	b.refuse(hidden || len(name) > maxIDLen || strings.TrimSpace(name) != name, path, member,
		"must have at most %d bytes in one line, no characters that cannot be seen and no spaces around it", maxIDLen)
}

func (b *builder) provider(path string, e *ProviderEntry) {
	b.refuse(!providerIDForm.MatchString(e.ID) || len(e.ID) > maxIDLen, path, "id", "must be made of a-z, 0-9 and -")
	_, twice := b.target.providers[e.ID]
	b.refuse(twice, path, "id", "is used by another provider")
	name := e.Name
	if name == "" {
		name = e.ID
	}

	b.name(path, "name", e.Name)
	b.refuse(b.names[name], path, "name", "is used by another provider")
	b.names[name] = true
	b.baseURL(validation.Member(path, "base_url"), e.BaseURL)
	b.addresses(validation.Member(path, "addresses"), e.Addresses)
	if e.Auth != "" && e.Auth != catalogkv.Bearer {
		b.secretHeader(validation.Member(path, "auth"), e.Auth)
	}
	b.issuers(validation.Member(path, "ca"), e.CA)
	b.forwardProxy(validation.Member(path, "proxy"), e.Proxy)

	b.refuse(e.Kind != "" && !slices.Contains(catalogkv.ProviderKinds, e.Kind), path, "kind", "must be one of %v", catalogkv.ProviderKinds)

	for header := range e.Headers {
		b.header(validation.Member(validation.Member(path, "headers"), header), header, e.Headers[header])
	}

	b.timeLimit(path, "connect_timeout", e.ConnectTimeout, maxConnect)
	b.timeLimit(path, "first_byte_timeout", e.FirstByteTimeout, maxWait)
	b.timeLimit(path, "idle_timeout", e.IdleTimeout, maxWait)
	b.timeLimit(path, "total_timeout", e.TotalTimeout, maxTotal)
	p := targetProvider{path: path, secrets: map[string]targetSecret{}}
	for i, c := range e.Credentials {
		at := validation.Index(validation.Member(path, "credentials"), i)
		b.refuse(c.Name == "", at, "name", "is missing")
		b.name(at, "name", c.Name)
		b.refuse(c.Name == "." || c.Name == "..", at, "name", "must not be . or .., which browsers take for a part of an address")
		_, twice := p.secrets[c.Name]
		b.refuse(twice, at, "name", "is used by another credential of the provider")
		b.furtherSecrets(at, e, &c)
		p.secrets[c.Name] = b.secret(at, &c)
	}

	p.spec = catalogkv.Provider{
		ID:                 e.ID,
		Name:               name,
		Kind:               e.Kind,
		BaseURL:            strings.TrimRight(e.BaseURL, "/"),
		Addresses:          e.Addresses,
		Enabled:            orTrue(e.Enabled),
		Auth:               e.Auth,
		Headers:            e.Headers,
		AnthropicVersion:   e.AnthropicVersion,
		KeepsBilling:       e.KeepsBilling,
		RecognisesRepeats:  e.RecognisesRepeats,
		WantsUser:          e.WantsUser,
		HTTP2:              e.HTTP2,
		CA:                 e.CA,
		Proxy:              e.Proxy,
		ConnectTimeoutMS:   e.ConnectTimeout.milliseconds(),
		FirstByteTimeoutMS: e.FirstByteTimeout.milliseconds(),
		IdleTimeoutMS:      e.IdleTimeout.milliseconds(),
		TotalTimeoutMS:     e.TotalTimeout.milliseconds(),
	}
	b.target.providers[e.ID] = p
}

// secret converts what a credential authenticates with.
func (b *builder) secret(path string, c *CredentialEntry) targetSecret {
	t := targetSecret{
		path:    path,
		kind:    c.Kind,
		secret:  c.Secret,
		further: catalogkv.Secrets{Headers: c.Headers, Certificate: c.Certificate, PrivateKey: c.PrivateKey},
		enabled: orTrue(c.Enabled),
	}
	b.refuse(strings.Contains(c.Secret, "${"), path, "secret", "holds a ${…} that was not replaced")
	for name, value := range c.Parameters {
		at := validation.Member(path, "parameters")
		b.refuse(strings.Contains(value, "${"), at, name, "holds a ${…} that was not replaced")
	}

	kinds := catalogkv.CredentialKinds()
	switch {
	case c.Kind == "" || c.Kind == catalogkv.SecretCredential:
		t.kind = catalogkv.SecretCredential
		b.refuse(c.Parameters != nil, path, "parameters", "are for credentials of another kind than secret")
	case !slices.Contains(kinds, c.Kind):
		b.invalid.Add(validation.Member(path, "kind"), "must be one of %v", kinds)
	default:
		b.refuse(c.Secret != "", path, "secret", "is for credentials of the kind secret: others have parameters")
		if c.Parameters != nil || !t.further.IsZero() {
			t.secret = catalogkv.EncodeParameters(c.Parameters)
			checkParameters(path, c.Kind, c.Parameters, &b.invalid)
		}
	}

	return t
}

// checkParameters refuses the parameters that cannot be used for a kind.
func checkParameters(path string, kind catalogkv.CredentialKind, parameters map[string]string, invalid *validation.Errors) {
	path = validation.Member(path, "parameters")
	kind.CheckParameters(parameters, func(name, text string) { invalid.Add(validation.Member(path, name), "%s", text) })
}

// The greatest time limits of a provider or route. A greater one is a mistake: a proxy would wait for a call that nobody waits
// for any more.
const (
	maxConnect = time.Minute
	maxWait    = time.Hour
	maxTotal   = 24 * time.Hour
)

func (b *builder) timeLimit(path, member string, d Duration, most time.Duration) {
	b.refuse(time.Duration(d) > most, path, member, "must be at most %s", most)
}

func (d Duration) milliseconds() int64 { return time.Duration(d).Milliseconds() }

func orTrue(b *bool) bool { return b == nil || *b }

func (b *builder) baseURL(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		b.invalid.Add(path, "must be an http or https address")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		b.invalid.Add(path, "must have no user, query or fragment")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1"):
		b.invalid.Add(path, "must end before /v1, which the gateway adds")
	}
}

// ownHeaders are set by the proxy itself.
var ownHeaders = []string{
	"Authorization", "X-Api-Key", "Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding",
	"Connection", "Accept", "Accept-Encoding", "Anthropic-Version", "User-Agent",
}

// secretHeaders are headers whose values are secrets, in lower case.
var secretHeaders = []string{
	"api-key", "apikey", "x-goog-api-key", "x-auth-token", "x-access-token", "ocp-apim-subscription-key",
	"proxy-authorization", "cookie", "cf-aig-authorization", "cf-access-client-secret",
}

func (b *builder) header(path, name, value string) {
	b.refuse(!isHeaderName(name), path, "", "is not the name of a header")
	b.refuse(slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)), path, "", "is set by the gateway")
	b.refuse(slices.Contains(secretHeaders, strings.ToLower(name)), path, "",
		"carries a secret, and headers can be read by everybody who may read the catalog: give it to a credential")
	b.refuse(strings.ContainsAny(value, "\r\n\x00"), path, "", "has a value with control characters")
}

func (b *builder) model(path string, e *ModelEntry) {
	b.id(path, "id", e.ID)
	b.name(path, "display_name", e.DisplayName)
	b.name(path, "owned_by", e.OwnedBy)
	_, twice := b.target.models[e.ID]
	b.refuse(twice, path, "id", "is used by another model")

	switch e.Type {
	case catalogkv.Text, catalogkv.Image, catalogkv.Video:
	default:
		b.invalid.Add(validation.Member(path, "type"), `must be "text", "image" or "video"`)
	}

	b.notNegative(validation.Member(path, "context_window"), e.ContextWindow)
	b.notNegative(validation.Member(path, "max_output_tokens"), e.MaxOutputTokens)
	b.notNegative(validation.Member(path, "reserve_output_tokens"), e.ReserveOutputTokens)
	b.notNegative(validation.Member(path, "default_seconds"), e.DefaultSeconds)
	b.refuse(e.DefaultSeconds != 0 && e.Type != catalogkv.Video, path, "default_seconds", "is for video models only")
	b.params(validation.Member(path, "params"), e.Type, e.Params)

	m := targetModel{
		sheet:  b.sheet(validation.Member(path, "price"), e.Type, &e.Price),
		routes: map[string]catalogkv.Route{},
		spec: catalogkv.Model{
			ID:                  e.ID,
			Type:                e.Type,
			DisplayName:         e.DisplayName,
			OwnedBy:             e.OwnedBy,
			ContextWindow:       e.ContextWindow,
			MaxOutputTokens:     e.MaxOutputTokens,
			ReserveOutputTokens: e.ReserveOutputTokens,
			DefaultSeconds:      e.DefaultSeconds,
			Enabled:             orTrue(e.Enabled),
			Public:              orTrue(e.Public),
			Params:              e.Params,
		},
	}

	for i := range e.Routes {
		at := validation.Index(validation.Member(path, "routes"), i)
		r := b.route(at, e, &e.Routes[i])
		m.routes[r.ID] = r
		b.refuse(e.Routes[i].ProviderPriceHidden, at, "provider_price_hidden",
			"says that the route was read without provider_price, by a token without the scope operator; "+
				"written, it would remove this price")
		if p := e.Routes[i].ProviderPrice; p != nil {
			if m.providerSheets == nil {
				m.providerSheets = map[string]price.Sheet{}
			}
			m.providerSheets[r.ID] = b.sheet(validation.Member(at, "provider_price"), e.Type, p)
		}
	}

	b.target.models[e.ID] = m
}

func (b *builder) route(path string, m *ModelEntry, e *RouteEntry) catalogkv.Route {
	_, known := b.target.providers[e.Provider]
	b.refuse(!known, path, "provider", "must be the id of a provider of this document, not %q", e.Provider)
	b.refuse(e.UpstreamModel == "", path, "upstream_model", "is missing")
	b.refuse(len(e.Formats) == 0, path, "formats", "is missing")

	for i, f := range e.Formats {
		at := validation.Index(validation.Member(path, "formats"), i)
		b.format(at, m.Type, f)
		b.refuse(slices.Contains(e.Formats[:i], f), at, "", "is given twice")
	}

	at := validation.Member(path, "addresses")
	b.addresses(at, e.Addresses)
	for f := range e.Addresses {
		b.refuse(!slices.Contains(e.Formats, f), at, string(f), "is not a format of the route")
	}

	b.notNegative(validation.Member(path, "priority"), int64(e.Priority))
	b.notNegative(validation.Member(path, "weight"), int64(e.Weight))
	b.timeLimit(path, "first_token_timeout", e.FirstToken, maxWait)
	b.params(validation.Member(path, "params"), m.Type, e.Params)

	for f, params := range e.Params {
		_, has := params["n"]
		b.refuse(
			has,
			validation.Member(validation.Member(path, "params"), string(f)),
			"n",
			"can be set for the whole model only: it is decided before the route",
		)
	}

	id := e.ID
	if id == "" {
		id = routeID(m.ID, e.Provider, e.UpstreamModel)
	}

	b.id(path, "id", id)
	b.refuse(b.routeIDs[id], path, "id", "is the same as another route's: give one of them an id")
	b.routeIDs[id] = true
	return catalogkv.Route{
		ID:                  id,
		Provider:            e.Provider,
		UpstreamModel:       e.UpstreamModel,
		Formats:             e.Formats,
		Addresses:           e.Addresses,
		Priority:            e.Priority,
		Weight:              e.Weight,
		Enabled:             orTrue(e.Enabled),
		FirstTokenTimeoutMS: e.FirstToken.milliseconds(),
		Params:              e.Params,
	}
}

// routeID derives the id of a route from its model and destination, so that applying a document
// again finds the same route.
func routeID(model, provider, upstream string) string {
	sum := sha256.Sum256([]byte(model + "\x00" + provider + "\x00" + upstream))
	return ident.Route.Format(ident.UUID(sum[:16]))
}

func (b *builder) format(path string, t catalogkv.Type, f catalogkv.Format) {
	known := slices.Contains(catalogkv.Formats, f)
	b.refuse(!known, path, "", "must be chat, responses, messages, images or videos, not %q", f)
	b.refuse(known && f.Type() != t, path, "", "is no format of a model of type %q", t)
}

// otherwise are the treatments of tools that a model does not offer, the first one by default.
var otherwise = []string{"", "drop", "reject"}

var policies = []string{"forward", "reject", "force", "drop", "clamp", "replace"}

func (b *builder) params(path string, t catalogkv.Type, all map[catalogkv.Format]catalogkv.Params) {
	for f, params := range all {
		at := validation.Member(path, string(f))
		b.format(at, t, f)
		for name, p := range params {
			b.refuse(
				!slices.Contains(policies, p.Policy),
				validation.Member(at, name),
				"policy",
				"must be one of %s",
				strings.Join(policies, ", "),
			)
			b.refuse(p.Otherwise != "" && name != "tools", validation.Member(at, name), "otherwise", "is known for tools only")
			b.refuse(!slices.Contains(otherwise, p.Otherwise), validation.Member(at, name), "otherwise", "must be drop or reject")
			b.refuse(p.Policy == "force" && p.Value == nil, validation.Member(at, name), "value", "is needed to force a parameter")
		}
	}
}

func (b *builder) grant(path string, e *GrantEntry) {
	_, twice := b.target.grants[e.AccountID]
	b.refuse(twice, path, "account_id", "has grants already")
	for i, m := range e.Models {
		at := validation.Index(validation.Member(path, "models"), i)
		_, known := b.target.models[m]
		b.refuse(!known, at, "", "is not a model of this document")
		b.refuse(slices.Contains(e.Models[:i], m), at, "", "is given twice")
	}
	b.target.grants[e.AccountID] = slices.Sorted(slices.Values(e.Models))
}
