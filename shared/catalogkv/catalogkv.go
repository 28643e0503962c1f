// Package catalogkv defines the entries of the catalog's KV bucket, which the
// control plane writes and the proxies watch: models with their prices and
// routes, providers, grants and settings.
//
// The control plane writes the changed entries and then the Head entry. A proxy
// applies all of them when it sees the Head, so that it never uses a part of a
// change. Members are added, never renamed.
package catalogkv

import (
	"encoding/json"
	"time"

	"modelgateway/shared/price"
)

// Type is the kind of content that a model generates.
type Type string

// The model types.
const (
	Text  Type = "text"
	Image Type = "image"
	Video Type = "video"
)

// Format is a request format. A model can be used in a format if one of its
// routes supports it.
type Format string

// The formats.
const (
	Chat      Format = "chat"
	Responses Format = "responses"
	Messages  Format = "messages"
	Images    Format = "images"
	Videos    Format = "videos"
)

// Formats has all formats, in the order in which they are shown.
var Formats = []Format{Chat, Responses, Messages, Images, Videos}

// Type returns the type of the models that can be used in the format.
func (f Format) Type() Type {
	switch f {
	case Images:
		return Image
	case Videos:
		return Video
	default:
		return Text
	}
}

// Path returns the path of the format's endpoint at the gateway, and at a provider without an Address for the format.
func (f Format) Path() string {
	switch f {
	case Chat:
		return "/v1/chat/completions"
	case Images:
		return "/v1/images/generations"
	default:
		return "/v1/" + string(f)
	}
}

// Head is the last entry of a change.
type Head struct {
	V int `json:"v"`
	// Rev is the revision of the change. Later changes have greater revisions.
	Rev int64 `json:"rev"`
}

// DefaultOutputReserve is the number of output tokens that are reserved if neither the request nor the text model has an
// output limit.
const DefaultOutputReserve = 4096

// Model is a model with its prices and routes.
type Model struct {
	ID          string `json:"id"`
	Type        Type   `json:"type"`
	DisplayName string `json:"display_name,omitempty"`
	OwnedBy     string `json:"owned_by,omitempty"`
	// CreatedUnix is in seconds since 1970.
	CreatedUnix   int64 `json:"created_unix,omitempty"`
	ContextWindow int64 `json:"context_window,omitempty"`
	// MaxOutputTokens is the model's output limit. ReserveOutputTokens is the number of output tokens that is reserved
	// for a request without a limit. Zero means unknown.
	MaxOutputTokens     int64 `json:"max_output_tokens,omitempty"`
	ReserveOutputTokens int64 `json:"reserve_output_tokens,omitempty"`
	// DefaultSeconds is the length of a video if the request states none. Zero means unknown.
	DefaultSeconds int64 `json:"default_seconds,omitempty"`
	Enabled        bool  `json:"enabled"`
	// Public models are available to every account, others to accounts with a grant.
	Public bool `json:"public"`
	// Prices are the sheet in force and later ones, in ascending order of EffectiveUnix.
	Prices []ScheduledPrice `json:"prices"`
	Routes []Route          `json:"routes"`
	// Params overrides the parameter policies of the formats.
	Params map[Format]Params `json:"params,omitempty"`
	// Maintenance makes the proxies refuse requests for the model while it is active.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
}

// ScheduledPrice is a price sheet and the time from which it is in force.
type ScheduledPrice struct {
	// EffectiveUnix is in seconds since 1970; zero means always.
	EffectiveUnix int64       `json:"effective_unix,omitempty"`
	Sheet         price.Sheet `json:"sheet"`
}

// PriceAt returns the sheet in force, or nil if there is none yet.
func (m *Model) PriceAt(now time.Time) *price.Sheet {
	var sheet *price.Sheet
	for i := range m.Prices {
		if m.Prices[i].EffectiveUnix <= now.Unix() {
			sheet = &m.Prices[i].Sheet
		}
	}
	return sheet
}

