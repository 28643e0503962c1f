package observe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
	"modelgateway/shared/subject"
)

// faster is the factor by which time passes faster for the test's copy of the rules: 5 minutes are 5 seconds. It applies
// to windows, offsets and waiting times. Thresholds in seconds are in the table below, because the processes of the stack run at
// their own speed.
const faster = 60

// thresholds are the times in the expressions of page alerts, and those of the test's copy of the rules. The ledger check
// runs once a minute.
var thresholds = map[string]string{
	"max(mgw_usage_oldest_unsettled_seconds) > 300": "max(mgw_usage_oldest_unsettled_seconds) > 5",
	`{scope="changed"}[3h])) > 300`:                 `{scope="changed"}[3h])) > 75`,
}

// fastRules writes the copy of the rules and returns its path.
func fastRules(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile(root + "/deploy/helm/modelgateway/files/rules/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for slow, fast := range thresholds {
		if strings.Count(text, slow) != 1 {
			t.Fatalf("the rules have %q %d times; want once", slow, strings.Count(text, slow))
		}
		text = strings.Replace(text, slow, fast, 1)
	}
	duration := regexp.MustCompile(`(\[|for: |offset )(\d+)([smhd])`)
	text = duration.ReplaceAllStringFunc(text, func(s string) string {
		m := duration.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2]) // digits
		return fmt.Sprintf("%s%dms", m[1], n*map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400}[m[3]]*1000/faster)
	})
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A pager follows the page alerts of a stack.
type pager struct {
	*server
	r *rig.Rig
	// fired are the alerts that have fired.
	fired map[string]bool
}

// await waits until all the alerts fire.
func (p *pager) await(t *testing.T, alerts ...string) {
	t.Helper()
	rig.Await(t, strings.Join(alerts, ", ")+" to fire", func(ctx context.Context) error {
		firing, err := p.firing(ctx, "page")
		for _, name := range firing {
			p.fired[name] = true
		}
		for _, name := range alerts {
			if err == nil && !p.fired[name] {
				err = fmt.Errorf("%v fire", firing)
			}
		}
		return err
	})
}

// awaitHistory waits until there has been traffic for longer than page alerts wait.
func (p *pager) awaitHistory(t *testing.T) {
	t.Helper()
	rig.Await(t, "a history of requests", func(ctx context.Context) error {
		old, err := p.query(ctx, "sum(mgw_requests_total offset 12s) > 10")
		if err == nil && len(old) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// awaitEnd waits until no alert fires except those named.
func (p *pager) awaitEnd(t *testing.T, except ...string) {
	t.Helper()
	rig.Await(t, "the alerts to end", func(ctx context.Context) error {
		firing, err := p.firing(ctx, "page")
		if firing = slices.DeleteFunc(firing, func(name string) bool { return slices.Contains(except, name) }); err == nil && len(firing) > 0 {
			err = fmt.Errorf("%v still fire", firing)
		}
		return err
	})
}

// TestPageAlertsFireOnFaults causes the fault of every page alert, one after the other, and ends it again.
func TestPageAlertsFireOnFaults(t *testing.T) {
	r := rig.Start(t, rig.Options{DataPlanes: 1, ControlSettings: []string{"MGW_SESSION_WINDOW=4s"}})
	unblock := blockLedgerCheck(t, r) // before the first one
	p := &pager{startPrometheus(t, r, fastRules(t)), r, map[string]bool{}}
	account := r.Account(t, rig.AccountSpec{})
	send(t, r, chat(account.Key, r.Model(t, rig.Model{}), false))
	p.awaitHistory(t)
	p.awaitEnd(t, "MgwLedgerCheckSilent") // no other fires on a healthy stack with traffic
	p.failProviders(t, account.Key)
	p.endCertificate(t)
	p.fillUsageStream(t)
	p.await(t, "MgwLedgerCheckSilent")
	unblock()
	p.falsifyPool(t)
	p.stopControlPlane(t)
	p.await(t, "MgwLedgerDiffers")
	p.awaitEnd(t, "MgwLedgerDiffers")
	p.loseCommits(t)
	p.stopProxy(t)
	p.checkAll(t)
}

// checkAll checks that every page alert of the rule file has fired.
func (p *pager) checkAll(t *testing.T) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name   string
					Labels map[string]string
				}
			}
		}
	}
	if err := p.get(t.Context(), "rules", &answer); err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, g := range answer.Data.Groups {
		for _, rule := range g.Rules {
			if rule.Labels["severity"] != "page" {
				continue
			}
			if pages++; !p.fired[rule.Name] {
				t.Errorf("no fault of this test makes %s fire", rule.Name)
			}
		}
	}
	if pages < 10 {
		t.Errorf("there are only %d page alerts", pages)
	}
}

