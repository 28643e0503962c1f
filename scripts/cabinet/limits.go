package cabinet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
)

// limit shows what a customer does with projects and limits. It appends the costs of their requests.
func (c *Cabinet) limit(
	ctx context.Context,
	account string,
	key *adminclient.IssuedKey,
	customer Customer,
	costs []string,
) ([]string, error) {
	l, err := c.organise(ctx, account, key, customer)
	if err != nil {
		return nil, err
	}

	request, err := c.rotate(ctx, key, customer)
	if err != nil {
		return nil, fmt.Errorf("rotate the key: %w", err)
	}
	cost, err := c.receipt(ctx, request)
	if err != nil {
		return nil, err
	}
	costs = append(costs, cost)

	if err := c.reach(ctx, key, l); err != nil {
		return nil, fmt.Errorf("reach a limit: %w", err)
	}
	if request, err = c.extend(ctx, key, l, customer); err != nil {
		return nil, fmt.Errorf("extend a limit: %w", err)
	}
	if cost, err = c.receipt(ctx, request); err != nil {
		return nil, err
	}
	return append(costs, cost), c.byProject(ctx, account, l)
}

// organise puts the key into a project and sets limits for the account, the project and the key. It returns the limit of the project.
func (c *Cabinet) organise(
	ctx context.Context,
	account string,
	key *adminclient.IssuedKey,
	customer Customer,
) (*adminclient.SpendLimit, error) {
	project, err := c.API.CreateProject(ctx, account,
		&adminclient.CreateProjectParams{IdempotencyKey: idempotencyKey("project", customer.ID)},
		adminclient.ProjectCreate{Name: "web shop"})
	if err != nil {
		return nil, err
	}
	moved, err := c.API.UpdateKey(ctx, key.ID, &adminclient.UpdateKeyParams{Wait: applied},
		adminclient.KeyPatch{ProjectID: optional.Of(project.Value.ID)})
	if err != nil {
		return nil, err
	}
	c.printf("the key %s is in the project %s", moved.Value.ID, project.Value.Name)

	var ofProject *adminclient.SpendLimit
	window := func(p adminclient.LimitPeriodPeriod) adminclient.LimitPeriod {
		return adminclient.LimitPeriod{Period: p, TimeZone: &c.TimeZone}
	}
	for _, l := range []adminclient.LimitCreate{
		{Amount: customer.Amount, Window: window(adminclient.LimitPeriodPeriodMonth)},
		{Amount: customer.Limit, Window: window(adminclient.LimitPeriodPeriodWeek), ProjectID: &project.Value.ID},
		{Amount: customer.Limit, Window: window(adminclient.LimitPeriodPeriodDay), KeyID: &key.ID},
	} {
		period := string(l.Window.Period)
		made, err := c.API.CreateLimit(ctx, account,
			&adminclient.CreateLimitParams{IdempotencyKey: idempotencyKey("limit", period, customer.ID), Wait: applied}, l)
		if err != nil {
			return nil, err
		}
		c.printf("the limit of the %s is %s a %s", ownerOf(made.Value), made.Value.Amount, period)
		if made.Value.ProjectID != nil {
			ofProject = made.Value
		}
	}

	return ofProject, nil
}

// applied lets a change return when all proxies have applied it: no request is admitted by what was before.
var applied = new(adminclient.WaitForApplied)

// ownerOf says what a limit is for, as x-limit-scope does.
func ownerOf(l *adminclient.SpendLimit) string {
	switch {
	case l.KeyID != nil:
		return "key"
	case l.ProjectID != nil:
		return "project"
	default:
		return "account"
	}
}

// rotate gives the key a new secret. The one before works for a minute more, in which the customer changes their configuration.
// It returns a request with the secret before.
func (c *Cabinet) rotate(ctx context.Context, key *adminclient.IssuedKey, customer Customer) (request string, err error) {
	rotated, err := c.API.RotateKey(ctx, key.ID, &adminclient.RotateKeyParams{IdempotencyKey: idempotencyKey("rotate", customer.ID)},
		adminclient.KeyRotation{OverlapSeconds: 60})
	if err != nil {
		return "", err
	}
	if request, err = c.use(ctx, key.Secret); err != nil {
		return "", fmt.Errorf("with the secret before the rotation: %w", err)
	}
	key.Secret = rotated.Value.Secret
	c.printf("the key has a new secret; the one before works until the overlap ends")
	return request, nil
}

