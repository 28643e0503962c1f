package nowpages_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/pulse"
)

func TestOverviewListsWhatNeedsSomebody(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	made, err := w.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Overdrawn Ltd"})
	servertest.Check(t, err)
	for _, c := range []adminclient.CreditCreate{
		{Amount: "1", Kind: adminclient.CreditKindPayment, Reference: "r1"},
		{Amount: "-3.000000001", Kind: adminclient.CreditKindCorrection, Reference: "r2", Reason: new("a test"), AllowNegativeBalance: new(true)},
	} {
		_, err = w.API.CreateCredit(t.Context(), made.Value.ID, nil, c)
		servertest.Check(t, err)
	}
	b := w.SignedIn(servertest.BootstrapToken)
	answer, page := b.Get("/console/")
	for _, want := range []string{
		"The balance of an account is negative: -2.000000001 in all.", `href="/console/accounts?sort=balance"`, "0 of 0", "No catalog has been applied",
	} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	// No proxy is heard: a rate is unknown, not zero.
	if !strings.Contains(page, `<span>Requests</span><b><span class="soft">unknown</span></b>`) {
		t.Errorf("the requests are not unknown: %s", page)
	}
}

func TestOverviewIsRenewedWithoutItsCharts(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	if _, page := b.Get("/console/"); !strings.Contains(page, "Requests by status") || !strings.Contains(page, "Nothing was reported in this time") {
		t.Errorf("the charts are missing: %s", page)
	}
	if _, page := b.Get("/console/?charts=none"); strings.Contains(page, "Requests by status") || !strings.Contains(page, `id="now"`) {
		t.Errorf("want the first part only: %s", page)
	}
}

func TestOverviewTellsTheAgeOfTheOldestUnsettledRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ages []int64
		want string
	}{
		"no proxy is reporting": {nil, `<span>Unsettled</span><b><span class="soft">unknown</span></b>`},
		"all is settled":        {[]int64{0, 0}, `<span>Unsettled</span><b>0 ms</b>`},
		"the oldest counts":     {[]int64{300, 1200}, `<span>Unsettled</span><b>1.2 s</b>`},
		"settlement is behind":  {[]int64{62_000, 0}, `<a class="tile warn" href="/console/proxies"><span>Unsettled</span><b>1 min 2 s</b>`},
		"settlement stands":     {[]int64{300_000}, `<a class="tile bad" href="/console/proxies"><span>Unsettled</span><b>5 min 0 s</b>`},
	} {
		w := consoletest.Start(t)
		for i, age := range c.ages {
			proxy := "proxy-" + strconv.Itoa(i)
			w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: proxy, Process: proxy, Spool: pulse.Spool{UnsettledMS: age}})
		}
		if _, page := w.SignedIn(servertest.BootstrapToken).Get("/console/?charts=none"); !strings.Contains(page, c.want) {
			t.Errorf("%s: the overview has no %s: %s", name, c.want, page)
		}
	}
}

func TestOverviewRefusesATimeThatIsNone(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	for _, query := range []string{"from=yesterday", "from=2026-03-03T09:00:00Z&to=2026-03-03T08:00:00Z", "to=x&from=2026-03-03"} {
		if answer, page := b.Get("/console/?" + query); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: got %d %s; want 400", query, answer.StatusCode, page)
		}
	}
	if answer, _ := b.Get("/console/?range=nonsense"); answer.StatusCode != http.StatusOK {
		t.Errorf("an unknown range: got %d; want the last hour", answer.StatusCode)
	}
}
