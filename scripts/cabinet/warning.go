package cabinet

import (
	"context"
	"errors"
	"fmt"

	"modelgateway/controlplane/adminclient"
)

// warn sets the balance below which the customer is warned, and waits for the
// event. Here it is what they have paid, so that it comes at once.
func (c *Cabinet) warn(ctx context.Context, account string, who Customer) error {
	const nearLimit = 80 // the share of a key's limit that is told of, in percent
	answer, err := c.API.SetAlertsWithResponse(ctx, account, adminclient.Alerts{LowBalance: &who.Amount, SpendLimitPercent: nearLimit})
	if err != nil {
		return err
	}
	if answer.JSON200 == nil {
		return refused(answer.StatusCode(), answer.ApplicationProblemJSONDefault)
	}
	c.tell("the customer wants to be warned below %s", who.Amount)
	for {
		select {
		case event := <-c.Warnings:
			if *event.Data.AccountID == account { // others have customers too
				return c.warned(&event.Data)
			}
		case <-ctx.Done():
			return fmt.Errorf("no event came: %w", ctx.Err())
		}
	}
}

// warned is where a cabinet writes to the customer.
func (c *Cabinet) warned(low *adminclient.EventData) error {
	if low.Balance == nil || low.Threshold == nil || low.Forecast == nil {
		return errors.New("the event lacks the balance or its forecast")
	}
	forecast := "nothing was used lately"
	if hours := low.Forecast.HoursLeft; hours != nil {
		forecast = fmt.Sprintf("at this pace it lasts %d hours", *hours)
	}
	c.tell("an event warns that %s %s are left of %s: %s", *low.Balance, *low.Currency, *low.Threshold, forecast)
	return nil
}

// Receive acts on events: it is the Handle of a Receiver. It must be quick,
// since the gateway waits for the answer; longer work goes into a queue.
func (c *Cabinet) Receive(_ context.Context, e *adminclient.Event) error {
	if adminclient.EventType(e.Type) != adminclient.AccountLowBalance {
		return nil // of a type that this cabinet does not act on
	}
	select {
	case c.Warnings <- e:
		return nil
	default:
		return errors.New("the queue of warnings is full") // the event comes again
	}
}
