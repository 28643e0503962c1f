package billingapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestCredit(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	first := b.Credit(a.ID, "25.00", "invoice-1")
	want := adminclient.Transaction{
		ID: first.ID, AccountID: a.ID, Kind: adminclient.TransactionKindPayment, Amount: "25.00", Reference: "invoice-1",
		Actor: new("bootstrap"), CreatedAt: first.CreatedAt, Priority: new(50),
	}
	if diff := cmp.Diff(&want, first); diff != "" {
		t.Errorf("booked (-want +got):\n%s", diff)
	}
	post := func(account string, c adminclient.CreditCreate) *servertest.Answer[adminclient.Transaction] {
		r, err := servertest.Answered(b.API.CreateCredit(t.Context(), account, nil, c))
		servertest.Check(t, err)
		return r
	}
	again := post(a.ID, adminclient.CreditCreate{Amount: "25", Kind: adminclient.CreditKindPayment, Reference: "invoice-1"})
	if diff := cmp.Diff(first, again.Value); diff != "" {
		t.Errorf("booked again (-want +got):\n%s", diff)
	}
	for name, c := range map[string]adminclient.CreditCreate{
		"other amount": {Amount: "26.00", Kind: adminclient.CreditKindPayment, Reference: "invoice-1"},
		"other reason": {Amount: "25.00", Kind: adminclient.CreditKindPayment, Reference: "invoice-1", Reason: new("gift")},
	} {
		t.Run(name, func(t *testing.T) {
			servertest.Problem(t, post(a.ID, c).Problem, http.StatusConflict, "reference_taken")
		})
	}
	servertest.Problem(t, post(b.Account(1).ID, adminclient.CreditCreate{Amount: "25.00", Kind: adminclient.CreditKindPayment, Reference: "invoice-1"}).
		Problem, http.StatusConflict, "reference_taken")

	correction := post(a.ID, adminclient.CreditCreate{
		Amount: "-30.00", Kind: adminclient.CreditKindCorrection, Reference: "invoice-1", Reason: new("refunded"),
		AllowNegativeBalance: new(true),
	})
	if correction.StatusCode != http.StatusCreated {
		t.Fatalf("correction: %s", correction.Body)
	}
	balance, err := servertest.Answered(b.API.GetBalance(t.Context(), a.ID))
	servertest.Check(t, err)
	if diff := cmp.Diff(&adminclient.Balance{Currency: "USD", Balance: "-5.00", Reserved: "0.00", Available: "-5.00"}, balance.Value); diff != "" {
		t.Errorf("balance (-want +got):\n%s", diff)
	}
	b.CheckLedger()
}

func TestRefundHasAKindOfItsOwn(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	paid := b.Credit(a.ID, "25.00", "invoice-1")
	refund := adminclient.CreditCreate{Amount: "-5.00", Kind: adminclient.CreditKindRefund, Reference: "invoice-1", CreditID: &paid.ID}
	booked, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, refund))
	servertest.Check(t, err)
	if booked.StatusCode != http.StatusCreated || booked.Value.Kind != adminclient.TransactionKindRefund || booked.Value.Amount != "-5.00" {
		t.Fatalf("got %d %s; want a refund of -5.00", booked.StatusCode, booked.Body)
	}
	month := booked.Value.CreatedAt.UTC().Format("2006-01")
	made, err := servertest.Answered(b.API.GetStatement(t.Context(), a.ID, &adminclient.GetStatementParams{Month: &month}))
	servertest.Check(t, err)
	if s := made.Value; s.Payments != "25.00" || s.Refunds != "-5.00" || s.Corrections != "0.00" || s.ClosingBalance != "20.00" {
		t.Errorf("the statement has %s, %s, %s and %s; want 25.00, -5.00, 0.00 and 20.00", s.Payments, s.Refunds, s.Corrections, s.ClosingBalance)
	}
	books, err := servertest.Answered(b.API.GetLedgerBooks(t.Context(), nil))
	servertest.Check(t, err)
	for _, book := range books.Value.Books {
		if want := map[string]string{"customer": "-5.00", "funding": "5.00"}[string(book.LedgerAccount)]; want != "" && book.Refunds != want {
			t.Errorf("the book %s has refunds of %s; want %s", book.LedgerAccount, book.Refunds, want)
		}
	}
	b.CheckLedger()
}

