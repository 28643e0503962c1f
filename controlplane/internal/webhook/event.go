package webhook

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"time"

	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Event is an event as it is stored by the transaction that causes it.
type Event struct {
	ID   ident.UUID
	Type Type
	// AccountID and KeyID are the subject of the event; zero if there is none.
	AccountID, KeyID ident.UUID
	Facts            Facts
	// Once is a deduplication key: at most one event with it is stored; empty disables deduplication.
	Once string
	// At is the time of the transaction.
	At time.Time
}

// oncePerHour returns the event with a deduplication key: at most one event of its type about the
// subject, which may be empty, is stored in an hour. It is for conditions that can persist.
func oncePerHour(e Event, subject string, at time.Time) Event {
	e.Once = fmt.Sprintf("%s %s", e.Type, at.UTC().Format("2006-01-02T15"))
	if subject != "" {
		e.Once += " " + subject
	}
	return e
}

// QuarantineEvent returns the event about usage events that were put into quarantine.
func QuarantineEvent(count int, at time.Time) Event {
	return oncePerHour(Event{Type: Quarantined, Facts: Facts{Count: int64(count)}}, "", at)
}

// CheckFailedEvent returns the event about ledger checks that found differences.
func CheckFailedEvent(checks []string, at time.Time) Event {
	return oncePerHour(Event{Type: CheckFailed, Facts: Facts{Checks: checks}}, "", at)
}

// CredentialEvent returns the event about a credential that its provider refuses for a reason, or,
// if the reason is empty, accepts again.
func CredentialEvent(provider, name, id, reason string, at time.Time) Event {
	e := Event{Type: CredentialRefused, Facts: Facts{
		Provider:     provider,
		Credential:   name,
		CredentialID: id,
		Reason:       reason,
	}}
	if reason == "" {
		e.Type = CredentialAccepted
	}
	return oncePerHour(e, id, at)
}

// The share of an account's requests of a day that its clients leave before the end of the answer is unusual from
// unusualGoneLeast requests on, if it is at least one in unusualGoneOneIn. A person who stops an answer now and then,
// or an agent that is restarted, stays far below.
const (
	unusualGoneLeast = 100
	unusualGoneOneIn = 3
)

// IsClientGoneUnusual reports whether so many of an account's requests of a day were left that its operator is told.
func IsClientGoneUnusual(gone, requests int64) bool {
	return gone >= unusualGoneLeast && gone >= (requests+unusualGoneOneIn-1)/unusualGoneOneIn
}

// ClientGoneEvent returns the event about an account whose clients have left that many of its requests of a UTC day.
func ClientGoneEvent(account ident.UUID, gone, requests int64, day time.Time) Event {
	e := Event{Type: ClientGoneUnusual, AccountID: account, Facts: Facts{Count: gone, Of: requests}}
	e.Once = fmt.Sprintf("%s %s %s", e.Type, day.UTC().Format(time.DateOnly), ident.Account.Format(account))
	return e
}

// Facts are the details of an event as known in the transaction that caused it. Which of them are
// set depends on the type of the event.
type Facts struct {
	Balance    *money.Nano `json:"balance,omitempty"`
	Threshold  *money.Nano `json:"threshold,omitempty"`
	SpendLimit *money.Nano `json:"spend_limit,omitempty"`
	Spent      *money.Nano `json:"spent,omitempty"`
	Percent    int16       `json:"percent,omitempty"`
	Amount     *money.Nano `json:"amount,omitempty"`
	// Kind is the kind of a ledger transaction.
	Kind      string `json:"kind,omitempty"`
	Reference string `json:"reference,omitempty"`
	// Refused reports that a request was refused because the pool could not cover it.
	Refused bool  `json:"refused,omitempty"`
	Count   int64 `json:"count,omitempty"`
	// Of is what Count is a part of.
	Of int64 `json:"of,omitempty"`
	// Checks names the failed invariants.
	Checks []string `json:"checks,omitempty"`
	// Provider, Credential (its name) and CredentialID identify a refused credential; Reason is why it is refused.
	Provider     string `json:"provider,omitempty"`
	Credential   string `json:"credential,omitempty"`
	CredentialID string `json:"credential_id,omitempty"`
	Reason       string `json:"reason,omitempty"`
	// ExpiresAt is from when on a key does not work.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Limit is the limit of which a share is spent.
	Limit *LimitFacts `json:"limit,omitempty"`
}

// Subject describes an event's account and key at the time when its body is made.
type Subject struct {
	Currency          string
	AccountExternalID string
	KeyExternalID     string
	KeyName           string
	// Hour and Day are the account's charges of the last hour and the last day.
	Hour, Day money.Nano
}

