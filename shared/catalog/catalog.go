// Package catalog owns the catalog entries that the control plane writes to
// the bus and proxies read: models with their prices and routes, providers,
// grants, settings.
//
// A change is written entry by entry and closed with the Head entry; a proxy
// applies everything up to a Head at once, so that it never sees half of a
// change. Fields are added, never renamed. All durations carry their unit in
// their name.
package catalog

import (
	"encoding/json"
	"time"

	"modelgateway/shared/price"
)

// Type is what a model makes.
type Type string

// The types of models.
const (
	Text  Type = "text"
	Image Type = "image"
	Video Type = "video"
)

// Format is a request format; a model answers in a format if one of its
// routes speaks it.
type Format string

// The formats.
const (
	Chat      Format = "chat"
	Responses Format = "responses"
	Messages  Format = "messages"
	Images    Format = "images"
	Videos    Format = "videos"
)

// Type is the type of the models that a format is for.
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

// Path is the endpoint of the format, at the gateway and at providers alike.
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

// Head closes a change.
type Head struct {
	V int `json:"v"`
	// Rev is the revision of the change; it only grows.
	Rev int64 `json:"rev"`
}

// Model is one model with everything that is needed to serve it.
type Model struct {
	ID          string `json:"id"`
	Type        Type   `json:"type"`
	DisplayName string `json:"display_name,omitempty"`
	OwnedBy     string `json:"owned_by,omitempty"`
	// CreatedUnix is seconds since 1970.
	CreatedUnix   int64 `json:"created_unix,omitempty"`
	ContextWindow int64 `json:"context_window,omitempty"`
	// MaxOutputTokens is what the model can put out at most; ReserveOutputTokens what is reserved for a
	// request that sets no limit of its own. Zero: no bound known.
	MaxOutputTokens     int64 `json:"max_output_tokens,omitempty"`
	ReserveOutputTokens int64 `json:"reserve_output_tokens,omitempty"`
	Enabled             bool  `json:"enabled"`
	// Public models are open to every account, others to those with a grant.
	Public bool `json:"public"`
	// Prices holds the sheet in force and those that will follow, by rising EffectiveUnix.
	Prices []Priced `json:"prices"`
	Routes []Route  `json:"routes"`
	// Params overrides the parameter policy, by format and parameter name.
	Params map[Format]Params `json:"params,omitempty"`
	// Maintenance, when set, refuses the model's requests.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
}

// Priced is a price sheet and the time from which it holds.
type Priced struct {
	// EffectiveUnix is in seconds; zero means always.
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

// Params is an override of a parameter policy: parameter name to Param.
type Params map[string]Param

// Param says what happens to one parameter: "forward", "reject", "force",
// "drop", "clamp" or "replace".
type Param struct {
	Policy string          `json:"policy"`
	Value  json.RawMessage `json:"value,omitempty"`
	// Allow lists values that pass although the policy is reject.
	Allow []json.RawMessage `json:"allow,omitempty"`
}

// Route is a way to a provider.
type Route struct {
	ID string `json:"id"`
	// Provider is the id of the provider, UpstreamModel the name that it knows the model by.
	Provider      string   `json:"provider"`
	UpstreamModel string   `json:"upstream_model"`
	Formats       []Format `json:"formats"`
	// Priority orders routes, lowest first; Weight shares load among routes of one priority (zero counts as one).
	Priority int  `json:"priority,omitempty"`
	Weight   int  `json:"weight,omitempty"`
	Enabled  bool `json:"enabled"`
	// Params overrides the model's parameter policy. A request with a parameter that it rejects goes to other routes.
	// How many answers or pictures are made is decided before the route is, so the parameter n is the model's business.
	Params map[Format]Params `json:"params,omitempty"`
}

// Provider is an upstream service and our accounts there.
type Provider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// BaseURL precedes the format's path, without /v1.
	BaseURL string `json:"base_url"`
	Enabled bool   `json:"enabled"`
	// Auth is the header that takes the credential: "bearer" (the default) or "x-api-key".
	Auth string `json:"auth,omitempty"`
	// Headers are sent with every request.
	Headers map[string]string `json:"headers,omitempty"`
	// AnthropicVersion is sent on messages requests; empty: 2023-06-01.
	AnthropicVersion string       `json:"anthropic_version,omitempty"`
	Credentials      []Credential `json:"credentials"`
	// KeepsBilling marks a provider that bills a cancelled stream to its end: such streams are read to the end.
	KeepsBilling bool `json:"keeps_billing,omitempty"`
	// WantsUser has the account's pseudonym sent where the client sent no user.
	WantsUser bool `json:"wants_user,omitempty"`
	HTTP2     bool `json:"http2,omitempty"`
	// Time limits in milliseconds; zero takes the proxy's default.
	ConnectTimeoutMS   int64        `json:"connect_timeout_ms,omitempty"`
	FirstByteTimeoutMS int64        `json:"first_byte_timeout_ms,omitempty"`
	IdleTimeoutMS      int64        `json:"idle_timeout_ms,omitempty"`
	TotalTimeoutMS     int64        `json:"total_timeout_ms,omitempty"`
	Maintenance        *Maintenance `json:"maintenance,omitempty"`
}

// Credential is one account at a provider. Sealed is its secret under the
// fleet key, with CredentialContext of its id.
type Credential struct {
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
}

// CredentialContext is the seal context of a credential.
func CredentialContext(id string) string { return "credential:" + id }

// Grant lists the models opened to one account beside the public ones.
type Grant struct {
	AccountID string   `json:"account_id"`
	Models    []string `json:"models"`
}

// Settings holds for the whole system.
type Settings struct {
	// Currency is the ISO code that all prices are in.
	Currency string `json:"currency"`
	// ImageInputTokens is the estimate for one picture in a prompt; zero takes the default.
	ImageInputTokens int64        `json:"image_input_tokens,omitempty"`
	Maintenance      *Maintenance `json:"maintenance,omitempty"`
}

// Maintenance refuses requests for a while.
type Maintenance struct {
	Message string `json:"message,omitempty"`
	// UntilUnix is when it ends by itself, in seconds; zero: when it is taken back.
	UntilUnix int64 `json:"until_unix,omitempty"`
}

// Active tells whether maintenance is on. A nil one is off.
func (m *Maintenance) Active(now time.Time) bool {
	return m != nil && (m.UntilUnix == 0 || now.Before(time.Unix(m.UntilUnix, 0)))
}
