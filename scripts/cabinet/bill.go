package cabinet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
)

// use sends a request as the customer does, and returns its id.
func (c *Cabinet) use(ctx context.Context, secret string) (string, error) {
	status, id, err := c.chat(ctx, secret)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("the gateway answers with %d", status)
	}
	c.tell("the customer uses the key: request %s", id)
	return id, nil
}

// chat is what customers do, with any client for the format.
func (c *Cabinet) chat(ctx context.Context, secret string) (status int, id string, err error) {
	body, err := json.Marshal(map[string]any{
		"model": c.Model, "max_tokens": 64, "messages": []map[string]string{{"role": "user", "content": "Say hello"}},
	})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Gateway+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header.Get("X-Request-Id"), err
}

// receipt waits until the request is settled, and shows what it cost and why.
// Usage comes moments after the answer; a page would show it when it is there.
func (c *Cabinet) receipt(ctx context.Context, request string) (cost string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := c.API.GetUsageWithResponse(ctx, request)
		if err != nil {
			return "", err
		}
		if usage := answer.JSON200; usage != nil {
			for _, line := range usage.Receipt.Lines {
				c.tell("receipt: %d %s at %s per %d is %s", line.Quantity, line.Line, line.UnitPrice, line.Per, line.Amount)
			}
			c.tell("receipt: %s in all, of %s reserved", usage.Cost, usage.Reserve)
			return usage.Cost, nil
		}
		if problem := answer.ApplicationProblemJSONDefault; problem == nil || !problem.Kind("not_found") {
			return "", refused(answer.StatusCode(), problem)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s is not settled: %w", request, ctx.Err())
		case <-tick.C:
		}
	}
}

// statement lists what was booked, and checks that it makes the balance.
func (c *Cabinet) statement(ctx context.Context, account string, who Customer, cost string) error {
	sum := new(big.Rat)
	var cursor *string
	for {
		answer, err := c.API.ListLedgerWithResponse(ctx, account, &adminclient.ListLedgerParams{Cursor: cursor})
		if err != nil {
			return err
		}
		if answer.JSON200 == nil {
			return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
		}
		for _, booking := range answer.JSON200.Data {
			amount, ok := new(big.Rat).SetString(booking.Amount)
			if !ok {
				return fmt.Errorf("the booking %s has the amount %q", booking.ID, booking.Amount)
			}
			sum.Add(sum, amount)
			c.tell("booked %s: %s %s %s", booking.CreatedAt.Format(time.DateTime), booking.Kind, booking.Amount, booking.Reference)
		}
		if cursor = answer.JSON200.NextCursor; cursor == nil {
			break
		}
	}
	answer, err := c.API.GetBalanceWithResponse(ctx, account)
	if err != nil {
		return err
	}
	if answer.JSON200 == nil {
		return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	balance, paid, spent := new(big.Rat), new(big.Rat), new(big.Rat)
	for text, into := range map[string]*big.Rat{answer.JSON200.Balance: balance, who.Amount: paid, cost: spent} {
		if _, ok := into.SetString(text); !ok {
			return fmt.Errorf("%q is no amount", text)
		}
	}
	if sum.Cmp(balance) != 0 || paid.Sub(paid, spent).Cmp(balance) != 0 {
		return errors.New("the bookings do not make the balance of " + answer.JSON200.Balance)
	}
	c.tell("the balance is %s %s: what was paid less what was spent", answer.JSON200.Balance, answer.JSON200.Currency)
	return nil
}
