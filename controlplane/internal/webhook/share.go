package webhook

import (
	"time"

	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
)

// shares are the percentages of a window of a limit at which LimitShareSpent is sent. The alarms of a window have one bit for each,
// in this order, and are never cleared: each is sent once for a window.
var shares = [...]int16{50, 80, 100}

// Window is the state of a window of a limit that its alarms are computed from.
type Window struct {
	// AccountID is the owner; KeyID is zero for a limit of an account or a project.
	AccountID, KeyID ident.UUID
	Limit            LimitFacts
	// Amount is the amount of the window, Spent what its requests have cost; both since it was last reset.
	Amount, Spent int64
	// Raised are the alarms that were raised.
	Raised AlarmSet
}

// LimitFacts identify a limit and one of its windows in an event.
type LimitFacts struct {
	ID    string      `json:"limit_id"`
	Name  string      `json:"limit_name,omitempty"`
	Scope limit.Scope `json:"scope"`
	// ProjectID is empty unless it is a limit of a project.
	ProjectID string       `json:"project_id,omitempty"`
	Period    limit.Period `json:"period"`
	StartsAt  time.Time    `json:"starts_at"`
	// ResetsAt is when the window ends; nil if it does not.
	ResetsAt *time.Time `json:"resets_at,omitempty"`
}

// MayReachShare reports whether a window may have reached a share that was not raised before. total and settled are those of its
// pool, which are higher than amount and what was spent by what was forgiven: that makes no share lower.
func MayReachShare(total, settled int64, raised AlarmSet) bool {
	now := reachedShares(total, settled)
	return now&^raised != 0
}

func reachedShares(amount, spent int64) AlarmSet {
	now := AlarmSet(0)
	for i, percent := range shares {
		if spent > 0 && !isBelowShare(spent, amount, uint64(percent)) {
			now |= 1 << i
		}
	}
	return now
}

// EvaluateShares returns the alarms that were raised until now, and the events of those that were not raised before.
func (w *Window) EvaluateShares() (now AlarmSet, events []Event) {
	now = w.Raised | reachedShares(w.Amount, w.Spent)
	for i, percent := range shares {
		if now&^w.Raised&(1<<i) == 0 {
			continue
		}
		events = append(events, Event{
			Type:      LimitShareSpent,
			AccountID: w.AccountID,
			KeyID:     w.KeyID,
			Facts: Facts{
				Amount:  (*money.Nano)(&w.Amount),
				Spent:   (*money.Nano)(&w.Spent),
				Percent: percent,
				Limit:   &w.Limit,
			},
		})
	}
	return now, events
}
