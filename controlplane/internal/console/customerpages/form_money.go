package customerpages

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// below returns the pages above a form of an account.
func below(a *adminclient.Account) []kit.Link {
	return append(slices.Clip(crumbs), kit.Link{Text: a.Name, URL: kit.Path("accounts", a.ID)})
}

// bookingKinds are what can be booked by hand.
var bookingKinds = []kit.Option{
	{Value: string(adminclient.CreditKindPayment), Text: "Payment: the customer has paid"},
	{Value: string(adminclient.CreditKindPromotion), Text: "Promotion: the customer gets it for nothing"},
	{Value: string(adminclient.CreditKindRefund), Text: "Refund: a credit is paid back, or the charge of a request is given back"},
	{Value: string(adminclient.CreditKindCorrection), Text: "Correction: a charge was wrong"},
}

// bookingFields are the fields of a booking. If a credit is named, it is the refund of the credit.
func bookingFields(currency, credit string) []kit.Field {
	kind := adminclient.CreditKindPayment
	if credit != "" {
		kind = adminclient.CreditKindRefund
	}
	return []kit.Field{
		{
			Name:     "kind",
			Label:    "Kind",
			Kind:     "select",
			Required: true,
			Value:    string(kind),
			Options:  bookingKinds,
		},
		{
			Name:     "amount",
			Label:    "Amount",
			Mono:     true,
			Required: true,
			Unit:     currency,
			Hint:     "At most nine places. A negative amount takes money from the account; that of the refund of a credit is negative.",
		},
		{
			Name:     "reference",
			Label:    "Reference",
			Mono:     true,
			Required: true,
			Hint:     "Such as the number of the invoice or ticket. It is booked once per kind and reference.",
		},
		{
			Name:  "credit_id",
			Label: "Credit",
			Mono:  true,
			Value: credit,
			Hint:  "Of a refund with a negative amount: the credit that is paid back, which it cannot exceed.",
		},
		{
			Name:  "request_id",
			Label: "Request",
			Mono:  true,
			Hint:  "The request that is corrected, or whose charge a refund gives back. Its receipt does not change.",
		},
		{Name: "expires_at", Label: "Expires (UTC)", Kind: "datetime-local", Hint: "Of a credit. Empty means never."},
		{Name: "priority", Label: "Priority", Kind: "number", Hint: "Of a credit, 1 to 100: the lowest is used first. Empty means 50."},
		{
			Name:  "reason",
			Label: "Reason",
			Kind:  "area",
			Rows:  2,
			Hint:  "Required for a correction. The customer sees it in the statement.",
		},
		{Name: "allow_negative_balance", Label: "The balance may become negative", Kind: "check"},
	}
}

// book is the form that books a payment, a promotion, a refund or a correction.
func book(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	back := kit.Path("accounts", a.ID, "ledger")
	return &kit.Form{
		Title:   "Book money for " + a.Name,
		Crumbs:  below(a),
		Submit:  "Book",
		Back:    back,
		Fresh:   true,
		Command: "gwctl credits create " + a.ID,
		Fields:  bookingFields(a.Balance.Currency, r.Text("credit_id")),
		Review:  func(_ *kit.Request, in *kit.Input) ([]string, error) { return bookEffects(a, in) },
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			booking, err := readBooking(in)
			if err != nil {
				return nil, err
			}
			params := &adminclient.CreateCreditParams{Wait: kit.Wait(), IdempotencyKey: in.Key()}
			done, err := r.API.CreateCredit(r.Context(), a.ID, params, booking)
			if err != nil {
				return nil, err
			}
			text := done.Value.Amount + " " + a.Balance.Currency + " was booked."
			if done.StatusCode == http.StatusOK {
				text = "This was booked before, at " + view.UTC(done.Value.CreatedAt) + ". Nothing was booked now."
			}
			return kit.Go(back, kit.Applied(text, done.Header))
		},
	}, nil
}

func readBooking(in *kit.Input) (c adminclient.CreditCreate, err error) {
	c = adminclient.CreditCreate{
		Amount:    in.Text("amount"),
		Kind:      adminclient.CreditKind(in.Text("kind")),
		Reference: in.Text("reference"),
		Reason:    in.Optional("reason"),
		RequestID: in.Optional("request_id"),
		CreditID:  in.Optional("credit_id"),

		AllowNegativeBalance: mayOverdraw(in),
	}
	if c.ExpiresAt, err = kit.Moment("expires_at", in.Text("expires_at")); err != nil {
		return c, err
	}
	c.Priority, err = small(in, "priority")
	return c, err
}

// mayOverdraw returns true if the box was checked, nil if not.
func mayOverdraw(in *kit.Input) *bool {
	if !in.Checked("allow_negative_balance") {
		return nil
	}
	return new(true)
}

