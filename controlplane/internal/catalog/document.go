package catalog

import (
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/money"
)

// Document is the YAML or JSON form of the whole catalog. Objects that it does not name are
// removed, except that grants stay unchanged if it has none.
type Document struct {
	Currency  string           `json:"currency"`
	Settings  SettingsDocument `json:"settings,omitzero"`
	Providers []ProviderEntry  `json:"providers,omitempty"`
	Models    []ModelEntry     `json:"models,omitempty"`
	// Grants leaves all grants unchanged if it is nil, and removes them if it is empty.
	Grants []GrantEntry `json:"grants,omitzero"`
}

// HideProviderPrices removes what the providers charge the operator.
func (d *Document) HideProviderPrices() {
	for i := range d.Models {
		d.Models[i].HideProviderPrices()
	}
}

// HideProviderPrices removes what the providers charge the operator.
func (e *ModelEntry) HideProviderPrices() {
	for i := range e.Routes {
		e.Routes[i].HideProviderPrice()
	}
}

// HideProviderPrice removes what the provider charges the operator.
func (e *RouteEntry) HideProviderPrice() {
	e.ProviderPriceHidden = e.ProviderPrice != nil
	e.ProviderPrice = nil
}

// ApplyAction is the action of the audit log that has the changes of the catalog in its member after.
const ApplyAction = "catalog.apply"

// providerPriceKind is the kind of changes of a provider's price.
const providerPriceKind = "provider_price"

// HideProviderPrices removes what providers charge the operator from the JSON form of changes. That a price has changed is left.
func HideProviderPrices(changes json.RawMessage) (json.RawMessage, error) {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(changes, &list); err != nil {
		return nil, fmt.Errorf("catalog: decode changes: %w", err)
	}
	for _, c := range list {
		if string(c["kind"]) == `"`+providerPriceKind+`"` {
			delete(c, "before")
			delete(c, "after")
		}
	}
	hidden, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("catalog: encode changes: %w", err)
	}
	return hidden, nil
}

// SettingsDocument holds settings of the whole system.
type SettingsDocument struct {
	ImageInputTokens int64 `json:"image_input_tokens,omitempty"`
}

// ProviderEntry is a provider of a Document.
type ProviderEntry struct {
	ID                string                 `json:"id"`
	Name              string                 `json:"name,omitempty"`
	Kind              catalogkv.ProviderKind `json:"kind,omitempty"`
	BaseURL           string                 `json:"base_url"`
	Addresses         catalogkv.Addresses    `json:"addresses,omitempty"`
	Enabled           *bool                  `json:"enabled,omitempty"`
	Auth              string                 `json:"auth,omitempty"`
	AnthropicVersion  string                 `json:"anthropic_version,omitempty"`
	Headers           map[string]string      `json:"headers,omitempty"`
	Credentials       []CredentialEntry      `json:"credentials,omitempty"`
	ConnectTimeout    Duration               `json:"connect_timeout,omitzero"`
	FirstByteTimeout  Duration               `json:"first_byte_timeout,omitzero"`
	IdleTimeout       Duration               `json:"idle_timeout,omitzero"`
	TotalTimeout      Duration               `json:"total_timeout,omitzero"`
	KeepsBilling      bool                   `json:"keeps_billing,omitempty"`
	RecognisesRepeats bool                   `json:"recognises_repeats,omitempty"`
	WantsUser         bool                   `json:"wants_user,omitempty"`
	HTTP2             bool                   `json:"http2,omitempty"`
	// CA has the issuers whose servers are trusted, in the form PEM. Proxy is the address of a forward proxy.
	CA    string `json:"ca,omitempty"`
	Proxy string `json:"proxy,omitempty"`
}

// CredentialEntry is a credential of a provider. It has a Secret, or Parameters if its kind is another one. If it has neither
// of them nor Headers nor a Certificate, all that are stored are kept.
type CredentialEntry struct {
	// ID is only shown: another secret gets another ID.
	ID         string                   `json:"id,omitempty"`
	Name       string                   `json:"name"`
	Kind       catalogkv.CredentialKind `json:"kind,omitempty"`
	Secret     string                   `json:"secret,omitempty"`
	Parameters map[string]string        `json:"parameters,omitempty"`
	// Headers are secrets that are sent in further headers.
	Headers map[string]string `json:"headers,omitempty"`
	// Certificate and PrivateKey authenticate the gateway in TLS, in the form PEM.
	Certificate string `json:"certificate,omitempty"`
	PrivateKey  string `json:"private_key,omitempty"`
	Enabled     *bool  `json:"enabled,omitempty"`
	// CertificateExpires is only shown.
	CertificateExpires *time.Time `json:"certificate_expires_at,omitempty"`
}

// ModelEntry is a model of a Document.
type ModelEntry struct {
	ID                  string                                `json:"id"`
	Type                catalogkv.Type                        `json:"type"`
	DisplayName         string                                `json:"display_name,omitempty"`
	OwnedBy             string                                `json:"owned_by,omitempty"`
	ContextWindow       int64                                 `json:"context_window,omitempty"`
	MaxOutputTokens     int64                                 `json:"max_output_tokens,omitempty"`
	ReserveOutputTokens int64                                 `json:"reserve_output_tokens,omitempty"`
	DefaultSeconds      int64                                 `json:"default_seconds,omitempty"`
	Enabled             *bool                                 `json:"enabled,omitempty"`
	Public              *bool                                 `json:"public,omitempty"`
	Price               PriceEntry                            `json:"price,omitzero"`
	Routes              []RouteEntry                          `json:"routes,omitempty"`
	Params              map[catalogkv.Format]catalogkv.Params `json:"params,omitempty"`
}

