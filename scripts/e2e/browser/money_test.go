package browser

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/demo"
	"modelgateway/scripts/e2e/rig"
)

// scratch starts a stack of its own with the data of a small demo, and returns it with a tab that is signed in there.
func scratch(t *testing.T) (*rig.Rig, *tab) {
	t.Helper()
	startChromium(t)
	r := rig.Start(t, rig.Options{ControlSettings: []string{"MGW_CONSOLE_TOKEN_SIGN_IN=yes"}})
	var out bytes.Buffer
	d, err := demo.New(demo.Config{State: r.State(), PerDay: 2, Out: &out})
	if err == nil {
		err = d.Fill(t.Context())
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	b := open(t)
	b.base = r.AdminURL()
	if status := b.signIn(r.AdminToken()); status != http.StatusOK {
		t.Fatalf("sign in: got %d:\n%s", status, b.text())
	}
	return r, b
}

// A row that is altered behind the product's back is found by the check that runs every minute, and every page says so. A usage
// event in quarantine is settled from its page. Then the whole money is right again.
func TestAlteredRowIsOnEveryPageAndQuarantineIsSettled(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	r, b := scratch(t)
	account := r.Account(t, rig.AccountSpec{})
	u := r.AwaitUsage(t, ask(t, r, account.Key, r.Model(t, rig.Model{})).RequestID())
	account.AwaitIdle(t)
	alter := func(by int) {
		t.Helper()
		conn := r.Postgres(t)
		if _, err := conn.Exec(t.Context(), "set session_replication_role = replica"); err != nil { // without the triggers that refuse it
			t.Fatal(err)
		}
		tag, err := conn.Exec(t.Context(), "update usage_records set cost = cost + $2 where request_id = $1", strings.TrimPrefix(u.RequestID, "req_"), by)
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("alter the record: %v, %v", tag, err)
		}
	}
	const failed = "found a difference"
	alter(1)
	rig.Await(t, "the banner about the altered record", func(context.Context) error {
		b.visit("/console/accounts")
		if banner := b.banners(); !strings.Contains(banner, failed) {
			return fmt.Errorf("the banners are %q", banner)
		}
		return nil
	})
	for _, path := range []string{"/console/", "/console/live", "/console/models", "/console/usage", "/console/settings", "/console/accounts/" + account.ID} {
		b.visit(path)
		if banner := b.banners(); !strings.Contains(banner, failed) {
			t.Errorf("the banners of %s are %q", path, banner)
		}
	}
	b.load(chromedp.Click(`#banners a[href*="/console/money"]`, chromedp.ByQuery))
	b.has("differs", "First row that differs")
	row := `main td a[href="/console/accounts/` + account.ID + `"]`
	if !eval[bool](b, `document.querySelector('`+row+`') !== null`) {
		t.Errorf("%s does not lead to the account of the altered record:\n%s", b.at(), b.text())
	}

	alter(-1)
	quarantined, err := r.Admin.ListQuarantine(t.Context(), nil)
	if err != nil || len(quarantined.Value.Data) != 1 {
		t.Fatalf("got %v, %v; want the event of the demo", quarantined, err)
	}
	b.visit("/console/quarantine")
	b.load(chromedp.Click("main table.list a.row", chromedp.ByQuery))
	event := b.at()
	if event != "/console/quarantine/"+strconv.FormatInt(quarantined.Value.Data[0].ID, 10) {
		t.Fatalf("the row leads to %s", event)
	}
	b.visit(event + "/settle")
	if status := b.press("do"); status != http.StatusOK {
		t.Fatalf("settle: got %d:\n%s", status, b.text())
	}
	b.has("The event was settled.")
	b.visit("/console/quarantine")
	b.has("No event waits")
	settled := r.AwaitUsage(t, *quarantined.Value.Data[0].RequestID)
	b.visit("/console/requests/" + settled.RequestID)
	b.has(settled.Receipt.Cost)

	for _, kind := range []string{"all", "receipts"} {
		b.visit("/console/money/start?kind=" + kind)
		if status := b.press("do"); status != http.StatusOK {
			t.Fatalf("start the check: got %d:\n%s", status, b.text())
		}
		b.await("the end of the check "+kind, `document.querySelector("main h1").innerText.includes("nothing differs")`)
	}
}

// banners returns the text of the banners.
func (b *tab) banners() string {
	b.t.Helper()
	return eval[string](b, `document.getElementById("banners").innerText`)
}
