package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// modelEntry is one model in the list. It has the members that clients of either family of formats read.
type modelEntry struct {
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

type modelList struct {
	Object  string       `json:"object"`
	Data    []modelEntry `json:"data"`
	HasMore bool         `json:"has_more"`
	FirstID *string      `json:"first_id"`
	LastID  *string      `json:"last_id"`
}

// listModels lists the public models and, with a key, those granted to its account. A key that is sent must be valid.
// The prices include the account's multipliers.
func (s *Server) listModels(c echo.Context) error {
	x := exchangeOf(c)
	x.endpoint = "/v1/models"
	key := &wire.KeyRecord{}
	if _, present := keyText(c.Request().Header); present {
		sent, err := s.authenticateReader(x, c.Request())
		if err != nil {
			return err
		}
		key = &sent.KeyRecord
	}
	snapshot := s.Catalog.Snapshot()
	if snapshot == nil {
		return errStarting
	}
	list := modelList{Object: "list", Data: []modelEntry{}}
	for _, m := range snapshot.Visible(key.AccountID) {
		if sheet := m.PriceAt(x.started); sheet != nil && len(m.Formats()) > 0 {
			list.Data = append(list.Data, newModelEntry(m, sheet.WithMultiplier(key.Multiplier(m.ID)), snapshot.Settings.Currency))
		}
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	body, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode models: %w", err)
	}
	x.writeJSON(http.StatusOK, body)
	return nil
}

func newModelEntry(m *catalog.Model, sheet *price.Sheet, currency string) modelEntry {
	e := modelEntry{
		ID: m.ID, Object: "model", Type: m.Type, Created: m.CreatedUnix, CreatedAt: time.Unix(m.CreatedUnix, 0).UTC().Format(time.RFC3339),
		OwnedBy: m.OwnedBy, DisplayName: m.DisplayName, ContextWindow: m.ContextWindow, MaxOutputTokens: m.MaxOutputTokens,
		Pricing: pricing(sheet, currency),
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
	for line, rate := range sheet.Rates {
		p[string(line)+"_per_million_tokens"] = sheet.Multiplier.FormatRate(rate)
	}
	for _, tier := range sheet.Tiers {
		for line, rate := range tier.Rates {
			p[fmt.Sprintf("%s_per_million_tokens_above_%d_input_tokens", line, tier.AboveInput)] = sheet.Multiplier.FormatRate(rate)
		}
	}
	units := func(unit string, prices []price.UnitPrice) {
		for _, u := range prices {
			parts := slices.DeleteFunc([]string{"per", unit, u.Size, u.Quality}, func(part string) bool { return part == "" })
			p[strings.Join(parts, "_")] = sheet.Multiplier.FormatRate(u.Price)
		}
	}
	units("image", sheet.Images)
	units("second", sheet.Seconds)
	if sheet.ServerTool > 0 {
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

type balanceKey struct {
	SpendLimit *string `json:"spend_limit"`
	Spent      string  `json:"spent"`
	Reserved   string  `json:"reserved"`
	Remaining  *string `json:"remaining"`
}

type balanceBody struct {
	Object    string     `json:"object"`
	Currency  string     `json:"currency"`
	Balance   string     `json:"balance"`
	Reserved  string     `json:"reserved"`
	Available string     `json:"available"`
	Key       balanceKey `json:"key"`
}

// getBalance answers with the account's balance and the key's limit. It asks the control plane, which knows the
// reservations of all proxies.
func (s *Server) getBalance(c echo.Context) error {
	x := exchangeOf(c)
	x.endpoint = "/v1/balance"
	key, err := s.authenticateReader(x, c.Request())
	if err != nil {
		return err
	}
	snapshot := s.Catalog.Snapshot()
	b, err := s.Balances.Balance(c.Request().Context(), &wire.BalanceRequest{V: wire.Version, AccountID: key.AccountID, KeyID: key.KeyID})
	if err != nil || b.Status != wire.Done || snapshot == nil {
		return apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The balance is temporarily unavailable. Please try again.").WithCause(err)
	}
	text := func(n int64) string { return money.Nano(n).String() }
	answer := balanceBody{
		Object: "balance", Currency: snapshot.Settings.Currency, Balance: text(b.Balance), Reserved: text(b.Reserved),
		Available: text(b.Balance - b.Reserved), Key: balanceKey{Spent: text(b.KeySpent), Reserved: text(b.KeyReserved)},
	}
	if b.Limited {
		limit, remaining := text(b.Limit), text(b.Limit-b.KeySpent-b.KeyReserved)
		answer.Key.SpendLimit, answer.Key.Remaining = &limit, &remaining
	} else {
		answer.Key.Reserved = text(0)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode balance: %w", err)
	}
	x.writeJSON(http.StatusOK, body)
	return nil
}
