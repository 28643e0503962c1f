package cabinet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
)

// use sends a request as a customer does and returns its id.
func (c *Cabinet) use(ctx context.Context, secret string) (string, error) {
	status, header, err := c.chat(ctx, secret)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("the gateway answered with the status %d", status)
	}
	id := header.Get("X-Request-Id")
	c.printf("the customer uses the key: request %s", id)
	return id, nil
}

// chat sends a chat request, as customers do with any client of that format.
func (c *Cabinet) chat(ctx context.Context, secret string) (status int, header http.Header, err error) {
	body, err := json.Marshal(map[string]any{
		"model": c.Model, "max_tokens": 64, "messages": []map[string]string{{"role": "user", "content": "Say hello"}},
	})
	if err != nil {
		return 0, nil, err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Gateway+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("request: %w", err)
	}

	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err = io.Copy(io.Discard, answer.Body); err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}

	return answer.StatusCode, answer.Header, nil
}

// receipt waits until the request is settled and prints the lines of its receipt and its cost. A request is settled
// moments after its response; a web page would show the receipt when it exists.
func (c *Cabinet) receipt(ctx context.Context, request string) (cost string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		usage, err := c.API.GetUsage(ctx, request)
		if err == nil {
			for _, line := range usage.Value.Receipt.Lines {
				c.printf("receipt: %d %s at %s per %d is %s", line.Quantity, line.Line, line.UnitPrice, line.Per, line.Amount)
			}
			c.printf("receipt: %s in all, of %s reserved", usage.Value.Cost, usage.Value.Reservation)
			return usage.Value.Cost, nil
		}

		if adminclient.Code(err) != "not_found" {
			return "", err
		}

		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s is not settled: %w", request, ctx.Err())
		case <-tick.C:
		}
	}
}

// statement prints what the customer gets at the end of a month, here for the days since they signed up: payments,
// usage and the closing balance. With `Accept: text/csv` the same call returns a file for their bookkeeping.
func (c *Cabinet) statement(ctx context.Context, account *adminclient.Account, costs []string) error {
	from, to := account.CreatedAt.UTC().Format(time.DateOnly), time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	answer, err := c.API.GetStatement(
		ctx,
		account.ID,
		&adminclient.GetStatementParams{
			From:    &from,
			To:      &to,
			GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupDay, adminclient.UsageGroupModel},
		},
	)
	if err != nil {
		return err
	}

	statement := answer.Value
	c.printf("statement from %s: %s %s", statement.From, statement.OpeningBalance, statement.Currency)

	for _, t := range statement.Transactions {
		c.printf("statement: %s %s of %s: %s", t.Kind, t.Reference, t.CreatedAt.Format(time.DateOnly), t.Amount)
	}

	for _, line := range statement.UsageLines {
		c.printf("statement: %d requests to %s on %s: -%s", line.Requests, *line.Model, *line.Day, line.Cost)
	}

	c.printf("statement: %s %s are left", statement.ClosingBalance, statement.Currency)
	sum := new(big.Rat) // never a float: an amount has up to nine places
	for _, cost := range costs {
		of, ok := new(big.Rat).SetString(cost)
		if !ok {
			return fmt.Errorf("the cost %q is no number", cost)
		}
		sum.Add(sum, of)
	}
	if usage, ok := new(big.Rat).SetString(statement.Usage); !ok || usage.Cmp(sum) != 0 {
		return fmt.Errorf("the usage is %s on the statement, the receipts have %v", statement.Usage, costs)
	}

	return c.checkBalance(ctx, account.ID, statement.ClosingBalance)
}

// checkBalance compares the closing balance of a statement with the balance.
func (c *Cabinet) checkBalance(ctx context.Context, account, closing string) error {
	balance, err := c.API.GetBalance(ctx, account)
	if err != nil {
		return err
	}
	if balance.Value.Balance != closing {
		return fmt.Errorf("the closing balance of the statement is %s, the balance is %s", closing, balance.Value.Balance)
	}
	return nil
}
