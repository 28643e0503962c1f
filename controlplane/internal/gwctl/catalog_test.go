package gwctl_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

// catalogServer responds to a catalog with changes and the ETag of the catalog that it compared with.
func catalogServer(changes string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if match := r.Header.Get("If-Match"); match != "" && match != `"7"` {
			problem(412, "precondition_failed", "")(w, r)
			return
		}
		w.Header().Set("ETag", `"7"`)
		answerJSON(200, `{"dry_run":`+map[bool]string{true: "true", false: "false"}[r.URL.Query().Has("dry_run")]+`,"revision":7,"changes":[`+changes+`]}`)(w, r)
	}
}

const (
	oneChange = `{"action":"update","kind":"price","id":"m","before":{"input":"1"},"after":{"input":"2"}}`
	shown     = "~ price m\n    input: 1 → 2 (+100.0 %)\n"
	smallFile = "currency: USD\nproviders: [{id: p, base_url: https://p, credentials: [{name: main, secret: '${KEY}'}]}]\n"
)

func TestCatalogDiffExitCodes(t *testing.T) {
	t.Parallel()
	for changes, want := range map[string]int{"": gwctl.ExitOK, oneChange: gwctl.ExitDiffers} {
		b := setup(t, catalogServer(changes))
		b.env["KEY"] = "sk-1"
		code, out, errs := b.run("catalog", "diff", b.file("c.yaml", smallFile))
		if code != want || errs != "" || (changes != "" && out != shown) {
			t.Errorf("exit %d, %q, %q; want %d", code, out, errs, want)
		}
		if got := b.last(); got.Method != http.MethodPut || got.Query != "dry_run=true" || !strings.Contains(got.Body, `"sk-1"`) {
			t.Errorf("sent %+v", got)
		}
	}
}

func TestCatalogApplyAsksForConfirmation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, changes string
		args              []string
		code, sent        int
	}{
		{"confirmed", "y\n", oneChange, nil, gwctl.ExitOK, 2},
		{"refused", "n\n", oneChange, nil, gwctl.ExitFailure, 1},
		{"no confirmation", "", oneChange, nil, gwctl.ExitUsage, 1},
		{"without asking", "", oneChange, []string{"--yes"}, gwctl.ExitOK, 2},
		{"dry run", "", oneChange, []string{"--dry-run"}, gwctl.ExitOK, 1},
		{"nothing to do", "", "", nil, gwctl.ExitOK, 1},
		{"for a program", "", oneChange, []string{"--yes", "-o", "json"}, gwctl.ExitOK, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, catalogServer(tt.changes))
			b.env["KEY"] = "sk-1"
			b.in = strings.NewReader(tt.in)
			code, out, errs := b.run(append([]string{"catalog", "apply", b.file("c.yaml", smallFile)}, tt.args...)...)
			if code != tt.code || len(b.seen) != tt.sent {
				t.Errorf("exit %d after %d requests; want %d after %d\n%s%s", code, len(b.seen), tt.code, tt.sent, out, errs)
			}
			if strings.Contains(out+errs, "sk-1") {
				t.Error("a secret is shown")
			}
			if tt.sent == 2 {
				if got := b.last(); got.Query != "" || got.Header.Get("If-Match") != `"7"` {
					t.Errorf("applied with %q, If-Match %q", got.Query, got.Header.Get("If-Match"))
				}
			}
		})
	}
}

// The server knows positions in the document that it got, a reader the lines of the file.
func TestRefusedMemberIsShownWithItsLine(t *testing.T) {
	t.Parallel()
	b := setup(t, problem(400, "invalid_input", `,"errors":[{"field":"providers[0].base_url","detail":"is odd"},{"field":"","detail":"is long"}]`))
	b.env["KEY"] = "sk-1"
	code, _, errs := b.run("catalog", "diff", b.file("c.yaml", smallFile))
	want := "  line 2: providers[0].base_url is odd\n  the input is long\n"
	if code != gwctl.ExitRefused || !strings.Contains(errs, want) {
		t.Errorf("exit %d, %q; want %q", code, errs, want)
	}
}

func TestCatalogChangedBeforeApplyIsAConflict(t *testing.T) {
	t.Parallel()
	calls := 0
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 2 {
			problem(412, "precondition_failed", "")(w, r)
			return
		}
		catalogServer(oneChange)(w, r)
	})
	if code, _, _ := b.run("catalog", "apply", b.file("c.yaml", "currency: USD"), "--yes"); code != gwctl.ExitConflict {
		t.Errorf("exit %d", code)
	}
}

func TestCatalogWithUnsetVariableIsNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	code, _, errs := b.run("catalog", "apply", "--yes", b.file("c.yaml", smallFile))
	if code != gwctl.ExitUsage || !strings.Contains(errs, "the variable KEY is not set") || len(b.seen) > 0 {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestCatalogExportAsYAMLAndJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		_, _ = w.Write([]byte(map[string]string{"application/yaml": "currency: USD\n", "application/json": `{"currency":"USD"}`}[r.Header.Get("Accept")]))
	})
	if out := b.ok("catalog", "export"); out != "currency: USD\n" {
		t.Errorf("got %q", out)
	}
	if out := b.ok("catalog", "export", "-o", "json"); out != "{\n  \"currency\": \"USD\"\n}\n" {
		t.Errorf("got %q", out)
	}
}

func TestImportPricesAppliesTheMarkup(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	file := b.file("prices.json", `{"m":{"litellm_provider":"openai","mode":"chat","input_cost_per_token":1e-06,"output_cost_per_token":2e-06},"x":{"litellm_provider":"y"}}`)
	for markup, want := range map[string]string{"": "1.00", "1.2": "1.20", "25%": "1.25", "-50%": "0.50"} {
		code, out, errs := b.run("catalog", "import-prices", file, "--markup", markup)
		if code != gwctl.ExitOK || !strings.Contains(out, `input: "`+want+`"`) || !strings.HasPrefix(errs, "1 models converted, 1 omissions") {
			t.Errorf("%s: exit %d, %s%s", markup, code, out, errs)
		}
	}
	for _, args := range []string{"--markup=1e3", "--markup=x", "--markup=0", "--model=["} {
		if code, _, _ := b.run("catalog", "import-prices", file, args); code != gwctl.ExitUsage {
			t.Errorf("%s: exit %d", args, code)
		}
	}
	if len(b.seen) > 0 {
		t.Errorf("sent %v", b.seen)
	}
}
