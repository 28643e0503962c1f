package cabinet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// statement shows what the customer gets at the end of a month, here of the
// days since they signed up: what was paid, what was used, and what is left.
// With `Accept: text/csv` the same call gives a file for their bookkeeping.
func (c *Cabinet) statement(ctx context.Context, account *adminclient.Account, cost string) error {
	from, to := account.CreatedAt.UTC().Format(time.DateOnly), time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	answer, err := c.API.GetStatementWithResponse(ctx, account.ID,
		&adminclient.GetStatementParams{From: &from, To: &to, GroupBy: []adminclient.UsageGroup{adminclient.ByDay, adminclient.ByModel}})
	if err != nil {
		return err
	}
	bill := answer.JSON200
	if bill == nil {
		return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	c.tell("statement from %s: %s %s", bill.From, bill.OpeningBalance, bill.Currency)
	for _, booked := range bill.Transactions {
		c.tell("statement: %s %s of %s: %s", booked.Kind, booked.Reference, booked.CreatedAt.Format(time.DateOnly), booked.Amount)
	}
	for _, line := range bill.UsageLines {
		c.tell("statement: %d requests to %s on %s: -%s", line.Requests, *line.Model, *line.Day, line.Cost)
	}
	c.tell("statement: %s %s are left", bill.ClosingBalance, bill.Currency)
	if bill.Usage != cost {
		return fmt.Errorf("the statement says %s was used, the receipt %s", bill.Usage, cost)
	}
	return c.sameBalance(ctx, account.ID, bill.ClosingBalance)
}

// sameBalance checks that a statement ends with the balance.
func (c *Cabinet) sameBalance(ctx context.Context, account, closing string) error {
	answer, err := c.API.GetBalanceWithResponse(ctx, account)
	if err != nil {
		return err
	}
	if answer.JSON200 == nil {
		return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	if answer.JSON200.Balance != closing {
		return fmt.Errorf("the statement ends with %s, the balance is %s", closing, answer.JSON200.Balance)
	}
	return nil
}
