package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/shared/apierr"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// listModels lists the public models and, with a key, those granted to its account. A key that is sent must be valid.
// The prices include the account's multipliers.
func (s *Server) listModels(c echo.Context) error {
	x := exchangeOf(c)
	key := &wire.KeyRecord{}
	if _, present := auth.KeyText(c.Request().Header); present {
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

	list, err := s.models.Of(snapshot, key, x.started)
	if err != nil {
		return fmt.Errorf("list models: %w", err)
	}

	x.Header()["Etag"] = list.ETag[:]
	if list.Matches(c.Request().Header["If-None-Match"]) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}

	x.writeJSON(http.StatusOK, list.Body)
	return nil
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

// getBalance answers with the account's balance and the key's limit. They come from the control plane, which knows the
// reservations of all proxies, and are at most balance.MaxAge old.
func (s *Server) getBalance(c echo.Context) error {
	x := exchangeOf(c)
	key, err := s.authenticateReader(x, c.Request())
	if err != nil {
		return err
	}

	snapshot := s.Catalog.Snapshot()
	b, err := s.balances.Of(c.Request().Context(), key.AccountID, key.KeyID)
	if err != nil || b.Status != wire.Done || snapshot == nil {
		return apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, "The balance is temporarily unavailable. Please "+
			"try again.").
			WithCause(err)
	}

	text := func(n int64) string { return money.Nano(n).String() }
	answer := balanceBody{
		Object:    "balance",
		Currency:  snapshot.Settings.Currency,
		Balance:   text(b.Balance),
		Reserved:  text(b.Reserved),
		Available: text(b.Balance - b.Reserved),
		Key:       balanceKey{Spent: text(b.KeySpent), Reserved: text(b.KeyReserved)},
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
