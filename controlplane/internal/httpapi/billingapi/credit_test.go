package billingapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/price"
)

// Credits are used in their order, and refunds keep within what they refund.
func TestCreditsAndTheirRefunds(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	post := func(c adminclient.CreditCreate) *servertest.Answer[adminclient.Transaction] {
		t.Helper()
		r, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, c))
		servertest.Check(t, err)
		return r
	}
	paid := b.Credit(a.ID, "10.00", "invoice-1")
	expires := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	given := post(adminclient.CreditCreate{Amount: "2.00", Kind: adminclient.CreditKindPromotion, Reference: "welcome", ExpiresAt: &expires})
	if given.StatusCode != http.StatusCreated || !given.Value.ExpiresAt.Equal(expires) {
		t.Fatalf("promotion: %d %s", given.StatusCode, given.Body)
	}
	request := b.Proxy("p").Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000, Output: 100_000})
	cost := "1.50"

	for name, c := range map[string]adminclient.CreditCreate{
		"more than the charge": {Amount: "1.500000001", Kind: adminclient.CreditKindRefund, Reference: "r1", RequestID: &request},
		"more than the credit": {Amount: "-2.000000001", Kind: adminclient.CreditKindRefund, Reference: "r2", CreditID: &given.Value.ID},
	} {
		t.Run(name, func(t *testing.T) { servertest.Problem(t, post(c).Problem, http.StatusConflict, "refund_too_large") })
	}
	other := b.Credit(b.Account(1).ID, "1.00", "invoice-2")
	servertest.Problem(t, post(adminclient.CreditCreate{Amount: "-1.00", Kind: adminclient.CreditKindRefund, Reference: "r3", CreditID: &other.ID}).
		Problem, http.StatusConflict, "no_such_credit")
	var refunded string
	for _, c := range []adminclient.CreditCreate{
		{Amount: "1.00", Kind: adminclient.CreditKindRefund, Reference: "r4", RequestID: &request},
		{Amount: "0.50", Kind: adminclient.CreditKindRefund, Reference: "r5", RequestID: &request},
		{Amount: "-10.00", Kind: adminclient.CreditKindRefund, Reference: "r6", CreditID: &paid.ID},
	} {
		r := post(c)
		if r.StatusCode != http.StatusCreated {
			t.Fatalf("refund: %d %s", r.StatusCode, r.Body)
		}
		if c.Reference == "r5" {
			refunded = r.Value.ID
		}
	}
	servertest.Problem(t, post(adminclient.CreditCreate{Amount: "0.000000001", Kind: adminclient.CreditKindRefund, Reference: "r7", RequestID: &request}).
		Problem, http.StatusConflict, "refund_too_large")
	servertest.Problem(t, post(adminclient.CreditCreate{Amount: "-0.000000001", Kind: adminclient.CreditKindRefund, Reference: "r8", CreditID: &paid.ID}).
		Problem, http.StatusConflict, "refund_too_large")
	// A promotion has paid for the request: what is given back does not become money of the customer.
	servertest.Problem(t, post(adminclient.CreditCreate{Amount: "-0.50", Kind: adminclient.CreditKindRefund, Reference: "r9", CreditID: &refunded}).
		Problem, http.StatusConflict, "refund_too_large")

	type row struct{ Kind, State, Amount, Used, Refunded, Left string }
	var got []row
	pages := 0
	for cursor := (*string)(nil); pages == 0 || cursor != nil; pages++ {
		r, err := servertest.Answered(b.API.ListCredits(t.Context(), a.ID, &adminclient.ListCreditsParams{Limit: new(2), Cursor: cursor}))
		servertest.Check(t, err)
		for _, c := range r.Value.Data {
			got = append(got, row{string(c.Kind), string(c.State), c.Amount, c.Used, c.Refunded, c.Left})
		}
		cursor = r.Value.NextCursor
	}
	want := []row{
		{"refund", "active", "0.50", "0.00", "0.00", "0.50"},
		{"refund", "active", "1.00", "0.00", "0.00", "1.00"},
		{"promotion", "active", "2.00", cost, "0.00", "0.50"},
		{"payment", "used", "10.00", "0.00", "10.00", "0.00"},
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 2 {
		t.Errorf("credits in %d pages (-want +got):\n%s", pages, diff)
	}

	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for name, filter := range map[string]struct {
		params adminclient.ListCreditsParams
		want   []string
	}{
		"of a kind":              {adminclient.ListCreditsParams{Kind: new(adminclient.CreditKindRefund)}, []string{"r5", "r4"}},
		"by reference":           {adminclient.ListCreditsParams{Reference: new("welcome")}, []string{"welcome"}},
		"active":                 {adminclient.ListCreditsParams{State: new(adminclient.CreditStateActive)}, []string{"r5", "r4", "welcome"}},
		"active, page by page":   {adminclient.ListCreditsParams{State: new(adminclient.CreditStateActive), Limit: new(1)}, []string{"r5", "r4", "welcome"}},
		"used":                   {adminclient.ListCreditsParams{State: new(adminclient.CreditStateUsed)}, []string{"invoice-1"}},
		"expired":                {adminclient.ListCreditsParams{State: new(adminclient.CreditStateExpired)}, nil},
		"from a time":            {adminclient.ListCreditsParams{From: &future}, nil},
		"until a time":           {adminclient.ListCreditsParams{To: &past}, nil},
		"of a time":              {adminclient.ListCreditsParams{From: &past, To: &future, Kind: new(adminclient.CreditKindPayment)}, []string{"invoice-1"}},
		"that expire":            {adminclient.ListCreditsParams{ExpiresBefore: new(expires.Add(time.Second))}, []string{"welcome"}},
		"that expire before":     {adminclient.ListCreditsParams{ExpiresBefore: &expires}, nil},
		"that expire and active": {adminclient.ListCreditsParams{ExpiresBefore: new(expires.Add(time.Millisecond)), State: new(adminclient.CreditStateActive)}, []string{"welcome"}},
	} {
		if diff := cmp.Diff(filter.want, b.credits(a.ID, filter.params)); diff != "" {
			t.Errorf("credits %s (-want +got):\n%s", name, diff)
		}
	}
	for _, params := range []adminclient.ListCreditsParams{
		{Kind: new(adminclient.CreditKind("usage"))}, {State: new(adminclient.CreditState("left"))}, {From: &future, To: &past},
	} {
		faulty, err := servertest.Answered(b.API.ListCredits(t.Context(), a.ID, &params))
		servertest.Check(t, err)
		servertest.Problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	}
	b.CheckLedger()
}

