package webhookstore_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// events returns the events since the last call, each as its type and facts.
func (w *leaseWorld) events() []string {
	w.T.Helper()
	rows, err := w.SQL.Query(w.T.Context(), `with gone as (delete from webhook_events returning *)
		select type || ' ' || facts::text from gone order by type, facts::text`)
	if err != nil {
		w.T.Fatal(err)
	}
	defer rows.Close()
	var told []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			w.T.Fatal(err)
		}
		told = append(told, text)
	}
	return told
}

func (w *leaseWorld) wantEvents(what string, want ...string) {
	w.T.Helper()
	if diff := cmp.Diff(want, w.events()); diff != "" {
		w.T.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (w *leaseWorld) post(db *postgres.DB, c *storetest.Customer, kind ledger.Kind, amount int64) {
	w.T.Helper()
	_, _, err := moneystore.NewLedger(db).Post(w.T.Context(), ledger.Transaction{
		ID: ledger.ID(ident.New()), AccountID: account.ID(c.Account), Kind: kind, Amount: money.Nano(amount), Reference: ident.Transaction.New(), Reason: "r",
		MayOverdraw: kind != ledger.Payment,
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *leaseWorld) alerts(db *postgres.DB, c *storetest.Customer, low int64, percent int) {
	w.T.Helper()
	a := webhook.Alerts{LimitPercent: percent}
	if low > 0 {
		a.LowBalance = (*money.Nano)(&low)
	}
	if err := webhookstore.New(db).SetAlerts(w.T.Context(), account.ID(c.Account), a); err != nil {
		w.T.Fatal(err)
	}
}

// Each crossing of a threshold causes one event, in the transaction of its cause.
func TestAlarms(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store := leasestore.NewLeases(db)
	s := w.Session(store, "proxy")
	c := w.Customer(1000, 500, 5)
	n := int64(0)
	spend := func(cost int64) {
		n++
		w.Settle(db, c.Event(s, n, cost))
	}
	w.alerts(db, c, 300, 80)
	spend(100)
	w.wantEvents("well above")
	spend(300) // 600 left; 400 of the limit's 500 are spent
	w.wantEvents("limit near", `key.spend_limit_near {"spent": 400, "percent": 80, "spend_limit": 500}`)
	w.alerts(db, c, 700, 80)
	w.wantEvents("threshold raised above the balance", `account.low_balance {"balance": 600, "threshold": 700}`)
	spend(150)
	w.wantEvents("limit reached", `key.spend_limit_reached {"spent": 550, "spend_limit": 500}`)
	w.post(db, c, ledger.Payment, 260)
	credit := w.events()
	if len(credit) != 1 || credit[0][:17] != "account.credited " {
		t.Errorf("credit: told %q", credit)
	}
	spend(50) // 660 again, but the balance was never a tenth above the threshold
	w.wantEvents("swinging around the threshold")
	w.post(db, c, ledger.Payment, 1000)
	w.events()
	spend(961)
	w.wantEvents("low again", `account.low_balance {"balance": 699, "threshold": 700}`)
	w.post(db, c, ledger.Correction, -699)
	if told := w.events(); len(told) != 2 || told[0] != `account.balance_exhausted {"balance": 0}` || !strings.HasPrefix(told[1], `account.debited {"kind": "correction", "amount": 699,`) {
		t.Errorf("correction: told %q", told)
	}

	limit := money.Nano(5000)
	if _, _, err := accountstore.NewKeys(db).Update(t.Context(), key.ID(c.Key), func(k key.Key) (key.Update, error) {
		k.SpendLimit = &limit
		return key.Update{Key: k, Announce: true}, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.wantEvents("limit raised")
	limit = 1600
	if _, _, err := accountstore.NewKeys(db).Update(t.Context(), key.ID(c.Key), func(k key.Key) (key.Update, error) {
		k.SpendLimit = &limit
		return key.Update{Key: k, Announce: true}, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.wantEvents("limit lowered to what is nearly spent", `key.spend_limit_near {"spent": 1561, "percent": 80, "spend_limit": 1600}`)
	for range 2 {
		if _, _, err := accountstore.NewKeys(db).Revoke(t.Context(), key.ID(c.Key)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantEvents("revoked twice", `key.revoked {}`)
	w.Check()
}

// The forecast of an event is of the same moment as its balance, however late its body is written.
func TestForecastCountsNoChargesAfterItsEvent(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	s := w.Session(leasestore.NewLeases(db), "proxy")
	c := w.Customer(1000, storetest.Unlimited, 5)
	w.alerts(db, c, 900, 80)
	for n, cost := range []int64{200, 300} { // the first one raises the alarm
		w.Settle(db, c.Event(s, int64(n+1), cost))
	}
	var told []webhook.Subject
	_, err := webhookstore.New(db).FanOut(t.Context(), 10, func(e *webhook.Event, about *webhook.Subject) ([]byte, error) {
		if e.Type == webhook.LowBalance {
			told = append(told, *about)
		}
		return []byte("{}"), nil
	})
	if err != nil || len(told) != 1 || told[0].Hour != 200 || told[0].Day != 200 {
		t.Errorf("got %v, %v; want one forecast, of the charge of 200 before the event", told, err)
	}
}

// A balance that is too low for a request counts as exhausted: the first refusal causes
// an event, and later ones cause none until a payment is booked.
func TestRefusalRaisesAlarm(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	service := w.Service(db)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	c := w.Customer(10, 100, 5)
	h := holder.NewHolder(s, "proxy", c.AccountID())
	refuse := func(amount int64) wire.RefusalReason {
		t.Helper()
		h.Reserve(c.Needs(amount))
		r := storetest.Ask(service, h.NextRequest())
		h.HandleResponse(&r)
		return r.Decisions[0].Reason
	}
	for range 3 {
		if reason := refuse(20); reason != wire.BalanceInsufficient {
			t.Fatalf("refused for %q", reason)
		}
	}
	w.wantEvents("balance too small", `account.balance_exhausted {"balance": 10, "refused": true}`)
	w.post(db, c, ledger.Payment, 1000)
	w.events()
	for range 2 {
		if reason := refuse(200); reason != wire.LimitInsufficient {
			t.Fatalf("refused for %q", reason)
		}
	}
	w.wantEvents("limit too small", `key.spend_limit_reached {"spent": 0, "refused": true, "spend_limit": 100}`)
	w.Check()
}

// Concurrent settlements cause one event for each crossing.
func TestConcurrentSettlementsRaiseAlarmOnce(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	dbs := []*postgres.DB{w.Replica(), w.Replica()}
	s := w.Session(leasestore.NewLeases(dbs[0]), "proxy")
	customers := make([]*storetest.Customer, 8)
	var events []event.Usage
	for i := range customers {
		customers[i] = w.Customer(1000, 1000, 5)
		w.alerts(dbs[0], customers[i], 300, 50)
		for range 40 {
			events = append(events, customers[i].Event(s, int64(len(events)+1), 25))
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	var done sync.WaitGroup
	for replica, db := range dbs {
		done.Go(func() {
			for i := 0; i < len(events); i += 10 {
				items := settle.DecodeBatch(storetest.Batch(t, int64(s), events[i:i+10]...)) // each batch comes to both
				if _, err := settle.New(moneystore.NewSettlement(db), nil).Settle(t.Context(), items); err != nil {
					t.Error(replica, err)
				}
			}
		})
	}
	done.Wait()
	counts := map[string]int{}
	for _, text := range w.events() {
		var name string
		_, _ = fmt.Sscan(text, &name)
		counts[name]++
	}
	want := map[string]int{"account.low_balance": 8, "account.balance_exhausted": 8, "key.spend_limit_near": 8, "key.spend_limit_reached": 8}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	w.CheckNoDeadlock(dbs...)
}

// Events in quarantine cause one event for the operator in an hour.
func TestQuarantineEventIsOncePerHour(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	s := w.Session(leasestore.NewLeases(db), "proxy")
	c := w.Customer(1000, storetest.Unlimited, 5)
	for n := range int64(3) {
		bad := c.Event(s, n+1, 1)
		bad.Cost = -1
		w.Settle(db, bad)
	}
	// The hour may change between two settlements.
	if told := w.events(); len(told) < 1 || len(told) > 2 || told[0] != `operator.usage_quarantined {"count": 1}` {
		t.Errorf("told %q", told)
	}
	operator := webhookstore.New(db)
	for range 3 {
		if err := operator.InsertEvent(t.Context(), webhook.CheckFailedEvent([]string{"x"}, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	if told := w.events(); len(told) < 1 || len(told) > 2 || told[0] != `operator.ledger_check_failed {"checks": ["x"]}` {
		t.Errorf("told %q", told)
	}
}

// New keys get the alert percentage of their account.
func TestNewKeysInheritAlertPercent(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	w.alerts(db, c, 0, 25)
	made, err := accountstore.NewKeys(db).Create(t.Context(), []key.Record{{
		Key: key.Key{ID: key.ID(ident.New()), AccountID: account.ID(c.Account), Name: "key"}, Secret: key.Secret{Hash: [32]byte{7}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := storetest.Scalar[int](w, "select limit_alert_percent from pools where key_id = $1", ident.UUID(made[0].Key.ID)); got != 25 {
		t.Errorf("the new key's share is %d; want 25", got)
	}
	before, after := storetest.Scalar[[]byte](w, "select before from audit_log where action = 'account.alerts'"), storetest.Scalar[[]byte](w, "select after from audit_log where action = 'account.alerts'")
	var was, is webhook.Alerts
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil || was.LimitPercent != 80 || is.LimitPercent != 25 {
		t.Errorf("audit: %s to %s", before, after)
	}
}