// Nobody takes more than the balance by mistake: neither a refund nor a correction.
func TestBalanceBecomesNegativeOnlyIfMeant(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	paid := b.Credit(a.ID, "25.00", "invoice-1")
	spent := adminclient.CreditCreate{Amount: "-0.000000001", Kind: adminclient.CreditKindCorrection, Reference: "spent", Reason: new("a test")}
	_, err := b.API.CreateCredit(t.Context(), a.ID, nil, spent)
	servertest.Check(t, err)
	for _, c := range []adminclient.CreditCreate{
		{Amount: "-25.00", Kind: adminclient.CreditKindRefund, Reference: "r", CreditID: &paid.ID},
		{Amount: "-25.00", Kind: adminclient.CreditKindCorrection, Reference: "r", Reason: new("a test")},
	} {
		refused, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, c))
		servertest.Check(t, err)
		servertest.Problem(t, refused.Problem, http.StatusConflict, "balance_too_low")
	}
	exact := adminclient.CreditCreate{Amount: "-24.999999999", Kind: adminclient.CreditKindRefund, Reference: "r", CreditID: &paid.ID}
	meant := adminclient.CreditCreate{
		Amount: "-0.000000001", Kind: adminclient.CreditKindCorrection, Reference: "r", Reason: new("a test"), AllowNegativeBalance: new(true),
	}
	for _, c := range []adminclient.CreditCreate{exact, meant, exact, meant} { // each is repeated, too
		booked, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, c))
		servertest.Check(t, err)
		if booked.Problem != nil {
			t.Errorf("%s of %s: got %s", c.Kind, c.Amount, booked.Body)
		}
	}
}

func TestInvalidCreditIsRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	for _, test := range []struct {
		name  string
		c     adminclient.CreditCreate
		field string
	}{
		{"nothing", adminclient.CreditCreate{Amount: "0.00", Kind: adminclient.CreditKindCorrection, Reference: "r", Reason: new("x")}, "amount"},
		{"negative payment", adminclient.CreditCreate{Amount: "-1.00", Kind: adminclient.CreditKindPayment, Reference: "r"}, "amount"},
		{"refund of nothing", adminclient.CreditCreate{Amount: "-1.00", Kind: adminclient.CreditKindRefund, Reference: "r"}, "credit_id"},
		{"refund of no request", adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindRefund, Reference: "r"}, "request_id"},
		{
			"refund of no credit",
			adminclient.CreditCreate{Amount: "-1.00", Kind: adminclient.CreditKindRefund, Reference: "r", CreditID: new("acc_1")},
			"credit_id",
		},
		{
			"payment of a credit",
			adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r", CreditID: new("txn_00000000000070008000000000000000")},
			"credit_id",
		},
		{
			"payment that has expired",
			adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r", ExpiresAt: new(time.Now())},
			"expires_at",
		},
		{
			"correction that takes and expires",
			adminclient.CreditCreate{
				Amount: "-1.00", Kind: adminclient.CreditKindCorrection, Reference: "r", Reason: new("x"), ExpiresAt: new(time.Now().Add(time.Hour)),
			},
			"expires_at",
		},
		{
			"no priority",
			adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r", Priority: new(0)},
			"priority",
		},
		{
			"payment below zero",
			adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r", AllowNegativeBalance: new(true)},
			"allow_negative_balance",
		},
		{"too much", adminclient.CreditCreate{Amount: "1000000000.01", Kind: adminclient.CreditKindPayment, Reference: "r"}, "amount"},
		{"too fine", adminclient.CreditCreate{Amount: "0.0000000001", Kind: adminclient.CreditKindPayment, Reference: "r"}, "amount"},
		{"no reference", adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindPayment}, "reference"},
		{"no reason", adminclient.CreditCreate{Amount: "1.00", Kind: adminclient.CreditKindCorrection, Reference: "r"}, "reason"},
		{"no kind", adminclient.CreditCreate{Amount: "1.00", Reference: "r"}, "kind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, test.c))
			servertest.Check(t, err)
			servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
			if errs := r.Problem.Errors; len(errs) != 1 || errs[0].Field != test.field {
				t.Errorf("got faults %v; want one of %s", errs, test.field)
			}
		})
	}
	nobody := "acc_00000000000070008000000000000000"
	r, err := servertest.Answered(b.API.CreateCredit(t.Context(), nobody, nil, adminclient.CreditCreate{
		Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r",
	}))
	servertest.Check(t, err)
	servertest.Problem(t, r.Problem, http.StatusNotFound, "not_found")
	balance, err := servertest.Answered(b.API.GetBalance(t.Context(), nobody))
	servertest.Check(t, err)
	servertest.Problem(t, balance.Problem, http.StatusNotFound, "not_found")
	listed, err := servertest.Answered(b.API.ListLedger(t.Context(), nobody, nil))
	servertest.Check(t, err)
	servertest.Problem(t, listed.Problem, http.StatusNotFound, "not_found")
	b.CheckLedger()
}