// credits returns the references of the credits of an account, page by page.
func (b *server) credits(account string, params adminclient.ListCreditsParams) (found []string) {
	b.T.Helper()
	for {
		r, err := servertest.Answered(b.API.ListCredits(b.T.Context(), account, &params))
		servertest.Check(b.T, err)
		for _, c := range r.Value.Data {
			found = append(found, c.Reference)
		}
		if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
			return found
		}
	}
}

// A charge that is not attributed yet has used a credit, for its state as for its filter.
func TestStateOfACreditCountsWhatWasCharged(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	b.Credit(a.ID, "1.50", "small")
	b.Credit(a.ID, "10.00", "large")
	b.Proxy("p").Report(k, time.Now(), b.Sheet("demo-chat"), price.Usage{Input: 1_000_000, Output: 100_000})
	for state, want := range map[adminclient.CreditState][]string{
		adminclient.CreditStateUsed: {"small"}, adminclient.CreditStateActive: {"large"}, adminclient.CreditStateExpired: nil,
	} {
		if diff := cmp.Diff(want, b.credits(a.ID, adminclient.ListCreditsParams{State: &state})); diff != "" {
			t.Errorf("%s credits (-want +got):\n%s", state, diff)
		}
	}
}

// Nothing is left of any credit of the account.
func TestUsedCreditsAreFoundIfNoneIsOpen(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	paid := b.Credit(a.ID, "2.00", "invoice-1")
	_, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "-2.00", Kind: adminclient.CreditKindRefund, Reference: "back", CreditID: &paid.ID,
	}))
	servertest.Check(t, err)
	for state, want := range map[adminclient.CreditState][]string{
		adminclient.CreditStateUsed: {"invoice-1"}, adminclient.CreditStateActive: nil, adminclient.CreditStateExpired: nil,
	} {
		if diff := cmp.Diff(want, b.credits(a.ID, adminclient.ListCreditsParams{State: &state})); diff != "" {
			t.Errorf("%s credits (-want +got):\n%s", state, diff)
		}
	}
}

// A credit whose time is over is not active, although its expiry is not booked yet.
func TestCreditHasExpiredBeforeThatIsBooked(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	expires := time.Now().Add(time.Hour)
	_, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "2.00", Kind: adminclient.CreditKindPromotion, Reference: "welcome", ExpiresAt: &expires,
	}))
	servertest.Check(t, err)
	servertest.Check(t, pgx.BeginFunc(t.Context(), b.DB.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local session_replication_role = replica"); err != nil { // the ledger is append-only
			return err
		}
		_, err := tx.Exec(t.Context(), "update ledger_transactions set expires_at = clock_timestamp() where reference = 'welcome'")
		return err
	}))
	r, err := servertest.Answered(b.API.ListCredits(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	if got := r.Value.Data; len(got) != 1 || got[0].State != adminclient.CreditStateExpired || got[0].Left != "2.00" || got[0].Expired != "0.00" {
		t.Errorf("got %+v; want it expired, and nothing booked", got)
	}
	if got := b.credits(a.ID, adminclient.ListCreditsParams{State: new(adminclient.CreditStateExpired)}); len(got) != 1 {
		t.Errorf("got %v as expired; want it", got)
	}
	if got := b.credits(a.ID, adminclient.ListCreditsParams{State: new(adminclient.CreditStateActive)}); len(got) != 0 {
		t.Errorf("got %v as active; want none", got)
	}
}