// bookEffects tells what a booking does to the balance.
func bookEffects(a *adminclient.Account, in *kit.Input) ([]string, error) {
	booking, err := readBooking(in)
	if err != nil {
		return nil, err
	}
	amount := booking.Amount
	after := view.Add(a.Balance.Balance, amount)
	isRefund := booking.Kind == adminclient.CreditKindRefund
	switch {
	case after == "" || strings.ContainsAny(amount, "eE/"):
		return nil, kit.Invalid("amount", "must be a decimal such as 25.00")
	case booking.Kind == adminclient.CreditKindCorrection && booking.Reason == nil:
		return nil, kit.Invalid("reason", "is required for a correction")
	case isRefund && view.Negative(amount) && booking.CreditID == nil:
		return nil, kit.Invalid("credit_id", "is required for a refund with a negative amount")
	case isRefund && !view.Negative(amount) && booking.RequestID == nil:
		return nil, kit.Invalid("request_id", "is required for a refund that gives the charge of a request back")
	case view.Negative(amount) && view.Negative(after) && mayOverdraw(in) == nil:
		return nil, kit.Invalid("amount", "is more than the balance, which would be negative: check the box if that is meant")
	}
	effects := []string{
		"The balance of " + a.Name + " goes from " + a.Balance.Balance + " to " + after + " " + a.Balance.Currency +
			", if nothing else is booked in the meantime.",
	}
	if view.Negative(amount) {
		effects = append(effects, amount+" "+a.Balance.Currency+" is taken from the account.")
	}
	if booking.ExpiresAt != nil {
		effects = append(effects, "What is left of it on "+view.UTC(*booking.ExpiresAt)+" is taken from the account then.")
	}
	return append(effects, "The ledger cannot be changed afterwards: a mistake is mended by a correction."), nil
}

// setAlerts is the form of the thresholds.
func setAlerts(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	alerts, err := r.API.GetAlerts(r.Context(), a.ID)
	if err != nil {
		return nil, err
	}

	low := ""
	if alerts.Value.LowBalance != nil {
		low = *alerts.Value.LowBalance
	}

	back := kit.Path("accounts", a.ID, "alerts")
	return &kit.Form{
		Title:   "Alerts of " + a.Name,
		Crumbs:  below(a),
		Submit:  "Save",
		Back:    back,
		Command: "gwctl alerts set " + a.ID,
		Effects: []string{"Events that follow from the new thresholds are sent to the webhooks at once."},
		Fields: []kit.Field{
			{
				Name:  "low_balance",
				Label: "Low balance",
				Mono:  true,
				Unit:  a.Balance.Currency,
				Value: low,
				Hint:  "Below it, account.low_balance is sent. Empty disables it.",
			},
			{
				Name:     "spend_limit_percent",
				Label:    "Share of a key's spend limit",
				Kind:     "number",
				Unit:     "%",
				Required: true,
				Value:    itoa(alerts.Value.SpendLimitPercent),
				Hint:     "At it, key.spend_limit_near is sent. 0 disables it.",
			},
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			percent, err := small(in, "spend_limit_percent")
			if err != nil {
				return nil, err
			}
			if percent == nil {
				return nil, kit.Invalid("spend_limit_percent", "must be a number")
			}
			if _, err := r.API.SetAlerts(
				r.Context(),
				a.ID,
				adminclient.Alerts{LowBalance: in.Optional("low_balance"), SpendLimitPercent: *percent},
			); err != nil {
				return nil, err
			}
			return kit.Go(back, kit.Done("The thresholds were saved."))
		},
	}, nil
}

// suspend is the form that suspends an account, or resumes it.
func suspend(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	form := &kit.Form{
		Title:   "Suspend " + a.Name,
		Crumbs:  below(a),
		Submit:  "Suspend account",
		Danger:  true,
		Confirm: a.Name,
		Match:   now.Header.Get("ETag"),
		Back:    kit.Path("accounts", a.ID),
		Command: "gwctl accounts update " + a.ID + " --status suspended",
	}

	to, text := adminclient.AccountStatusSuspended, "The account is suspended."
	if a.Status == adminclient.AccountStatusSuspended {
		to, text = adminclient.AccountStatusActive, "The account is active again."
		form.Title, form.Submit, form.Danger, form.Confirm = "Resume "+a.Name, "Resume account", false, ""
		form.Command = "gwctl accounts update " + a.ID + " --status active"
		form.Effects = []string{"Its keys work again as soon as the proxies have applied the change."}
	} else if form.Effects, err = suspendEffects(r, a); err != nil {
		return nil, err
	}

	form.Do = func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
		done, err := r.API.UpdateAccount(
			r.Context(),
			a.ID,
			&adminclient.UpdateAccountParams{Wait: kit.Wait(), IfMatch: in.Match()},
			adminclient.AccountPatch{Status: &to},
		)
		if err != nil {
			return nil, err
		}
		return kit.Go(form.Back, kit.Applied(text, done.Header))
	}
	return form, nil
}

func suspendEffects(r *kit.Request, a *adminclient.Account) ([]string, error) {
	from := time.Now().UTC().AddDate(0, 0, -6).Format(time.DateOnly)
	week, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{AccountID: &a.ID, From: &from})
	if err != nil {
		return nil, err
	}
	effects := []string{"Every request of its keys is refused with 401 invalid_api_key until the account is resumed, as if the key did " +
		"not exist. Its money, keys and usage stay."}
	for _, t := range week.Value.Data {
		effects = append(
			effects,
			"In the last seven days it has made "+view.Count(t.Requests)+" requests for "+t.Cost+" "+week.Value.Currency+".",
		)
	}
	return effects, nil
}
