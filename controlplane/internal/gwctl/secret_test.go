package gwctl_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

func TestSecretsAreReadFromFiles(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"id":"crd_1","name":"main"}`))
	b.file("secret.txt", "sk-1\n")
	b.ok("credentials", "put", "sim", "main", "--secret-file", "secret.txt")
	want := `{"name":"main","secret":"sk-1"}`
	if got := b.last(); got.Body != want {
		t.Errorf("sent %s; want %s", got.Body, want)
	}
	b.in = strings.NewReader("sk-2\n")
	b.ok("credentials", "put", "sim", "main", "--secret-file=-")
	if got := b.last(); got.Body != `{"name":"main","secret":"sk-2"}` {
		t.Errorf("sent %s; want the secret of the standard input", got.Body)
	}
	sent := len(b.seen)
	for name, args := range map[string][]string{
		"the name of a file as the secret": {"--secret", "@secret.txt"},
		"a file that does not exist":       {"--secret-file", "nosuch"},
		"both":                             {"--secret", "x", "--secret-file", "secret.txt"},
	} {
		if code, _, errs := b.run(append([]string{"credentials", "put", "sim", "main"}, args...)...); code != gwctl.ExitUsage {
			t.Errorf("%s: exit %d, %q; want %d", name, code, errs, gwctl.ExitUsage)
		}
	}
	if len(b.seen) != sent {
		t.Errorf("sent %v", b.seen[sent:])
	}
}

func TestExamplesHaveNoSecretOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for id, examples := range gwctl.CommandLines(t, document(t)) {
		for path, example := range examples {
			if line, _, _ := strings.Cut(example, "\n"); strings.Contains(line, "--secret=") {
				t.Errorf("%s: the example of %s is %s", id, path, line)
			}
		}
	}
}

// The id in the body of a PUT repeats that of the path.
func TestArgumentNamesTheObject(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"id":"p"}`))
	b.ok("providers", "put", "p", "--base-url=https://api.example.com")
	if got := b.last().Body; got != `{"base_url":"https://api.example.com","id":"p"}` {
		t.Errorf("sent %s", got)
	}
	b.ok("providers", "put", "p", "--data", "base_url: https://api.example.com")
	if got := b.last().Body; got != `{"base_url":"https://api.example.com","id":"p"}` {
		t.Errorf("of a whole body, sent %s", got)
	}
	if code, _, errs := b.run("credentials", "put", "p", "crd_1"); code != gwctl.ExitUsage || !strings.Contains(errs, "required: --name") {
		t.Errorf("a credential by its id: exit %d, %q; want its name to be required", code, errs)
	}
}

func TestWrongNumberOfArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for args, want := range map[string]string{
		"keys list":              "required: <account_id>",
		"usage list acme":        `"acme": the command takes no argument; --account-id selects an account`,
		"accounts get one two":   `"two": the command has too many arguments: get <account_id>`,
		"usage list --limit 501": "",
	} {
		code, _, errs := b.run(strings.Fields(args)...)
		if want != "" && (code != gwctl.ExitUsage || !strings.Contains(errs, want)) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, errs, want)
		}
	}
}

func TestWaitIsASwitchAndTellsTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Applied", "true")
		answerJSON(200, `{"id":"m"}`)(w, r)
	})
	code, _, errs := b.run("models", "update", "m", "--enabled=false", "--wait")
	if code != gwctl.ExitOK || b.last().Query != "wait=applied" || !strings.Contains(errs, "every live proxy uses the change") {
		t.Errorf("exit %d, query %q, %q", code, b.last().Query, errs)
	}
}

func TestRepeatedBookingIsTold(t *testing.T) {
	t.Parallel()
	for status, told := range map[int]bool{201: false, 200: true} {
		b := setup(t, answerJSON(status, `{"id":"txn_1"}`))
		_, _, errs := b.run("credits", "create", "acc_1", "--kind=payment", "--amount=1", "--reference=r")
		if strings.Contains(errs, "nothing new") != told {
			t.Errorf("%d: got %q; told: %v", status, errs, told)
		}
	}
}

func TestColumnsOfAnObject(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"id":"acc_1","name":"One","balance":{"available":"1.00"}}`))
	if out := b.ok("accounts", "get", "acc_1", "--columns=id,balance.available"); out != "id                 acc_1\nbalance.available  1.00\n" {
		t.Errorf("got %q", out)
	}
	if code, _, errs := b.run("accounts", "get", "acc_1", "--columns=label"); code != gwctl.ExitUsage || !strings.Contains(errs, "unknown columns: label") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestPricesAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, `{"data":[{"version":1,"status":"in_force","effective_from":"2026-01-31T00:00:00Z","created_at":"2026-01-31T00:00:00Z","price":{"input":"1.5","output":"6"}}]}`))
	if out := b.ok("prices", "list", "m"); !strings.Contains(out, "PRICE.INPUT") || !strings.Contains(out, "1.5") || strings.Contains(out, "CACHED") {
		t.Errorf("got %q; want the members that a price has", out)
	}
}

func TestUnreachableServerIsNamedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.env["GWCTL_SERVER"] = "http://127.0.0.1:1"
	_, _, errs := b.run("accounts", "list", "--request-timeout=1us")
	if strings.Count(errs, "no response from") > 1 {
		t.Errorf("got %q", errs)
	}
}

func TestGroupWithOneReadingCommandRunsIt(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"data":[]}`)
	})
	b.ok("proxies")
	if got := b.last(); got.Method != http.MethodGet || got.Path != "/admin/v1/proxies" {
		t.Errorf("sent %s %s; want the list of proxies", got.Method, got.Path)
	}
}

func TestEveryCommandIsInASection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if help := b.ok("--help"); strings.Contains(help, "Additional Commands:") || !strings.Contains(help, "Customers:") {
		t.Errorf("a command is in no section of the help:\n%s", help)
	}
	if out := b.ok("--version"); !strings.Contains(out, "v1") {
		t.Errorf("--version prints %q", out)
	}
}
