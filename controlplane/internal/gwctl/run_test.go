package gwctl_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

func TestExitCodesOfStatuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status int
		want   int
	}{
		{200, gwctl.ExitOK},
		{400, gwctl.ExitRefused},
		{401, gwctl.ExitAuth},
		{403, gwctl.ExitAuth},
		{410, gwctl.ExitNotFound},
		{405, gwctl.ExitRefused},
		{409, gwctl.ExitConflict},
		{412, gwctl.ExitConflict},
		{413, gwctl.ExitRefused},
		{415, gwctl.ExitRefused},
		{422, gwctl.ExitRefused},
		{428, gwctl.ExitConflict},
		{429, gwctl.ExitRefused},
		{500, gwctl.ExitFailure},
		{504, gwctl.ExitUnreachable},
		{302, gwctl.ExitFailure},
	}
	for _, tt := range tests {
		b := setup(t, answerJSON(tt.status, `{}`))
		if code, _, errs := b.run("accounts", "list"); code != tt.want {
			t.Errorf("%d: exit %d; want %d\n%s", tt.status, code, tt.want, errs)
		}
	}
}

func TestProblemIsShownWithItsFields(t *testing.T) {
	t.Parallel()
	b := setup(t, problem(400, "invalid_input", `,"detail":"more","errors":[{"field":"name","detail":"is missing"},{"field":"","detail":"is odd"}]`))
	code, out, errs := b.run("accounts", "create", "--name=x")
	want := "gwctl: It is so (400 invalid_input): more\n  name is missing\n  the input is odd\n  request id req_1\n"
	if code != gwctl.ExitRefused || out != "" || errs != want {
		t.Errorf("exit %d, %q, %q; want %q", code, out, errs, want)
	}
}

func TestCheckWithoutACallSaysSo(t *testing.T) {
	t.Parallel()
	for calls, want := range map[string]bool{``: true, `{"format":"chat","result":"works"}`: false} {
		b := setup(t, answerJSON(200, `{"provider_id":"p","proxy":"dp-1","answered":true,"catalog_revision":9,"calls":[`+calls+`]}`))
		code, out, errs := b.run("providers", "check", "p")
		if code != gwctl.ExitOK || strings.Contains(errs, "no enabled route") != want {
			t.Errorf("calls [%s]: exit %d, %q, %q; want a note: %t", calls, code, out, errs, want)
		}
	}
}

func TestResponseOfALoadBalancer(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<html>\nno such host")
	})
	code, _, errs := b.run("accounts", "list")
	want := "gwctl: Not Found (404): <html>\n  The answer does not come from the admin API. Check the address of the server.\n"
	if code != gwctl.ExitFailure || errs != want {
		t.Errorf("exit %d, %q; want %q", code, errs, want)
	}
}

func TestMissingTokenIsAnAuthError(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	delete(b.env, "GWCTL_TOKEN")
	if code, _, errs := b.run("accounts", "list"); code != gwctl.ExitAuth || !strings.Contains(errs, "GWCTL_TOKEN is not set; use --token-file") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestUnreachableServerIsRetriedWithTheSameKey(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.env["GWCTL_SERVER"] = "http://127.0.0.1:1"
	code, _, errs := b.run("accounts", "create", "--name=x", "--idempotency-key=my-key", "-v")
	if code != gwctl.ExitUnreachable || !strings.Contains(errs, "--idempotency-key my-key") || strings.Count(errs, "; retry in") != 4 {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestRetriesKeepTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	calls := 0
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls < 3 {
			problem([]int{502, 503}[calls-1], "unavailable", "")(w, r)
			return
		}
		answerJSON(201, `{"id":"acc_1","name":"x"}`)(w, r)
	})
	out := b.ok("accounts", "create", "--name=x", "-o", "ndjson")
	if want := `{"id":"acc_1","name":"x"}` + "\n"; out != want {
		t.Errorf("got %q; want %q", out, want)
	}
	key := b.seen[0].Header.Get("Idempotency-Key")
	if len(b.seen) != 3 || len(key) < 20 {
		t.Fatalf("%d requests, key %q", len(b.seen), key)
	}
	for _, r := range b.seen {
		if r.Header.Get("Idempotency-Key") != key || r.Body != `{"name":"x"}` || r.Header.Get("Authorization") != "Bearer the token" {
			t.Errorf("sent %+v; want key %s", r, key)
		}
	}
	b.ok("accounts", "create", "--name=x")
	if again := b.last().Header.Get("Idempotency-Key"); again == key {
		t.Error("two commands have the same key")
	}
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 409, 429, 500, 504} {
		b := setup(t, problem(status, "x", ""))
		b.run("accounts", "create", "--name=x")
		if len(b.seen) != 1 {
			t.Errorf("%d: sent %d times", status, len(b.seen))
		}
	}
}

func TestOnlyPostRequestsHaveAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.ok("accounts", "list")
	if key := b.last().Header.Get("Idempotency-Key"); key != "" {
		t.Errorf("a GET has the key %q", key)
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := setup(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	code, _, errs := b.run("accounts", "list", "--request-timeout=50ms")
	if code != gwctl.ExitUnreachable || !strings.Contains(errs, "the request timed out") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// pages responds with a list of three accounts in two pages.
func pages(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("cursor") == "" {
		answerJSON(200, `{"data":[{"id":"acc_1","name":"One"},{"id":"acc_2","name":"Two"}],"next_cursor":"c2"}`)(w, r)
		return
	}
	answerJSON(200, `{"data":[{"id":"acc_3","name":"Three","created_at":"2026-01-31T00:00:00Z"}]}`)(w, r)
}

func TestAllGetsEveryPage(t *testing.T) {
	t.Parallel()
	b := setup(t, pages)
	for args, want := range map[string]string{
		"-o ndjson":      `{"id":"acc_1","name":"One"}` + "\n" + `{"id":"acc_2","name":"Two"}` + "\n" + `{"id":"acc_3","name":"Three","created_at":"2026-01-31T00:00:00Z"}` + "\n",
		"":               "ID     NAME   CREATED_AT\nacc_1  One    -\nacc_2  Two    -\nacc_3  Three  2026-01-31T00:00:00Z\n",
		"--columns name": "NAME\nOne\nTwo\nThree\n",
		"-o yaml":        "data:\n  - id: \"acc_1\"\n    name: \"One\"\n  - id: \"acc_2\"\n    name: \"Two\"\n  - id: \"acc_3\"\n    name: \"Three\"\n    created_at: \"2026-01-31T00:00:00Z\"\n",
	} {
		if out := b.ok(append([]string{"accounts", "list", "--all"}, strings.Fields(args)...)...); out != want {
			t.Errorf("%s: got\n%s\nwant\n%s", args, out, want)
		}
	}
	if got := b.ok("accounts", "list"); !strings.HasSuffix(got, "\nThere are more entries: add --cursor c2, or --all.\n") {
		t.Errorf("got %q", got)
	}
}

func TestStreamedResponseIsCopied(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(w, "%d,1.00\n", i)
			w.(http.Flusher).Flush()
		}
	})
	if out := b.ok("usage", "list", "-o", "json"); out != "0,1.00\n1,1.00\n2,1.00\n" {
		t.Errorf("got %q", out)
	}
}

func TestIncompleteStreamIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		_, _ = io.WriteString(w, "1,2\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if code, out, _ := b.run("usage", "list"); code != gwctl.ExitFailure || out != "1,2\n" {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestChangeThatIsNotEffectiveYetHasItsOwnExitCode(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"revocation": answerJSON(202, `{"effective":false,"revision":1,"waiting_for":["proxy-1","proxy-3"]}`),
		"wait": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Applied", "false")
			w.Header().Set("Applied-Pending", "proxy-3")
			answerJSON(200, `{"revision":1}`)(w, r)
		},
	} {
		b := setup(t, answer)
		if code, out, errs := b.run("keys", "revoke", "key_1"); code != gwctl.ExitUnreachable || !strings.Contains(out, "revision") || !strings.Contains(errs, "the change is made") || !strings.Contains(errs, "proxy-3") {
			t.Errorf("%s: exit %d, %q, %q", name, code, out, errs)
		}
	}
	b := setup(t, answerJSON(200, `{"effective":true}`))
	b.ok("keys", "revoke", "key_1")
}