// reach lets the project reach its limit. The customer sees why a request is refused, and is warned by an event.
func (c *Cabinet) reach(ctx context.Context, key *adminclient.IssuedKey, l *adminclient.SpendLimit) error {
	now, err := c.API.GetLimit(ctx, l.ID)
	if err != nil {
		return err
	}
	if now.Value.Current == nil {
		return errors.New("the limit has no window after a request")
	}

	spent := now.Value.Current.Spent
	change := adminclient.LimitPatch{Amount: &spent}
	if _, err := c.API.UpdateLimit(ctx, l.ID, &adminclient.UpdateLimitParams{Wait: applied}, change); err != nil {
		return err
	}
	c.printf("the customer lowers the limit of the project to %s, which is spent", spent)

	status, header, err := c.chat(ctx, key.Secret)
	if err != nil {
		return err
	}
	if status != http.StatusForbidden || header.Get("X-Limit-Id") != l.ID {
		return fmt.Errorf("a request beyond the limit got the status %d, and the headers name the limit %q",
			status, header.Get("X-Limit-Id"))
	}
	resets, err := time.Parse(time.RFC3339, header.Get("X-Limit-Resets-At"))
	if err != nil {
		return fmt.Errorf("x-limit-resets-at: %w", err)
	}
	c.printf("the page says: the limit %s of the %s is reached until %s",
		header.Get("X-Limit-Id"), header.Get("X-Limit-Scope"), resets.Format(time.DateOnly))

	return c.awaitEvent(ctx, adminclient.EventTypeLimitShareSpent, func(d *adminclient.EventData) (bool, error) {
		if d.LimitID == nil || *d.LimitID != l.ID || d.Percent == nil || *d.Percent != 100 {
			return false, nil
		}
		c.printf("an event warns that %d %% of the limit are spent: %s of %s", *d.Percent, *d.Spent, *d.Amount)
		return true, nil
	})
}

// extend raises the limit of the project for an hour, and later forgives what was spent. It returns a request of that hour.
func (c *Cabinet) extend(
	ctx context.Context,
	key *adminclient.IssuedKey,
	l *adminclient.SpendLimit,
	customer Customer,
) (request string, err error) {
	raise := adminclient.LimitPatch{
		RaisedTo:    optional.Of(customer.Limit),
		RaisedUntil: optional.Of(time.Now().Add(time.Hour).Truncate(time.Millisecond)),
	}
	if _, err := c.API.UpdateLimit(ctx, l.ID, &adminclient.UpdateLimitParams{Wait: applied}, raise); err != nil {
		return "", err
	}
	c.printf("the limit of the project is raised to %s for an hour", customer.Limit)
	if request, err = c.use(ctx, key.Secret); err != nil {
		return "", err
	}

	again, err := c.API.ResetLimit(ctx, l.ID,
		&adminclient.ResetLimitParams{IdempotencyKey: idempotencyKey("reset", customer.ID), Wait: applied})
	if err != nil {
		return "", err
	}
	c.printf("the limit of the project is reset: %s are left", again.Value.Current.Left)
	return request, nil
}

// byProject prints what the customer's projects have used.
func (c *Cabinet) byProject(ctx context.Context, account string, l *adminclient.SpendLimit) error {
	totals, err := c.API.GetUsageTotals(ctx,
		&adminclient.GetUsageTotalsParams{AccountID: &account, GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupProject}})
	if err != nil {
		return err
	}
	for _, t := range totals.Value.Data {
		name := "without a project"
		if t.ProjectID != nil {
			name = *t.ProjectID
		}
		c.printf("usage: %d requests, %s %s, %s", t.Requests, t.Cost, totals.Value.Currency, name)
	}
	ours := func(t adminclient.UsageTotal) bool { return t.ProjectID != nil && *t.ProjectID == *l.ProjectID }
	if !slices.ContainsFunc(totals.Value.Data, ours) {
		return errors.New("the totals have no line for the project")
	}
	return nil
}