// NextPriceAfter returns when the next sheet comes into force, zero if none is scheduled.
func (m *Model) NextPriceAfter(now time.Time) (next time.Time) {
	for i := range m.Prices {
		if at := time.Unix(m.Prices[i].EffectiveUnix, 0); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Params overrides a parameter policy, by parameter name.
type Params map[string]Param

// Param overrides the policy of one parameter.
type Param struct {
	// Policy is "forward", "reject", "force", "drop", "clamp" or "replace".
	Policy string          `json:"policy"`
	Value  json.RawMessage `json:"value,omitempty"`
	// Allow lists values that are forwarded although the policy is "reject". For tools it lists the types of
	// provider-run tools that the model offers.
	Allow []json.RawMessage `json:"allow,omitempty"`
	// Otherwise is "drop" or "reject", for tools only: what happens to an offer of a provider-run tool that Allow does
	// not list. Empty keeps the format's default, "drop".
	Otherwise string `json:"otherwise,omitempty"`
}

// Route is a way from a model to a provider.
type Route struct {
	ID string `json:"id"`
	// Provider is the provider's id, UpstreamModel the provider's name of the model.
	Provider      string   `json:"provider"`
	UpstreamModel string   `json:"upstream_model"`
	Formats       []Format `json:"formats"`
	// Routes are attempted in ascending order of Priority. Weight distributes conversations among routes of equal priority;
	// zero counts as one.
	Priority int  `json:"priority,omitempty"`
	Weight   int  `json:"weight,omitempty"`
	Enabled  bool `json:"enabled"`
	// Addresses take the place of those of the provider, format by format.
	Addresses Addresses `json:"addresses,omitempty"`
	// Params overrides the model's parameter policies. A request with a parameter that the route rejects goes to other
	// routes. The parameter n cannot be overridden here: the cost is estimated from it before a route is chosen.
	Params map[Format]Params `json:"params,omitempty"`
	// FirstTokenTimeoutMS is within how many milliseconds the output of a stream must begin; otherwise the next route is
	// called. Zero means no such limit. It does not apply if no other route is left.
	FirstTokenTimeoutMS int64 `json:"first_token_timeout_ms,omitempty"`
	// Resets counts how often operators have reset the route. A proxy that sees another number closes its circuit breaker.
	Resets int64 `json:"resets,omitempty"`
}

// Bearer is the value of Provider.Auth for the header Authorization.
const Bearer = "bearer"

// ProviderKind is a cloud that offers the models of others in their own format,
// except for some members and the framing of streams.
type ProviderKind string

// The kinds of providers that depart from a format, all of them from messages.
const (
	Bedrock ProviderKind = "bedrock"
	Vertex  ProviderKind = "vertex"
)

// ProviderKinds are the values of Provider.Kind but the empty one.
var ProviderKinds = []ProviderKind{Bedrock, Vertex}

// Provider is a model provider with the gateway's credentials there.
type Provider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Kind says in which way the provider departs from the formats; empty: it does not.
	Kind ProviderKind `json:"kind,omitempty"`
	// BaseURL is the URL in front of the format's path, without /v1.
	BaseURL string `json:"base_url"`
	// Addresses are those of the formats whose calls do not go to Format.Path.
	Addresses Addresses `json:"addresses,omitempty"`
	Enabled   bool      `json:"enabled"`
	// Auth is how the text of the credential is sent: Bearer, or the name of a header that holds it as it is. Empty means
	// Bearer.
	Auth string `json:"auth,omitempty"`
	// FleetKey is the fingerprint of the fleet key that the credentials are sealed with.
	FleetKey string `json:"fleet_key,omitempty"`
	// Headers are sent with every request.
	Headers map[string]string `json:"headers,omitempty"`
	// AnthropicVersion is the version header of messages requests; empty means 2023-06-01.
	AnthropicVersion string       `json:"anthropic_version,omitempty"`
	Credentials      []Credential `json:"credentials"`
	// KeepsBilling marks a provider that bills a stream in full even if it is cancelled. Its streams are read to the end.
	KeepsBilling bool `json:"keeps_billing,omitempty"`
	// RecognisesRepeats marks a provider that recognises a repeated creation by its Idempotency-Key. A creation of a video
	// job whose answer was lost is repeated there once.
	RecognisesRepeats bool `json:"recognises_repeats,omitempty"`
	// WantsUser makes the proxy send a pseudonym of the account as the user if the client sent none.
	WantsUser bool `json:"wants_user,omitempty"`
	HTTP2     bool `json:"http2,omitempty"`
	// CA has the certificates, in the form PEM, of the only issuers whose servers are trusted. Empty: those of the machine.
	CA string `json:"ca,omitempty"`
	// Proxy is the URL of the forward proxy for the calls. Empty: what the environment of the proxy says.
	Proxy string `json:"proxy,omitempty"`
	// The time limits are in milliseconds; zero means the proxy's default, which is none for the total.
	ConnectTimeoutMS   int64        `json:"connect_timeout_ms,omitempty"`
	FirstByteTimeoutMS int64        `json:"first_byte_timeout_ms,omitempty"`
	IdleTimeoutMS      int64        `json:"idle_timeout_ms,omitempty"`
	TotalTimeoutMS     int64        `json:"total_timeout_ms,omitempty"`
	Maintenance        *Maintenance `json:"maintenance,omitempty"`
}

// Credential is the credential of one account at a provider.
type Credential struct {
	ID string `json:"id"`
	// Name is its name in the catalog, for usage records.
	Name string `json:"name,omitempty"`
	// Kind says what is sealed; empty means SecretCredential.
	Kind CredentialKind `json:"kind,omitempty"`
	// Sealed is the text, sealed with the fleet key under CredentialContext(ID).
	Sealed []byte `json:"sealed"`
	// SealedSecrets are the Secrets in JSON, sealed with the fleet key under SecretsContext(ID); empty if there are none.
	SealedSecrets []byte `json:"sealed_secrets,omitempty"`
}

// CredentialContext returns the context that a credential is sealed under.
func CredentialContext(id string) string { return "credential:" + id }

// Grant lists the models that are available to one account beside the public ones.
type Grant struct {
	AccountID string   `json:"account_id"`
	Models    []string `json:"models"`
}

// Settings are the settings of the whole system.
type Settings struct {
	// Currency is the ISO 4217 code of the currency of all prices.
	Currency string `json:"currency"`
	// ImageInputTokens is the estimated input tokens of one image in a prompt; zero means the default.
	ImageInputTokens int64        `json:"image_input_tokens,omitempty"`
	Maintenance      *Maintenance `json:"maintenance,omitempty"`
}

// Maintenance is a period in which requests are refused.
type Maintenance struct {
	Message string `json:"message,omitempty"`
	// UntilUnix is when it ends, in seconds since 1970. Zero means that it ends when it is removed.
	UntilUnix int64 `json:"until_unix,omitempty"`
}

// Active reports whether the maintenance is active at a time. A nil Maintenance
// never is.
func (m *Maintenance) Active(now time.Time) bool {
	return m != nil && (m.UntilUnix == 0 || now.Before(time.Unix(m.UntilUnix, 0)))
}