func TestCompletionOfCommandsFlagsAndIDs(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/admin/v1/accounts":
			answerJSON(200, `{"data":[{"id":"acc_1","name":"One"},{"id":"acc_2","name":"Two"}]}`)(w, r)
		case "/admin/v1/webhooks":
			answerJSON(200, `{"data":[{"id":"whe_1","name":"\u001b[31mred\nx"}]}`)(w, r)
		case "/admin/v1/accounts/acc_1/keys":
			answerJSON(200, `{"data":[{"id":"key_11","name":"a"}]}`)(w, r)
		case "/admin/v1/accounts/acc_2/keys":
			answerJSON(200, `{"data":[{"id":"key_21","name":"b"},{"id":"other"}]}`)(w, r)
		default:
			problem(404, "not_found", "")(w, r)
		}
	})
	for args, want := range map[string]string{
		"accounts get ":                "acc_1\tOne acc_2\tTwo",
		"accounts get acc_2":           "acc_2\tTwo",
		"keys get key":                 "key_11\ta key_21\tb",
		"usage list --account-id acc":  "acc_1\tOne acc_2\tTwo",
		"accounts update x --status ":  "active suspended",
		"accounts list -o ":            "table wide json yaml ndjson",
		"webhooks get ":                "whe_1\t\uFFFD[31mred\uFFFDx", // no control characters
		"usage get ":                   "",
		"accounts get acc_1 ":          "",
		"--context ":                   "",
		"keys get nothing-begins-thus": "",
	} {
		out := b.ok(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Join(lines[:len(lines)-1], " "); got != want {
			t.Errorf("%q: got %q; want %q", args, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script := b.ok("completion", shell); !strings.Contains(script, "gwctl") {
			t.Errorf("no script for %s", shell)
		}
	}
}

func TestUnknownColumnsAreAUsageError(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"data":[{"id":"acc_1","name":"One","balance":{"available":"1.00"}}]}`))
	code, _, errs := b.run("accounts", "list", "--columns", "id,label,balance.avail,balance")
	if code != gwctl.ExitUsage || !strings.Contains(errs, "unknown columns: label, balance.avail\n") || len(b.seen) > 0 {
		t.Errorf("exit %d, %q, sent %v", code, errs, b.seen)
	}
	if out := b.ok("accounts", "list", "--columns", "name,balance.available"); out != "NAME  BALANCE.AVAILABLE\nOne   1.00\n" {
		t.Errorf("got %q", out)
	}
	b.ok("audit", "list", "--columns", "action,after.name") // the schema leaves the members open
}

// Null has a meaning, such as no limit.
func TestNullIsShownAsDash(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"low_balance":null,"spend_limit_percent":80}`))
	if out := b.ok("alerts", "get", "acc_1"); out != "low_balance          -\nspend_limit_percent  80\n" {
		t.Errorf("got %q", out)
	}
}

func TestAllGroupsHaveAHelpText(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	doc := document(t)
	for name, about := range gwctl.Groups(t, doc) {
		if doc.Tags[name] == "" && !about.Described && about.Commands > 1 {
			t.Errorf("`gwctl %s` has %d commands and is described as %q", name, about.Commands, about.Short)
		}
		if about.Described && about.Commands < 2 {
			t.Errorf("`gwctl %s` is described and has %d commands", name, about.Commands)
		}
	}
	for _, name := range []string{"delivery", "key", "alias"} {
		if code, _, _ := b.run(name, "--help"); (code == gwctl.ExitOK) != (name != "alias") {
			t.Errorf("`gwctl %s`: exit %d", name, code)
		}
	}
}