// endCertificate adds a provider whose only trusted issuer expires in two days, and removes it again.
func (p *pager) endCertificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(0, 0, 2)}
	issuer, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	const id = "expires"
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer}))
	provider := map[string]any{
		"id": id, "base_url": "https://expires.example.com", "credentials": []any{map[string]any{"name": "main", "secret": "sk-test"}}, "ca": ca,
	}
	p.r.Add(t, []any{provider}, nil)
	p.await(t, "MgwProviderCertificateExpiresSoon")
	if _, err := p.r.Admin.DeleteProvider(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t, "MgwLedgerCheckSilent")
}

// falsifyPool adds a unit to a pool of an account that nobody uses.
func (p *pager) falsifyPool(t *testing.T) {
	t.Helper()
	idle := p.r.Account(t, rig.AccountSpec{})
	id, err := ident.Account.Parse(idle.ID)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := p.r.Postgres(t).Exec(t.Context(), `update pools set free = free + 1 where account_id = $1 and kind = 1`, [16]byte(id))
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("change a pool: %v, %v", tag, err)
	}
}

// blockLedgerCheck locks a table that only the ledger check writes.
func blockLedgerCheck(t *testing.T, r *rig.Rig) (unblock func()) {
	t.Helper()
	tx, err := r.Postgres(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table ledger_check_state in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// failProviders calls providers that cannot be reached, that fail, and that refuse the credential.
func (p *pager) failProviders(t *testing.T, key string) {
	t.Helper()
	// A connection that breaks after the request was sent may be the request's own fault, so that one account alone cannot
	// open the circuit breaker.
	broken := p.r.Provider(t, rig.Provider{BaseURL: p.r.Sim.URL})
	// A refused credential is not used for a while, and a page needs three refusals.
	var credentials []rig.Credential
	for _, name := range []string{"one", "two", "three", "four"} {
		credentials = append(credentials, rig.Credential{Name: name, Secret: "sk-" + name})
	}
	refusing := p.r.Provider(t, rig.Provider{BaseURL: p.r.Sim.URL, Credentials: credentials})
	models := p.r.Models(t,
		rig.Model{Routes: []rig.Route{{Provider: broken, UpstreamModel: "m@drop", Formats: []string{"chat"}}}},
		rig.Model{Directives: "status=500"},
		rig.Model{Routes: []rig.Route{{Provider: refusing, UpstreamModel: "m@status=401,code=invalid_api_key", Formats: []string{"chat"}}}})
	var requests []rig.Request
	for _, model := range models {
		requests = append(requests, chat(key, model, false))
	}
	stop := send(t, p.r, requests...)
	p.await(t, "MgwServerErrors", "MgwProviderDown", "MgwProviderRefusesUs")
	stop()
}

// fillUsageStream makes the usage stream refuse messages, as it does when it has reached its maximum size.
func (p *pager) fillUsageStream(t *testing.T) {
	t.Helper()
	js := p.r.JetStream(t)
	stream, err := js.Stream(t.Context(), subject.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	before := stream.CachedInfo().Config
	full := before
	full.MaxBytes, full.Discard = 1, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	p.await(t, "MgwUsagePublishFails", "MgwSettlementStands")
	if _, err := js.UpdateStream(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t, "MgwLedgerCheckSilent")
}

// stopControlPlane stops the only control plane until its absence shows.
func (p *pager) stopControlPlane(t *testing.T) {
	t.Helper()
	// Accounts in use are served on. Nothing can be decided about those that the proxy has not seen, and each of their
	// requests waits for that.
	model := p.r.Model(t, rig.Model{})
	var strangers []rig.Request
	for range 20 {
		strangers = append(strangers, chat(p.r.Account(t, rig.AccountSpec{}).Key, model, false))
	}
	p.r.Halt(t, rig.ControlPlane)
	defer send(t, p.r, strangers...)()
	p.await(t, "MgwPlaneAbsent", "MgwServiceUnavailable")
	p.r.Resume(t, rig.ControlPlane)
}

// stopProxy stops the only proxy until its absence shows.
func (p *pager) stopProxy(t *testing.T) {
	t.Helper()
	delete(p.fired, "MgwPlaneAbsent") // the control plane's absence
	p.r.Halt(t, rig.DataPlane1)
	p.await(t, "MgwPlaneAbsent")
	p.r.Resume(t, rig.DataPlane1)
}

// loseCommits replaces Postgres by an older copy of its files.
func (p *pager) loseCommits(t *testing.T) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "postgres")
	copyFiles := func(from, to string) error {
		// keeps the owner: Postgres may run as another user
		out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
		if err != nil {
			return fmt.Errorf("copy %s: %w: %s", from, err, out)
		}
		return nil
	}
	p.r.RestartPostgres(t, func(dir string) error { return copyFiles(dir, copied) })
	rig.Await(t, "a commit that is lost", func(ctx context.Context) error {
		_, err := p.r.Admin.CreateAccount(ctx, nil, adminclient.AccountCreate{Name: t.Name()})
		return err
	})
	p.r.RestartPostgres(t, func(dir string) error { return errors.Join(os.RemoveAll(dir), copyFiles(copied, dir)) })
	p.await(t, "MgwCommitsLost")
}
