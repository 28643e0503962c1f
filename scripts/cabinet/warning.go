package cabinet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"modelgateway/controlplane/adminclient"
)

// eventTypes are the types of events that the cabinet handles.
var eventTypes = []adminclient.EventType{adminclient.EventTypeAccountLowBalance, adminclient.EventTypeLimitShareSpent}

// warn sets the balance below which the customer is warned and waits for the event. The threshold is the amount that
// they have paid, so that the event is sent at once.
func (c *Cabinet) warn(ctx context.Context, account string, customer Customer) error {
	const nearLimit = 80 // percent of a key's spend limit
	_, err := c.API.SetAlerts(ctx, account, adminclient.Alerts{LowBalance: &customer.Amount, SpendLimitPercent: nearLimit})
	if err != nil {
		return err
	}

	c.printf("the customer wants a warning below %s", customer.Amount)
	return c.awaitEvent(ctx, adminclient.EventTypeAccountLowBalance, func(d *adminclient.EventData) (bool, error) {
		if *d.AccountID != account { // the event may be about another customer
			return false, nil
		}
		return true, c.notify(d)
	})
}

// awaitEvent waits until handle says that it has handled an event of a type.
func (c *Cabinet) awaitEvent(ctx context.Context, wanted adminclient.EventType, handle func(*adminclient.EventData) (bool, error)) error {
	for {
		select {
		case event := <-c.Warnings:
			if adminclient.EventType(event.Type) != wanted {
				continue
			}
			if handled, err := handle(&event.Data); handled || err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("no event %s arrived: %w", wanted, ctx.Err())
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
	if !slices.Contains(eventTypes, adminclient.EventType(e.Type)) {
		return nil // this cabinet handles no other type
	}
	select {
	case c.Warnings <- e:
		return nil
	default:
		return errors.New("the queue of warnings is full") // the event is sent again
	}
}
