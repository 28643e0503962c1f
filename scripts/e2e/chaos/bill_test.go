package chaos

import (
	"fmt"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
	"modelgateway/shared/money"
)

// checkBills compares the charges, row by row, with the answers that clients got and with the
// journal of the provider. Every complete answer is charged once, as the provider reported it. A cost that an answer has told is
// what is charged.
// Nothing is charged that the provider did not serve. In the end nothing is reserved, and
// ledger, pools and usage records agree.
func checkBills(t *testing.T, l *load, asked []request, credit money.Nano) {
	t.Helper()
	l.r.AwaitSessions(t)
	l.r.AwaitSettled(t)
	balance := l.account.AwaitIdle(t)
	usage, err := l.account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	noted := map[string]providersim.Entry{}
	for _, e := range l.r.Sim.Journal(t, l.model) {
		noted[e.AnswerID] = e
	}
	charged := map[string]adminclient.UsageRecord{}
	var total money.Nano
	statuses := map[string]int{}
	for _, u := range usage {
		statuses[fmt.Sprintf("%s by %s", u.Status, u.Rule)]++
		cost, err := money.Parse(u.Cost)
		if err != nil {
			t.Fatal(err)
		}
		total += cost
		if _, found := charged[u.RequestID]; found {
			t.Errorf("%s is charged twice", u.RequestID)
		}
		charged[u.RequestID] = u
		checkRow(t, u, cost, noted)
	}
	whole := 0
	for _, q := range asked {
		u, found := charged[q.id]
		switch {
		case !answered(q):
			if q.status != 0 && q.status != 200 && found && u.Cost != "0.00" { // a request may have run when its key was revoked
				t.Errorf("%v was refused, but charged %s", q, u.Cost)
			}
		case !found:
			t.Errorf("%v is not charged", q)
		case u.Status != adminclient.UsageStatusCompleted || u.Estimated || u.ProviderRequestID == nil || *u.ProviderRequestID != q.answerID:
			t.Errorf("%v is charged as %s, estimated %t, with provider request id %v; want the usage that the provider reported for %s",
				q, u.Status, u.Estimated, u.ProviderRequestID, q.answerID)
		default:
			whole++
		}
	}
	if balance != credit-total {
		t.Errorf("the balance is %v; want %v, the credit less the %v of the usage records", balance, credit-total, total)
	}
	checkTold(t, asked, charged)
	checkInvariants(t, l.r)
	t.Logf("%d requests, %d of them answered; %d charged: %v", len(asked), whole, len(usage), statuses)
}

// checkTold compares the costs that answers have told, whole ones or not, with what is charged.
func checkTold(t *testing.T, asked []request, charged map[string]adminclient.UsageRecord) {
	t.Helper()
	told := 0
	for _, q := range asked {
		if q.told == "" {
			continue
		}
		told++
		u, found := charged[q.id]
		if !found || !sameMoney(q.told, u.Cost) || q.toldEstimated != u.Estimated {
			t.Errorf("%v tells a cost of %s, estimated %t; charged %q, estimated %t", q, q.told, q.toldEstimated, u.Cost, u.Estimated)
		}
	}
	t.Logf("%d answers tell their cost", told)
}

// sameMoney reports whether two decimals are one amount.
func sameMoney(a, b string) bool {
	x, err := money.Parse(a)
	y, wrong := money.Parse(b)
	return err == nil && wrong == nil && x == y
}

// checkInvariants checks the invariants over all accounts and leases: ledger, pools and usage
// records agree, a closed session has no outstanding units, and no pool is overdrawn by more
// than its overrun and late charges.
func checkInvariants(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.CheckLedger(t)
	for _, check := range []struct{ what, query string }{
		{"units held by closed sessions", `select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l join proxy_sessions s on s.id = l.session_id where s.state = 3`},
		{"pools overdrawn without a reason", `select count(*) from pools where not unlimited and free < -(overrun + late)`},
	} {
		if n, err := r.Number(t.Context(), check.query); n != 0 || err != nil {
			t.Errorf("%s: %d, %v; want none", check.what, n, err)
		}
	}
}

// The prices of the model under load, in nano-USD per token.
const inputPrice, outputPrice = 1_000, 2_000

// checkRow checks a usage record against the journal of the provider.
func checkRow(t *testing.T, u adminclient.UsageRecord, cost money.Nano, noted map[string]providersim.Entry) {
	t.Helper()
	if u.ProviderRequestID == nil {
		if cost != 0 {
			t.Errorf("%s (%s) cost %v without an answer of the provider", u.RequestID, u.Status, cost)
		}
		return
	}
	entry, found := noted[*u.ProviderRequestID]
	if !found {
		t.Errorf("%s is charged for %s, an answer that the provider never sent", u.RequestID, *u.ProviderRequestID)
		return
	}
	most := money.Nano(entry.PromptCount*inputPrice + 20*outputPrice)
	if entry.Counts != nil {
		most = money.Nano(entry.Counts.Input*inputPrice + entry.Counts.Output*outputPrice)
	}
	if u.Estimated { // an estimate from the text length may exceed the provider's token count
		reservation, err := money.Parse(u.Reservation)
		if err != nil {
			t.Fatal(err)
		}
		most = reservation
	}
	if u.Status == adminclient.UsageStatusCompleted && cost != most || cost > most {
		t.Errorf("%s (%s, estimated %t) cost %v; the provider reported %v", u.RequestID, u.Status, u.Estimated, cost, most)
	}
}