// RouteEntry is a route of a model. An empty ID is derived from model, provider and upstream
// model.
type RouteEntry struct {
	ID            string                                `json:"id,omitempty"`
	Provider      string                                `json:"provider"`
	UpstreamModel string                                `json:"upstream_model"`
	Formats       []catalogkv.Format                    `json:"formats"`
	Addresses     catalogkv.Addresses                   `json:"addresses,omitempty"`
	Priority      int                                   `json:"priority,omitempty"`
	Weight        int                                   `json:"weight,omitempty"`
	Enabled       *bool                                 `json:"enabled,omitempty"`
	FirstToken    Duration                              `json:"first_token_timeout,omitzero"`
	Params        map[catalogkv.Format]catalogkv.Params `json:"params,omitempty"`
	// ProviderPrice is what the provider charges the operator. Proxies and accounts do not get it.
	ProviderPrice *PriceEntry `json:"provider_price,omitempty"`
	// ProviderPriceHidden says that the route was read without its ProviderPrice. It is not written: that would remove the price.
	ProviderPriceHidden bool `json:"provider_price_hidden,omitempty"`
}

// PriceEntry is a price sheet. Prices are in the system's currency, per million tokens, per image,
// per second or per call.
type PriceEntry struct {
	RateEntry
	Tiers []TierEntry `json:"tiers,omitempty"`
	// ServiceTiers are the prices of tokens in other service tiers than the default one.
	ServiceTiers []ServiceTierEntry `json:"service_tiers,omitempty"`
	Images       []UnitEntry        `json:"images,omitempty"`
	Seconds      []UnitEntry        `json:"seconds,omitempty"`
	// ServerTool is the price of a call of a tool that the provider runs. Zero makes such tools free; without it the
	// model has none.
	ServerTool *Amount `json:"server_tool,omitempty"`
	// Secondary are the prices of secondary models that a provider calls for a request.
	Secondary []SecondaryEntry `json:"secondary,omitempty"`
}

// SecondaryEntry is the price of a secondary model of a kind: "image_tool", "svg" or "advisor". An
// empty Model matches any.
type SecondaryEntry struct {
	Kind  string `json:"kind"`
	Model string `json:"model,omitempty"`
	RateEntry
	Images []UnitEntry `json:"images,omitempty"`
}

// ServiceTierEntry has the prices of a service tier. None of the price's own rates applies in it.
type ServiceTierEntry struct {
	Name string `json:"name"`
	RateEntry
	Tiers []TierEntry `json:"tiers,omitempty"`
}

// TierEntry replaces rates if the input is longer than AboveInput tokens.
type TierEntry struct {
	AboveInput int64 `json:"above_input"`
	RateEntry
}

// RateEntry holds prices per million tokens; nil means no price.
type RateEntry struct {
	Input           *Amount `json:"input,omitempty"`
	CachedInput     *Amount `json:"cached_input,omitempty"`
	CacheWrite5m    *Amount `json:"cache_write_5m,omitempty"`
	CacheWrite1h    *Amount `json:"cache_write_1h,omitempty"`
	CacheWrite30m   *Amount `json:"cache_write_30m,omitempty"`
	CacheWrite12h   *Amount `json:"cache_write_12h,omitempty"`
	CacheWriteOther *Amount `json:"cache_write_other,omitempty"`
	Output          *Amount `json:"output,omitempty"`
	Reasoning       *Amount `json:"reasoning,omitempty"`
	AudioIn         *Amount `json:"audio_in,omitempty"`
	AudioOut        *Amount `json:"audio_out,omitempty"`
	ImageIn         *Amount `json:"image_in,omitempty"`
	ImageOut        *Amount `json:"image_out,omitempty"`
}

// UnitEntry is the price of one image or second of a size and quality; empty ones match any.
type UnitEntry struct {
	Size    string `json:"size,omitempty"`
	Quality string `json:"quality,omitempty"`
	Price   Amount `json:"price"`
}

// GrantEntry grants models to an account.
type GrantEntry struct {
	AccountID account.ID `json:"account_id"`
	Models    []string   `json:"models"`
}

// Amount is money in decimal form.
type Amount money.Nano

// MarshalText returns the decimal.
func (a Amount) MarshalText() ([]byte, error) { return []byte(money.Nano(a).String()), nil }

// UnmarshalText parses a decimal with at most nine places.
func (a *Amount) UnmarshalText(text []byte) error {
	n, err := money.Parse(string(text))
	if err != nil {
		return fmt.Errorf("must be a decimal with at most nine places, not %q", text)
	}
	*a = Amount(n)
	return nil
}

// Duration is a duration such as "5s" or "1m30s".
type Duration time.Duration

// MarshalText returns the text form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses a duration of whole milliseconds.
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := time.ParseDuration(string(text))
	if err != nil || span < 0 || span%time.Millisecond != 0 {
		return fmt.Errorf("must be a duration such as 5s or 250ms, not %q", text)
	}
	*d = Duration(span)
	return nil
}
