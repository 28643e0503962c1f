package devstack

import (
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The message leads from a request to its receipt, with commands that work in a shell whatever the
// path of the repository is.
func TestHintLeadsToTheReceipt(t *testing.T) {
	t.Parallel()
	state := State{BaseURL: "http://one", BaseURLs: []string{"http://one"}, AdminURL: "http://two", AdminURLs: []string{"http://two"}, APIKey: "mgw_key"}
	state.OpsURLs = map[string]string{DataPlaneName(0): "http://ops"} // only the ops listener serves the documents of the public API
	for _, l := range []struct {
		layout Layout
		want   string
	}{
		{Layout{Root: "/src/my gateway", Dir: "/src/my gateway/.dev"}, "\n  .dev/bin/gwctl --dev usage list\n"},
		{Layout{Root: "/src", Dir: "/tmp/my stack"}, "\n  '/tmp/my stack/bin/gwctl' --dev usage list\n"},
	} {
		text := hint(l.layout, state, catalog{})
		for _, want := range []string{l.want, " --dev usage get REQUEST_ID\n", "http://ops/docs and http://two/docs", "make cabinet", "http://two/console/"} {
			if !strings.Contains(text, want) {
				t.Errorf("the message lacks %q:\n%s", want, text)
			}
		}
	}
}

var (
	printedLink = regexp.MustCompile(`https?://[^\s'"]+`)
	printedCurl = regexp.MustCompile(`(?m)^  (curl .*)$`)
)

// openHint opens every address that the message about the ready stack names, and runs the curl commands in it.
func (r *testStack) openHint(t *testing.T, state State) {
	t.Helper()
	r.out.mu.Lock()
	_, message, _ := strings.Cut(r.out.text.String(), "The gateway is ready.")
	r.out.mu.Unlock()
	commands := printedCurl.FindAllStringSubmatch(message, -1)
	message = printedCurl.ReplaceAllString(message, "")

	type page struct{ path, token, has string }
	pages := map[string]page{
		state.ProviderSimURL:                      {"/livez", "", "ok"},
		state.OpsURLs[DataPlaneName(0)] + "/docs": {"", "", "<title>Model gateway API</title>"},
	}
	for _, base := range state.BaseURLs {
		pages[base] = page{"/v1/models", state.APIKey, `"demo-chat"`}
	}
	for _, admin := range state.AdminURLs {
		pages[admin] = page{"", "", "<title>Model gateway admin API</title>"}
		pages[admin+"/docs"] = pages[admin]
		pages[admin+"/admin/v1"] = page{"/accounts", state.AdminToken, state.AccountID}
		pages[admin+"/console/"] = page{"", "", "Sign in</button>"}
	}
	opened := 0
	for _, link := range printedLink.FindAllString(message, -1) {
		link = strings.TrimRight(link, ".,)")
		want, known := pages[link]
		if !known {
			t.Errorf("the message names %s, of which this test knows no page", link)
			continue
		}
		opened++
		if status, text := visit(t, link+want.path, want.token); status != http.StatusOK || !strings.Contains(text, want.has) {
			t.Errorf("%s%s: got %d %s; want a page with %q", link, want.path, status, text, want.has)
		}
	}
	if opened < 5 || len(commands) != 3 {
		t.Errorf("%d links and %d commands in the message:\n%s", opened, len(commands), message)
	}

	if _, err := exec.LookPath("curl"); err != nil {
		t.Logf("the commands of the message are not run: %v", err)
		return
	}
	for i, want := range []string{`"available":`, `"finish_reason":`, "data: [DONE]"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", commands[i][1]).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: got %s, %v; want %s", commands[i][1], out, err, want)
		}
	}
}

// visit gets a page as a browser does, and follows its redirects.
func visit(t *testing.T, url, token string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html, application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
