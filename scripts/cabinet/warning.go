package cabinet

import (
	"context"
	"errors"
	"fmt"

	"modelgateway/controlplane/adminclient"
)

// warn sets the balance below which the customer is warned and waits for the event. The threshold is the amount that
// they have paid, so that the event is sent at once.
func (c *Cabinet) warn(ctx context.Context, account string, customer Customer) error {
	const nearLimit = 80 // percent of a key's spend limit
	_, err := c.API.SetAlerts(ctx, account, adminclient.Alerts{LowBalance: &customer.Amount, SpendLimitPercent: nearLimit})
	if err != nil {
		return err
	}

	c.printf("the customer wants a warning below %s", customer.Amount)
	for {
		select {
		case event := <-c.Warnings:
			if *event.Data.AccountID == account { // the event may be about another customer
				return c.notify(&event.Data)
			}
		case <-ctx.Done():
			return fmt.Errorf("no event arrived: %w", ctx.Err())
		}
	}
}

// notify takes the place of the message that a cabinet sends to the customer.
func (c *Cabinet) notify(low *adminclient.EventData) error {
	if low.Balance == nil || low.Threshold == nil || low.Forecast == nil {
		return errors.New("the event has no balance, threshold or forecast")
	}
	forecast := "there was no recent usage"
	if hours := low.Forecast.HoursLeft; hours != nil {
		forecast = fmt.Sprintf("at this rate it lasts %d hours", *hours)
	}
	c.printf("an event warns that %s %s are left of %s: %s", *low.Balance, *low.Currency, *low.Threshold, forecast)
	return nil
}

// Receive handles events: it is the Handle function of a Receiver. It must return quickly, because the gateway waits
// for the response; longer work goes into a queue.
func (c *Cabinet) Receive(_ context.Context, e *adminclient.Event) error {
	if adminclient.EventType(e.Type) != adminclient.EventTypeAccountLowBalance {
		return nil // this cabinet handles no other type
	}
	select {
	case c.Warnings <- e:
		return nil
	default:
		return errors.New("the queue of warnings is full") // the event is sent again
	}
}
