package key

import (
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/wire"
)

const (
	maxDescriptionLen = 1000
	// maxRules bounds the models and the networks of a key: proxies hold them in memory for each key.
	maxRules    = 100
	maxModelLen = 200
	maxSlots    = 1_000_000
)

// Settings say what a key is for, and when and for what it may be used.
type Settings struct {
	// ProjectID is nil for a key that is in no project.
	ProjectID *project.ID `json:"project_id,omitempty"`
	// Description and Metadata are of the operator; the gateway only keeps them.
	Description string            `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	// ExpiresAt is from when on the key does not work; nil means never. It has milliseconds.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Paused    bool       `json:"paused,omitempty"`
	// MaxConcurrentRequests bounds the running requests of the key, beside the slots of the account; nil means no bound, zero admits none.
	MaxConcurrentRequests *int `json:"max_concurrent_requests,omitempty"`
	// Models has the ids of the models that the key may use, or prefixes that end with "*"; empty means all of the account.
	Models []string `json:"models,omitempty"`
	// Networks has the networks that the key may be used from; empty means all.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// Rules returns the part of the settings that proxies need.
func (s *Settings) Rules() wire.KeyRules {
	rules := wire.KeyRules{Paused: s.Paused, Models: s.Models, Networks: s.Networks}
	if s.ExpiresAt != nil {
		rules.ExpiresMS = s.ExpiresAt.UnixMilli()
	}
	return rules
}

// SetRules sets the part of the settings that Rules returns.
func (s *Settings) SetRules(rules wire.KeyRules) {
	s.Paused, s.Models, s.Networks, s.ExpiresAt = rules.Paused, rules.Models, rules.Networks, nil
	if rules.ExpiresMS != 0 {
		s.ExpiresAt = new(time.UnixMilli(rules.ExpiresMS).UTC())
	}
}

func (s *Settings) validate(path string, invalid *validation.Errors) {
	if utf8.RuneCountInString(s.Description) > maxDescriptionLen {
		invalid.Add(validation.Member(path, "description"), "is longer than %d characters", maxDescriptionLen)
	}
	account.CheckMetadata(validation.Member(path, "metadata"), s.Metadata, invalid)
	if s.ExpiresAt != nil && !s.ExpiresAt.After(time.Now()) {
		invalid.Add(validation.Member(path, "expires_at"), "is in the past")
	}
	if n := s.MaxConcurrentRequests; n != nil && (*n < 0 || *n > maxSlots) {
		invalid.Add(validation.Member(path, "max_concurrent_requests"), "must be between 0 and %d", maxSlots)
	}
	checkModels(validation.Member(path, "models"), s.Models, invalid)
	if len(s.Networks) > maxRules {
		invalid.Add(validation.Member(path, "networks"), "has more than %d entries", maxRules)
	}
}

func checkModels(path string, models []string, invalid *validation.Errors) {
	if len(models) > maxRules {
		invalid.Add(path, "has more than %d entries", maxRules)
		return
	}
	for i, id := range models {
		switch {
		case id == "" || len(id) > maxModelLen:
			invalid.Add(validation.Index(path, i), "must have 1 to %d bytes", maxModelLen)
		case strings.Contains(strings.TrimSuffix(id, "*"), "*"):
			invalid.Add(validation.Index(path, i), "may have a * only at its end")
		}
	}
}

// ParseNetworks parses networks in CIDR notation. An address stands for itself alone.
func ParseNetworks(path string, texts []string, invalid *validation.Errors) []netip.Prefix {
	var networks []netip.Prefix
	for i, text := range texts {
		network, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); addressErr == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			invalid.Add(validation.Index(path, i), "is neither a network such as 192.0.2.0/24 nor an address")
			continue
		}
		networks = append(networks, network.Masked())
	}
	return networks
}

// SettingsPatch is a change of settings; nil members stay unchanged.
type SettingsPatch struct {
	// SetProject moves the key into the project ProjectID; nil takes it out of its project.
	SetProject  bool
	ProjectID   *project.ID
	Description *string
	// Metadata, Models and Networks replace the whole value.
	Metadata *map[string]string
	// SetExpiry replaces the expiry by ExpiresAt; nil removes it.
	SetExpiry bool
	ExpiresAt *time.Time
	Paused    *bool
	// SetSlots replaces the bound by MaxConcurrentRequests; nil removes it.
	SetSlots              bool
	MaxConcurrentRequests *int
	Models                *[]string
	Networks              *[]netip.Prefix
}

func (p *SettingsPatch) validate(invalid *validation.Errors) {
	changed := p.apply(Settings{})
	changed.validate("", invalid)
}

func (p *SettingsPatch) apply(s Settings) Settings {
	set(&s.Description, p.Description)
	set(&s.Metadata, p.Metadata)
	set(&s.Paused, p.Paused)
	set(&s.Models, p.Models)
	set(&s.Networks, p.Networks)
	if p.SetProject {
		s.ProjectID = p.ProjectID
	}
	if p.SetExpiry {
		s.ExpiresAt = p.ExpiresAt
	}
	if p.SetSlots {
		s.MaxConcurrentRequests = p.MaxConcurrentRequests
	}
	return s.normal()
}

// normal returns the one form of equal settings.
func (s *Settings) normal() Settings {
	n := *s
	if len(n.Metadata) == 0 {
		n.Metadata = nil
	}
	if len(n.Models) == 0 {
		n.Models = nil
	}
	if len(n.Networks) == 0 {
		n.Networks = nil
	}
	if n.ExpiresAt != nil {
		n.ExpiresAt = new(n.ExpiresAt.UTC().Truncate(time.Millisecond))
	}
	return n
}

// set replaces a value if there is a new one.
func set[T any](value, by *T) {
	if by != nil {
		*value = *by
	}
}
