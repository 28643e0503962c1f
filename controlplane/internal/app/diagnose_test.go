package app

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/platform/testkit/natstest"
)

// check returns the text of a diagnosis.
func check(t *testing.T, postgresURL, natsURL string, d Doctor) (diagnosis.Status, string) {
	t.Helper()
	r, err := Check(t.Context(), testConfig(postgresURL, natsURL), d)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	diagnosis.Print(&text, r.Findings, true)
	return r.Status(), text.String()
}

// Before the first installation the database and NATS are empty. Afterwards the same checks have something to say about them.
func TestPreflightPassesOnEmptyServers(t *testing.T) {
	url, broker := pgtest.Empty(t), natstest.New(t)
	status, text := check(t, url, broker.URL(), Doctor{Preflight: true})
	for _, known := range []string{"failure  postgres fsync", "failure  postgres full_page_writes"} { // of the database for tests
		text = strings.ReplaceAll(text, known, "")
	}
	if strings.Contains(text, "failure ") || !strings.Contains(text, "ok       postgres migrations: schema version 0") || !strings.Contains(text, "ok       nats exists MGW_USAGE: does not exist (before the start)") {
		t.Errorf("%s:\n%s", status, text)
	}
	if status, text := check(t, url, broker.URL(), Doctor{}); status != diagnosis.Failure || !strings.Contains(text, "failure  nats exists MGW_USAGE") {
		t.Errorf("without preflight: %s:\n%s", status, text)
	}
	for _, test := range []struct{ postgres, nats, want string }{
		{"postgres://127.0.0.1:1/x", broker.URL(), "failure  postgres reachable"},
		{url, "nats://127.0.0.1:1", "failure  nats reachable"},
	} {
		if status, text := check(t, test.postgres, test.nats, Doctor{Preflight: true}); status != diagnosis.Failure || !strings.Contains(text, test.want) {
			t.Errorf("want %q; got %s:\n%s", test.want, status, text)
		}
	}
}

// Beside a running control plane it finds what gwctl doctor finds, calls the providers and the given addresses.
func TestCheckLooksAtTheRunningSystem(t *testing.T) {
	url, broker := pgtest.URL(t), natstest.New(t)
	r := start(t, testConfig(url, broker.URL()))
	defer r.end(t)
	api, err := adminclient.New(r.admin, token)
	if err != nil {
		t.Fatal(err)
	}
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = away.Close()
	applied, err := api.ApplyCatalog(t.Context(), nil, adminclient.CatalogDocument{}, adminclient.WithBody("application/yaml",
		[]byte("currency: EUR\nproviders:\n- {id: away, name: Away, base_url: \"https://"+away.Addr().String()+"\", auth: bearer}\n")))
	if err != nil {
		t.Fatalf("apply the catalog: %s, %v", applied.Body, err)
	}
	status, text := check(t, url, broker.URL(), Doctor{Services: []string{r.admin, "http://" + away.Addr().String()}})
	for _, want := range []string{
		"ok       postgres control_planes: 1 control plane uses", "failure  proxies live: 0 live proxies",
		"ok       postgres keeps_commits: postgres.keeps_commits = ", "ok       proxies revocation_bound: ", "warning  catalog egress away: ",
		"ok       services answers " + r.admin, "failure  services answers http://" + away.Addr().String(), "ok       ledger ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: want %q in:\n%s", status, want, text)
		}
	}
}