func TestLedgerPages(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	b.Credit(b.Account(1).ID, "1.00", "another account's")
	var want, got []string
	for i := range 5 {
		want = append(want, b.Credit(a.ID, "1.00", fmt.Sprint("r", i)).ID)
	}
	params := adminclient.ListLedgerParams{Limit: new(2)}
	for {
		r, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, &params))
		servertest.Check(t, err)
		for _, each := range r.Value.Data {
			got = append(got, each.ID)
		}
		if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
			break
		}
	}
	if diff := cmp.Diff(servertest.Sorted(want), servertest.Sorted(got)); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
}

// A portal finds the payments of an account among its many charges.
func TestLedgerIsListedByKind(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	b.Credit(a.ID, "25.00", "invoice-1")
	fixed, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "-1.00", Kind: adminclient.CreditKindCorrection, Reference: "fix-1", Reason: new("charged twice"),
	}))
	servertest.Check(t, err)
	if fixed.StatusCode != http.StatusCreated {
		t.Fatalf("correct: %s", fixed.Body)
	}
	for kind, want := range map[adminclient.TransactionKind][]string{
		adminclient.TransactionKindPayment: {"invoice-1"}, adminclient.TransactionKindCorrection: {"fix-1"}, adminclient.TransactionKindUsage: nil,
	} {
		r, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, &adminclient.ListLedgerParams{Kind: &kind}))
		servertest.Check(t, err)
		var got []string
		for _, e := range r.Value.Data {
			got = append(got, e.Reference)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v; want %v", kind, got, want)
		}
	}
	unknown, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, &adminclient.ListLedgerParams{Kind: new(adminclient.TransactionKind("gift"))}))
	servertest.Check(t, err)
	servertest.Problem(t, unknown.Problem, http.StatusBadRequest, "invalid_input")
}

// A portal shows what was booked in a period, page by page.
func TestLedgerIsListedByTime(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	var booked []*adminclient.Transaction
	for i := range 4 {
		booked = append(booked, b.Credit(a.ID, "1.00", fmt.Sprint("r", i)))
	}
	from, to := booked[1].CreatedAt, booked[3].CreatedAt
	for _, tt := range []struct {
		name     string
		from, to *time.Time
		want     string
	}{
		{"no bound", nil, nil, "r3 r2 r1 r0"},
		{"from", &from, nil, "r3 r2 r1"},
		{"to", nil, &to, "r2 r1 r0"},
		{"both", &from, &to, "r2 r1"},
		{"nothing then", new(to.Add(time.Hour)), new(to.Add(2 * time.Hour)), ""},
		{"long ago", nil, new(from.Add(-24 * time.Hour)), ""},
	} {
		params := adminclient.ListLedgerParams{From: tt.from, To: tt.to, Limit: new(1)}
		var got []string
		for {
			r, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, &params))
			servertest.Check(t, err)
			for _, e := range r.Value.Data {
				got = append(got, e.Reference)
			}
			if params.Cursor = r.Value.NextCursor; params.Cursor == nil {
				break
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %v; want %s", tt.name, got, tt.want)
		}
	}
	reversed, err := servertest.Answered(b.API.ListLedger(t.Context(), a.ID, &adminclient.ListLedgerParams{From: &to, To: &from}))
	servertest.Check(t, err)
	servertest.Problem(t, reversed.Problem, http.StatusBadRequest, "invalid_input")
}

// A difference in the ledger is reported with its row.
func TestLedgerCheckFindsDifferences(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	b.Credit(a.ID, "1.00", "r")
	_, err := b.DB.Pool().Exec(t.Context(), "update pools set free = free - 7 where kind = 1")
	servertest.Check(t, err)
	r, err := servertest.Answered(b.API.CheckLedger(t.Context(), nil))
	servertest.Check(t, err)
	var wrong []string
	for _, c := range r.Value.Checks {
		if !c.OK {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d, want %d got %d", c.Name, c.Differing, c.Compared, c.First.Want, c.First.Got))
		}
	}
	want := []string{"pool_conservation: 1 of 2, want 1000000000 got 999999993"}
	if diff := cmp.Diff(want, wrong); diff != "" || r.Value.OK {
		t.Errorf("ok %v, broken invariants (-want +got):\n%s", r.Value.OK, diff)
	}
}
