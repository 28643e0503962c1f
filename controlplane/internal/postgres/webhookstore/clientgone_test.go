package webhookstore_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// The operator is told once a day of an account whose clients leave many of its answers, and of no other account.
func TestClientsThatLeaveManyAnswersAreReportedOnceADay(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	hooks := webhookstore.New(db)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	leaving, busy, patient := w.Customer(1000, storetest.Unlimited, 9), w.Customer(1000, storetest.Unlimited, 9), w.Customer(1000, storetest.Unlimited, 9)
	day, n := time.Now(), int64(0)
	use := func(c *storetest.Customer, gone, others int) {
		t.Helper()
		var events []event.Usage
		for i := range gone + others {
			n++
			e := c.Event(s, n, 0)
			e.RequestID = ident.Request.Format(ident.NewAt(day))
			if i < gone {
				e.Status = event.ClientGone
			}
			events = append(events, e)
		}
		w.Settle(db, events...)
	}
	use(leaving, 99, 0)
	use(busy, 120, 300)
	use(patient, 0, 200)
	storetest.Check(t, hooks.ReportClientsGone(t.Context(), day))
	w.wantEvents("too few, and too small a share")

	use(leaving, 1, 150)
	storetest.Check(t, hooks.ReportClientsGone(t.Context(), day))
	use(leaving, 10, 0)
	storetest.Check(t, hooks.ReportClientsGone(t.Context(), day)) // more of them on the same day
	if got := storetest.Scalar[int](w, "select count(*) from webhook_events where account_id = $1", leaving.Account); got != 1 {
		t.Errorf("there are %d events about the account; want one", got)
	}
	w.wantEvents("a hundred of 250", `operator.client_gone_unusual {"of": 250, "count": 100}`)
}
