// Package cabinet is an example of the backend of a cabinet, the operator's web site for customers. A customer signs up,
// pays, gets an API key, uses it, is warned of a low balance, has a project and limits, reaches one and extends it, rotates and
// revokes the key, and reads usage by project and the statement. The package uses the client of the admin API and nothing else of this
// repository, so that it can be copied.
//
// A cabinet must get these points right:
//   - Every POST has an Idempotency-Key made from the cabinet's own ids. A job that runs again after a crash then
//     has no second effect (signUp, topUp).
//   - A payment is booked under the payment provider's reference, once, however often it is reported.
//   - The secret of a key is shown and never stored: the control plane can show it again (showKey).
//   - A revocation is reported as done only when it is effective on every proxy (revoke).
//   - A limit has changed when all proxies have applied it (applied). Headers of a refusal say which limit is short, and
//     until when (reach).
//   - An event is accepted only if its signature is valid and recent, and it is handled once (Receiver).
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
	// API is a client of the admin API with a token of scope `cabinet`.
	API *adminclient.Client
	// Gateway is the address that customers use, without /v1.
	Gateway string
	// Model is the model that the example's customer calls.
	Model string
	// TimeZone is that of the customers' days, weeks and months.
	TimeZone string
	// Warnings is the queue of events of low balances and spent limits, filled by Receive. It must have a buffer.
	Warnings chan *adminclient.Event
	// Out gets one line for each step.
	Out io.Writer
}

// Customer is a customer in the cabinet's own data.
type Customer struct {
	// ID is the cabinet's own id, unique.
	ID, Name string
	// Payment is the payment provider's reference, and Amount the amount paid.
	Payment, Amount string
	// Limit is the spend limit of the customer's key, and the amount of the limits of key and project.
	Limit string
}

// Run takes a customer through all steps once.
func (c *Cabinet) Run(ctx context.Context, customer Customer) error {
	account, err := c.signUp(ctx, customer)
	if err != nil {
		return fmt.Errorf("sign up: %w", err)
	}
	if err := c.topUp(ctx, account.ID, customer); err != nil {
		return fmt.Errorf("top up: %w", err)
	}

	key, err := c.issueKey(ctx, account.ID, customer)
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
	if err := c.warn(ctx, account.ID, customer); err != nil {
		return fmt.Errorf("warn of a low balance: %w", err)
	}
	costs := []string{cost}
	if costs, err = c.limit(ctx, account.ID, key, customer, costs); err != nil {
		return fmt.Errorf("projects and limits: %w", err)
	}
	if err := c.showKey(ctx, key); err != nil {
		return fmt.Errorf("show the key: %w", err)
	}
	if err := c.revoke(ctx, key); err != nil {
		return fmt.Errorf("revoke the key: %w", err)
	}
	if err := c.statement(ctx, account, costs); err != nil {
		return fmt.Errorf("statement: %w", err)
	}

	return nil
}

// signUp creates the customer's account. When it runs again, it returns the same account.
func (c *Cabinet) signUp(ctx context.Context, customer Customer) (*adminclient.Account, error) {
	slots := 10
	created, err := c.API.CreateAccount(ctx,
		&adminclient.CreateAccountParams{IdempotencyKey: idempotencyKey("signup", customer.ID)},
		adminclient.AccountCreate{Name: customer.Name, ExternalID: &customer.ID, MaxConcurrentRequests: &slots})
	if err != nil {
		return nil, err
	}
	c.printf("%s signs up and gets the account %s", customer.Name, created.Value.ID)
	return created.Value, nil
}

// topUp books a payment. The payment provider may report it twice; because of the reference it is booked once, and the
// second response has the status 200.
func (c *Cabinet) topUp(ctx context.Context, account string, customer Customer) error {
	for _, notice := range []string{"first", "second"} {
		booked, err := c.API.CreateCredit(ctx, account,
			&adminclient.CreateCreditParams{IdempotencyKey: idempotencyKey("payment", notice, customer.Payment)},
			adminclient.CreditCreate{Kind: adminclient.CreditKindPayment, Amount: customer.Amount, Reference: customer.Payment})
		if err != nil {
			return err
		}
		if booked.StatusCode == http.StatusCreated {
			c.printf("the payment %s is booked: %s", customer.Payment, booked.Value.Amount)
		} else {
			c.printf("the %s notice of the same payment changes nothing", notice)
		}
	}
	return nil
}

// issueKey creates a key with a spend limit. The response contains the secret.
func (c *Cabinet) issueKey(ctx context.Context, account string, customer Customer) (*adminclient.IssuedKey, error) {
	issued, err := c.API.CreateKey(ctx, account,
		&adminclient.CreateKeyParams{IdempotencyKey: idempotencyKey("key", customer.ID)},
		adminclient.KeyCreate{Name: "production", SpendLimit: &customer.Limit})
	if err != nil {
		return nil, err
	}
	c.printf("a key …%s with the spend limit %s is issued", issued.Value.Hint, customer.Limit)
	return issued.Value, nil
}

// showKey gets the secret again, for "Show key" on a page.
func (c *Cabinet) showKey(ctx context.Context, key *adminclient.IssuedKey) error {
	shown, err := c.API.RevealKey(ctx, key.ID)
	switch {
	case adminclient.Code(err) == "not_revealable": // a web page shows this in place of the button
		c.printf("the secret of this key cannot be shown")
	case err != nil:
		return err
	case shown.Value.Secret != key.Secret:
		return fmt.Errorf("the secret of %s differs from the one that was issued", key.ID)
	default:
		c.printf("the key can be shown again")
	}
	return nil
}

// revoke revokes the key and returns when no proxy admits it any more. The status 202 means that some proxies have
// not confirmed yet.
func (c *Cabinet) revoke(ctx context.Context, key *adminclient.IssuedKey) error {
	for {
		revoked, err := c.API.RevokeKey(ctx, key.ID, nil)
		if err != nil {
			return err
		}
		if revoked.StatusCode == http.StatusAccepted {
			// The control plane has already waited for the proxies.
			c.printf("the key is revoked; these proxies have not confirmed yet: %s", strings.Join(revoked.Value.WaitingFor, ", "))
			continue
		}
		c.printf("the key is revoked; %d proxies have confirmed", len(revoked.Value.ConfirmedBy))
		break
	}

	status, _, err := c.chat(ctx, key.Secret)
	if err == nil && status != http.StatusUnauthorized {
		err = fmt.Errorf("a request with the revoked key got the status %d", status)
	}

	return err
}

// idempotencyKey returns the same key whenever the same job runs.
func idempotencyKey(job string, ids ...string) *string {
	key := strings.Join(append([]string{"cabinet", job}, ids...), "-")
	return &key
}

func (c *Cabinet) printf(format string, args ...any) { fmt.Fprintf(c.Out, "- "+format+"\n", args...) }
