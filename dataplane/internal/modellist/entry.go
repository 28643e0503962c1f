package modellist

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// entry is one model in the list. It has the members that clients of either family of formats read.
type entry struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Type            catalogkv.Type    `json:"type"`
	Created         int64             `json:"created"`
	CreatedAt       string            `json:"created_at"`
	OwnedBy         string            `json:"owned_by"`
	DisplayName     string            `json:"display_name"`
	ContextWindow   int64             `json:"context_window,omitempty"`
	MaxOutputTokens int64             `json:"max_output_tokens,omitempty"`
	Endpoints       []string          `json:"endpoints"`
	Pricing         map[string]string `json:"pricing"`
}

type list struct {
	Object  string  `json:"object"`
	Data    []entry `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

func newEntry(m *catalog.Model, sheet *price.Sheet, currency string) entry {
	e := entry{
		ID:              m.ID,
		Object:          "model",
		Type:            m.Type,
		Created:         m.CreatedUnix,
		CreatedAt:       time.Unix(m.CreatedUnix, 0).UTC().Format(time.RFC3339),
		OwnedBy:         m.OwnedBy,
		DisplayName:     m.DisplayName,
		ContextWindow:   m.ContextWindow,
		MaxOutputTokens: m.MaxOutputTokens,
		Pricing:         pricing(sheet, currency),
	}
	if e.DisplayName == "" {
		e.DisplayName = m.ID
	}

	for _, f := range m.Formats() {
		e.Endpoints = append(e.Endpoints, f.Path())
	}

	return e
}

// pricing returns the prices of a sheet times its multiplier, as exact decimal strings with their unit in the name.
func pricing(sheet *price.Sheet, currency string) map[string]string {
	p := map[string]string{"currency": currency}
	tokens := func(prefix string, rates price.Rates, tiers []price.Tier) {
		for line, rate := range rates {
			p[prefix+string(line)+"_per_million_tokens"] = sheet.Multiplier.FormatRate(rate)
		}
		for _, tier := range tiers {
			for line, rate := range tier.Rates {
				name := fmt.Sprintf("%s%s_per_million_tokens_above_%d_input_tokens", prefix, line, tier.AboveInput)
				p[name] = sheet.Multiplier.FormatRate(rate)
			}
		}
	}
	tokens("", sheet.Rates, sheet.Tiers)
	for _, tier := range sheet.ServiceTiers {
		tokens(tier.Name+"_", tier.Rates, tier.Tiers)
	}

	units := func(unit string, prices []price.UnitPrice) {
		for _, u := range prices {
			parts := slices.DeleteFunc([]string{"per", unit, u.Size, u.Quality}, func(part string) bool { return part == "" })
			p[strings.Join(parts, "_")] = sheet.Multiplier.FormatRate(u.Price)
		}
	}
	units("image", sheet.Images)
	units("second", sheet.Seconds)
	if sheet.HasServerToolPrice() {
		p["per_server_tool_request"] = sheet.Multiplier.FormatRate(sheet.ServerTool)
	}

	for _, second := range sheet.Secondary {
		name := second.Kind
		if second.Model != "" {
			continue // the name of the secondary model identifies the provider
		}
		for line, rate := range second.Rates {
			p[name+"_"+string(line)+"_per_million_tokens"] = sheet.Multiplier.FormatRate(rate)
		}
		units(name+"_image", second.Images)
	}

	return p
}