// payload is the body of an event.
type payload struct {
	ID        string    `json:"id"`
	Type      Type      `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

// data is the data member of an event. Amounts are decimals of the currency.
type data struct {
	AccountID         string     `json:"account_id,omitempty"`
	AccountExternalID string     `json:"account_external_id,omitempty"`
	KeyID             string     `json:"key_id,omitempty"`
	KeyExternalID     string     `json:"key_external_id,omitempty"`
	KeyName           string     `json:"key_name,omitempty"`
	Currency          string     `json:"currency,omitempty"`
	Balance           *string    `json:"balance,omitempty"`
	Threshold         *string    `json:"threshold,omitempty"`
	SpendLimit        *string    `json:"spend_limit,omitempty"`
	Spent             *string    `json:"spent,omitempty"`
	Percent           int16      `json:"percent,omitempty"`
	Amount            *string    `json:"amount,omitempty"`
	Kind              string     `json:"kind,omitempty"`
	Reference         string     `json:"reference,omitempty"`
	Refused           *bool      `json:"request_refused,omitempty"`
	Count             int64      `json:"count,omitempty"`
	Of                int64      `json:"of,omitempty"`
	Checks            []string   `json:"checks,omitempty"`
	Provider          string     `json:"provider_id,omitempty"`
	Credential        string     `json:"credential,omitempty"`
	CredentialID      string     `json:"credential_id,omitempty"`
	Reason            string     `json:"reason,omitempty"`
	ExpiresAt         *time.Time `json:"expires_at,omitempty"`
	Forecast          *forecast  `json:"forecast,omitempty"`
	*LimitFacts
}

// forecast estimates how long a balance lasts.
type forecast struct {
	ChargedLastHour string `json:"charged_last_hour"`
	ChargedLastDay  string `json:"charged_last_day"`
	// HoursLeft is null if nothing was charged.
	HoursLeft *int64 `json:"hours_left"`
}

// Body returns the JSON body that every attempt sends.
func (e *Event) Body(s *Subject) ([]byte, error) {
	f := &e.Facts
	d := data{
		Balance:      decimal(f.Balance),
		Threshold:    decimal(f.Threshold),
		SpendLimit:   decimal(f.SpendLimit),
		Spent:        decimal(f.Spent),
		Percent:      f.Percent,
		Amount:       decimal(f.Amount),
		Kind:         f.Kind,
		Reference:    f.Reference,
		Count:        f.Count,
		Of:           f.Of,
		Checks:       f.Checks,
		Provider:     f.Provider,
		Credential:   f.Credential,
		CredentialID: f.CredentialID,
		Reason:       f.Reason,
		ExpiresAt:    f.ExpiresAt,
		LimitFacts:   f.Limit,
	}
	if !e.AccountID.IsZero() {
		d.AccountID, d.AccountExternalID, d.Currency = ident.Account.Format(e.AccountID), s.AccountExternalID, s.Currency
	}
	if !e.KeyID.IsZero() {
		d.KeyID, d.KeyExternalID, d.KeyName = ident.Key.Format(e.KeyID), s.KeyExternalID, s.KeyName
	}
	if e.Type == BalanceExhausted || e.Type == LimitReached {
		d.Refused = &f.Refused
	}

	if e.Type == LowBalance || e.Type == BalanceExhausted {
		d.Forecast = &forecast{ChargedLastHour: s.Hour.String(), ChargedLastDay: s.Day.String()}
		if hours, ok := HoursLeft(*f.Balance, s.Hour, s.Day); ok {
			d.Forecast.HoursLeft = &hours
		}
	}

	body, err := json.Marshal(payload{ident.Event.Format(e.ID), e.Type, e.At.UTC(), d})
	if err != nil {
		return nil, fmt.Errorf("webhook: encode event: %w", err)
	}

	return body, nil
}

func decimal(amount *money.Nano) *string {
	if amount == nil {
		return nil
	}
	text := amount.String()
	return &text
}

// dayHours is the number of hours over which the charges of a day are spread.
const dayHours = 24

// HoursLeft returns how many whole hours a balance lasts if charges continue as in the last hour
// or as in the last day, whichever is faster. ok is false if nothing was charged in either.
func HoursLeft(balance, hour, day money.Nano) (hours int64, ok bool) {
	if hour <= 0 && day <= 0 {
		return 0, false
	}
	if balance <= 0 {
		return 0, true
	}

	hours = int64(balance) // a charge of less than one nano-unit an hour is not possible
	if hour > 0 {
		hours = min(hours, int64(balance/hour))
	}

	if day > 0 {
		high, low := bits.Mul64(uint64(balance), dayHours)
		if high < uint64(day) {
			quotient, _ := bits.Div64(high, low, uint64(day))
			hours = int64(min(quotient, uint64(hours)))
		}
	}

	return hours, true
}
