// Package cabinet is an example of what the backend of a customer cabinet does:
// a customer signs up, pays, gets a key, spends, is warned, gives the key back,
// and looks at the bill. It uses the generated client of the admin API and nothing else of ours,
// so it is also where to copy from.
//
// What a cabinet has to get right, and where to see it here:
//   - every POST carries an Idempotency-Key made from the cabinet's own ids, so
//     that a job that is run again after a crash does nothing twice (signUp, topUp);
//   - a payment is booked under its own reference, once, whatever happens;
//   - a secret is shown, never stored: the control plane can show it again (showKey);
//   - a revocation is told as done only when it is effective everywhere (revoke);
//   - an event is believed only if it is signed and fresh, and acted on once (Receiver).
package cabinet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// Cabinet is the backend of one operator.
type Cabinet struct {
	// API is the admin API, with a token of scope `cabinet`.
	API *adminclient.ClientWithResponses
	// Gateway is the address that customers use, without /v1.
	Gateway string
	// Model is what the customer of the example calls.
	Model string
	// Warnings is the queue of low balances, which Receive fills; it has a buffer.
	Warnings chan *adminclient.Event
	// Out takes the story.
	Out io.Writer
}

// Customer is who signs up, as the cabinet knows them.
type Customer struct {
	// ID is the cabinet's own, unique.
	ID, Name string
	// Payment is the payment provider's reference, and Amount what was paid.
	Payment, Amount string
	// Limit is what the key may spend in all.
	Limit string
}

// Story goes through the life of a customer once.
func (c *Cabinet) Story(ctx context.Context, who Customer) error {
	account, err := c.signUp(ctx, who)
	if err != nil {
		return fmt.Errorf("sign up: %w", err)
	}
	if err := c.topUp(ctx, account.ID, who); err != nil {
		return fmt.Errorf("top up: %w", err)
	}
	key, err := c.issueKey(ctx, account.ID, who)
	if err != nil {
		return fmt.Errorf("issue a key: %w", err)
	}
	request, err := c.use(ctx, key.Secret)
	if err != nil {
		return fmt.Errorf("use the key: %w", err)
	}
	cost, err := c.receipt(ctx, request)
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	if err := c.warn(ctx, account.ID, who); err != nil {
		return fmt.Errorf("warn of a low balance: %w", err)
	}
	if err := c.showKey(ctx, key); err != nil {
		return fmt.Errorf("show the key: %w", err)
	}
	if err := c.revoke(ctx, key); err != nil {
		return fmt.Errorf("revoke the key: %w", err)
	}
	if err := c.statement(ctx, account, cost); err != nil {
		return fmt.Errorf("statement: %w", err)
	}
	return nil
}

// signUp makes the customer's account. Run again, it finds the same one.
func (c *Cabinet) signUp(ctx context.Context, who Customer) (*adminclient.Account, error) {
	slots := 10
	answer, err := c.API.CreateAccountWithResponse(ctx,
		&adminclient.CreateAccountParams{IdempotencyKey: once("signup", who.ID)},
		adminclient.AccountCreate{Name: who.Name, ExternalID: &who.ID, MaxConcurrentRequests: &slots})
	if err != nil {
		return nil, err
	}
	if answer.JSON201 == nil {
		return nil, refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	c.tell("%s signs up and gets the account %s", who.Name, answer.JSON201.ID)
	return answer.JSON201, nil
}

// topUp books a payment. The payment provider may tell of it twice: the
// reference makes it one booking.
func (c *Cabinet) topUp(ctx context.Context, account string, who Customer) error {
	for _, notice := range []string{"first", "second"} {
		answer, err := c.API.CreateCreditWithResponse(ctx, account,
			&adminclient.CreateCreditParams{IdempotencyKey: once("payment", notice, who.Payment)},
			adminclient.CreditCreate{Kind: adminclient.CreditKindTopUp, Amount: who.Amount, Reference: who.Payment})
		if err != nil {
			return err
		}
		switch {
		case answer.JSON201 != nil:
			c.tell("the payment %s is booked: %s", who.Payment, answer.JSON201.Amount)
		case answer.JSON200 != nil:
			c.tell("the %s notice of the same payment changes nothing", notice)
		default:
			return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
		}
	}
	return nil
}

// issueKey makes a key with a spend limit. The secret is in the answer.
func (c *Cabinet) issueKey(ctx context.Context, account string, who Customer) (*adminclient.IssuedKey, error) {
	answer, err := c.API.CreateKeyWithResponse(ctx, account,
		&adminclient.CreateKeyParams{IdempotencyKey: once("key", who.ID)},
		adminclient.KeyCreate{Name: "production", SpendLimit: &who.Limit})
	if err != nil {
		return nil, err
	}
	if answer.JSON201 == nil {
		return nil, refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	c.tell("a key …%s that may spend %s", answer.JSON201.Hint, who.Limit)
	return answer.JSON201, nil
}

// showKey shows the secret again, for *Show key* on a page.
func (c *Cabinet) showKey(ctx context.Context, key *adminclient.IssuedKey) error {
	answer, err := c.API.RevealKeyWithResponse(ctx, key.ID, nil)
	if err != nil {
		return err
	}
	switch problem := answer.ApplicationProblemJSONDefault; {
	case problem != nil && problem.Kind("not_revealable"): // a page says so instead of the button
		c.tell("this key is too old to be shown")
	case answer.JSON200 == nil:
		return refused(answer.StatusCode(), problem)
	case answer.JSON200.Secret != key.Secret:
		return fmt.Errorf("another secret than the one that was issued for %s", key.ID)
	default:
		c.tell("the key can be shown again")
	}
	return nil
}

// revoke takes the key back, and says so only when no proxy admits it any
// more. An answer of 202 is one to ask again after.
func (c *Cabinet) revoke(ctx context.Context, key *adminclient.IssuedKey) error {
	for {
		answer, err := c.API.RevokeKeyWithResponse(ctx, key.ID, nil)
		if err != nil {
			return err
		}
		if answer.JSON202 != nil {
			continue // it has waited for the proxies already
		}
		if answer.JSON200 == nil {
			return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
		}
		c.tell("the key is revoked; %d proxies have confirmed", answer.JSON200.ConfirmedBy)
		break
	}
	status, _, err := c.chat(ctx, key.Secret)
	if err == nil && status != http.StatusUnauthorized {
		err = fmt.Errorf("a request with the revoked key is answered with %d", status)
	}
	return err
}

// once is an Idempotency-Key that the same job always makes alike.
func once(job string, ids ...string) *string {
	key := strings.Join(append([]string{"cabinet", job}, ids...), "-")
	return &key
}

// refused is the error of an answer without what was asked for.
func refused(status int, problem *adminclient.Problem) error {
	if problem == nil {
		return fmt.Errorf("answered with %d", status)
	}
	return problem
}

func (c *Cabinet) tell(format string, args ...any) { fmt.Fprintf(c.Out, "- "+format+"\n", args...) }
