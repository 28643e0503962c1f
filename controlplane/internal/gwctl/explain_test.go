package gwctl_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const explainedUsage = `{"request_id":"req_1","account_id":"acc_1","key_id":"key_1","model":"m","format":"chat","status":"completed","stream":false,
"started_at":"2026-03-03T08:00:00Z","finished_at":"2026-03-03T08:00:04Z","settled_at":"2026-03-03T08:00:04Z","usage":{},"estimated":false,"rule":"reported",
"cost":"0.00024","reservation":"0.0013","price_version":12,"price_multiplier":"1","corrections":[],
"attempts":[{"route":"rte_1","result":"skipped","skipped":"breaker_open"},{"route":"rte_2","result":"failed","class":"timeout","credential":"main","ms":84},{"route":"rte_3","result":"served","ms":310}],
"receipt":{"price_version":12,"currency":"USD","lines":[{"line":"input","quantity":1200,"unit_price":"0.10","per":1000000,"amount":"0.00012"}],"list_cost":"0.00024",
"price_multiplier":"1","cost":"0.00024","reservation":"0.0013","rule":"reported"}}`

func TestUsageExplainTellsReceiptHoldAndRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(http.StatusOK, explainedUsage))
	out := b.ok("usage", "explain", "req_1")
	for _, want := range []string{"0.00012", "0.0013", "version 12", "rte_1", "breaker_open", "timeout", "credential main", "84 ms", "served"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not have %q:\n%s", want, out)
		}
	}
}

func TestUsageExplainTellsWhatARefusedRequestLacked(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/admin/v1/usage/") {
			problem(http.StatusNotFound, "not_found", "")(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"data":[{"hour":"2026-03-03T08:00:00Z","code":"insufficient_quota","status":402,"other":false,"count":3,"first_at":"2026-03-03T08:00:00Z",
			"last_at":"2026-03-03T08:00:00Z","request_id":"req_9","short":{"pool":"balance","reason":"balance_insufficient","wanted":"0.0013","available":"0.0002","reserved":"0"}}]}`)
	})
	out := b.ok("usage", "explain", "req_9")
	if !strings.Contains(out, "402 insufficient_quota") || !strings.Contains(out, "wanted 0.0013, available 0.0002") {
		t.Errorf("got %s", out)
	}
	if got := b.last(); got.Path != "/admin/v1/refusals" || got.Query != "request_id=req_9" {
		t.Errorf("asked %s?%s", got.Path, got.Query)
	}
}

// Whoever has a refusal has to find the limit that must be raised.
func TestUsageExplainNamesTheLimitThatRefused(t *testing.T) {
	t.Parallel()
	for short, want := range map[string]string{
		`"pool":"limit","reason":"limit_insufficient","limit_scope":"project","limit_id":"lim_1","limit_resets_at":"2026-04-01T00:00:00Z"`: "It is limit lim_1 of the project, whose window ends at 2026-04-01T00:00:00Z.\n" +
			"Now: \"a month\", 100.00 in each window of the period month; of 100.00 in the current one, 99.00 is spent, 0.50 reserved, 0.50 left, whose window ends at 2026-05-01T00:00:00Z.\n",
		`"pool":"limit","reason":"limit_insufficient","limit_scope":"key","limit_id":"key_1"`: "It is the spend limit of the key key_1.\n",
		`"pool":"slots","reason":"no_slot","limit_scope":"key"`:                               "They are the slots of the key.\n",
	} {
		b := setup(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasPrefix(r.URL.Path, "/admin/v1/usage/"):
				problem(http.StatusNotFound, "not_found", "")(w, r)
			case r.URL.Path == "/admin/v1/limits/lim_1":
				_, _ = io.WriteString(w, `{"id":"lim_1","account_id":"acc_1","name":"a month","amount":"100.00","window":{"period":"month","time_zone":"UTC"},"models":[],
					"created_at":"2026-03-03T08:00:00Z","updated_at":"2026-03-03T08:00:00Z","current":{"starts_at":"2026-04-01T00:00:00Z","ends_at":"2026-05-01T00:00:00Z",
					"amount":"100.00","spent":"99.00","reserved":"0.50","left":"0.50"}}`)
			default:
				_, _ = io.WriteString(w, `{"data":[{"hour":"2026-03-03T08:00:00Z","code":"spend_limit_exceeded","status":403,"other":false,"count":3,"first_at":"2026-03-03T08:00:00Z",
					"last_at":"2026-03-03T08:00:00Z","request_id":"req_9","short":{`+short+`,"wanted":"0.0013","available":"0.0002","reserved":"0"}}]}`)
			}
		})
		if out := b.ok("usage", "explain", "req_9"); !strings.HasSuffix(out, want) {
			t.Errorf("%s: got\n%s\nwant at the end\n%s", short, out, want)
		}
	}
}

func TestUsageExplainWithFlagsAsksTheProxies(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(http.StatusOK, `{"at":"2026-03-03T08:00:00Z","account_id":"acc_1","model":"m","format":"chat","outcome":"unknown",
		"visibility":{"exists":false,"enabled":false,"public":false,"granted":false,"supports_format":false},"needs":[],"proxies":[],"silent":[]}`))
	b.ok("usage", "explain", "--key-id", "key_1", "--model", "m", "--max-tokens", "5")
	if got := b.last(); got.Path != "/admin/v1/requests/explain" || got.Query != "key_id=key_1&max_tokens=5&model=m" {
		t.Errorf("asked %s?%s", got.Path, got.Query)
	}
}
