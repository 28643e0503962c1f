package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
)

// A leakDetector records all output of a stack.
type leakDetector struct {
	*rig.Rig
	t *testing.T

	mu sync.Mutex
	// recorded is the traffic on NATS and the responses.
	recorded bytes.Buffer
	// secrets maps a description to the secret that must not appear.
	secrets map[string]string
}

// newLeakDetector starts a stack with debug logs and with a previous pepper and master key to
// rotate, and records its output.
func newLeakDetector(t *testing.T, oldPepper, oldMaster string) *leakDetector {
	t.Helper()
	level := "MGW_LOG_LEVEL=debug"
	peppers := "MGW_SECRETS_PREVIOUS_PEPPERS=" + oldPepper
	w := &leakDetector{t: t, secrets: map[string]string{"old pepper": oldPepper, "old master key": oldMaster}}
	w.Rig = rig.Start(t, rig.Options{
		DataSettings:    []string{level, peppers},
		ControlSettings: []string{level, peppers, "MGW_SECRETS_PREVIOUS_MASTER_KEYS=m0:" + oldMaster},
	})
	files, err := filepath.Glob(filepath.Join(w.Dir(), "secrets", "*"))
	w.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		w.must(err)
		w.secrets[filepath.Base(file)] = strings.TrimSpace(string(text))
	}
	nc := w.NATS(t)
	_, err = nc.Subscribe(">", func(m *nats.Msg) {
		w.keep([]byte(m.Subject), fmt.Append(nil, m.Header), m.Data)
	})
	w.must(err)
	w.must(nc.Flush())
	// Outbox rows are deleted too soon to be read, so a trigger copies them.
	_, err = w.Postgres(t).Exec(t.Context(), `
		create table outbox_seen as select subject, payload from outbox;
		create function keep_outbox() returns trigger language plpgsql as $$
			begin insert into outbox_seen values (new.subject, new.payload); return new; end $$;
		create trigger keep after insert on outbox for each row execute function keep_outbox()`)
	w.must(err)
	return w
}

func (w *leakDetector) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *leakDetector) keep(parts ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, part := range parts {
		w.recorded.Write(part)
		w.recorded.WriteByte('\n')
	}
}

// everything returns all output: NATS messages, responses, logs, metrics and tables.
func (w *leakDetector) everything() map[string][]byte {
	w.t.Helper()
	all := map[string][]byte{}
	logs, err := filepath.Glob(filepath.Join(w.Dir(), "log", "*"))
	w.must(err)
	for _, path := range logs {
		all["log "+filepath.Base(path)], err = os.ReadFile(path)
		w.must(err)
	}
	conn := w.Postgres(w.t)
	rows, err := conn.Query(w.t.Context(), "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'")
	w.must(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	for _, table := range tables {
		var text *string
		w.must(conn.QueryRow(w.t.Context(), "select string_agg(to_jsonb(t)::text, e'\\n') from "+pgx.Identifier{table}.Sanitize()+" as t").Scan(&text))
		if text != nil {
			all["table "+table] = []byte(*text)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all["bus and answers"] = bytes.Clone(w.recorded.Bytes())
	return all
}

// forms returns the encodings of a secret.
func forms(secret string) [][]byte {
	raw := []byte(secret)
	all := [][]byte{raw, []byte(hex.EncodeToString(raw)), []byte(strings.TrimRight(base64.StdEncoding.EncodeToString(raw), "="))}
	if key, err := base64.StdEncoding.DecodeString(secret); err == nil && len(key) >= 16 { // a key: its bytes too
		all = append(all, key, []byte(hex.EncodeToString(key)))
	}
	return all
}

// call calls an operation of the admin API whose response must not contain a secret, and
// records the response.
func (w *leakDetector) call(token, method, path, contentType, body string) int {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.AdminURL()+path, strings.NewReader(body))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	w.keep(text, fmt.Append(nil, answer.Header))
	return answer.StatusCode
}

// chat sends a chat request and records the response.
func (w *leakDetector) chat(model, key string) int {
	w.t.Helper()
	answer := w.Do(w.t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: chatBody(model, "hello", false)})
	w.keep(answer.Body, fmt.Append(nil, answer.Header))
	return answer.Status
}

// oldHash gives a key the hash that it had before the pepper was rotated.
func (w *leakDetector) oldHash(hasher *apikey.Hasher, keyID, text string) {
	w.t.Helper()
	hash := hasher.Hash(text)
	tag, err := w.Postgres(w.t).Exec(w.t.Context(), "update api_keys set lookup_hash = $1, pepper_id = null where id = replace($2, 'key_', '')::uuid", hash[:], keyID)
	w.must(err)
	if tag.RowsAffected() != 1 {
		w.t.Fatalf("%d keys have the id %s", tag.RowsAffected(), keyID)
	}
}

// mirror is a server that answers with the request it got, as a careless provider or webhook
// receiver would.
func mirror(status func() int) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status())
		_, _ = fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s","type":"invalid_request_error","code":"invalid_api_key"}}`,
			strings.NewReplacer(`"`, `'`, "\n", " ").Replace(fmt.Sprint(r.Header, string(body))))
	}))
}

// TestSecretsAreNeverPrinted uses every kind of secret, in valid and invalid ways, and then
// searches all output of the stack for them. The same search must find names that are not
// secret.
func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	oldPepper, oldMaster := rand.Text()+rand.Text(), base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
	w := newLeakDetector(t, oldPepper, oldMaster)
	hasher, err := apikey.NewHasher([]byte(oldPepper))
	w.must(err)

	// Credentials of providers. One provider refuses its credential and repeats it in the
	// error.
	credential := "sk-live-" + rand.Text()
	w.secrets["provider credential"] = credential
	provider := mirror(func() int { return http.StatusUnauthorized })
	t.Cleanup(provider.Close)
	leaky := w.Provider(t, rig.Provider{BaseURL: provider.URL, Credentials: []rig.Credential{{Name: "one", Secret: credential}}})
	model := w.Model(t, rig.Model{})
	failing := w.Model(t, rig.Model{Routes: []rig.Route{{Provider: leaky, UpstreamModel: "m", Formats: []string{"chat"}}}})

	// A webhook receiver that repeats what it got.
	var status atomic.Int64
	status.Store(http.StatusInternalServerError)
	receiver := mirror(func() int { return int(status.Load()) })
	t.Cleanup(receiver.Close)
	hook, err := w.Admin.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: receiver.URL})
	w.must(err)
	w.secrets["webhook secret"] = strings.TrimPrefix(hook.Value.Secret, "whsec_")
	rotated, err := w.Admin.RotateWebhookSecret(t.Context(), hook.Value.Webhook.ID, nil, adminclient.WebhookRotation{OverlapSeconds: 600})
	w.must(err)
	w.secrets["second webhook secret"] = strings.TrimPrefix(rotated.Value.Secret, "whsec_")
	if _, err := signature.ParseSecret(rotated.Value.Secret); err != nil {
		t.Error(err)
	}

	// API keys: issued, revealed, used, mistyped and revoked; one from before the rotation of
	// the pepper.
	account := w.Account(t, rig.AccountSpec{})
	w.secrets["API key"] = account.Key
	beforeID, before := account.NewKey(t, "1")
	w.secrets["older API key"] = before
	w.oldHash(hasher, beforeID, before)
	importedText := apikey.Generate()
	w.secrets["imported API key"] = importedText
	_, err = w.Admin.ImportKeys(t.Context(), nil, adminclient.KeyImport{
		Keys: []adminclient.ImportedKey{{AccountID: account.ID, Name: "imported", Hash: hasher.Hash(importedText).String()}},
	})
	w.must(err)
	for name, key := range map[string]string{"new": account.Key, "of the old pepper": before, "imported under the old pepper": importedText} {
		for range 4 { // through each proxy
			if got := w.chat(model, key); got != http.StatusOK {
				t.Errorf("with the key %s: %d; want 200", name, got)
			}
		}
	}
	shown, err := w.Admin.RevealKey(t.Context(), account.KeyID)
	w.must(err)
	if shown.Value == nil || shown.Value.Secret != account.Key {
		t.Errorf("show key: %s", shown.Body)
	}
	stranger := apikey.Generate()
	w.secrets["unknown API key"] = stranger
	if got := w.chat(model, stranger); got != http.StatusUnauthorized {
		t.Errorf("with an unknown key: %d", got)
	}
	if got := w.chat(failing, account.Key); got < 500 {
		t.Errorf("from the provider that refuses us: %d", got)
	}

	// Admin tokens: issued, used, unknown. Secrets in requests that are refused.
	token, err := w.Admin.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: "t", Scopes: []adminclient.Scope{adminclient.ScopeOperator}})
	w.must(err)
	w.secrets["admin token"] = token.Value.Secret
	unknown := "mgwa_" + rand.Text() + rand.Text()
	w.secrets["unknown admin token"] = unknown
	if got := w.call(unknown, http.MethodGet, "/admin/v1/accounts", "", ""); got != http.StatusUnauthorized {
		t.Errorf("with an unknown token: %d", got)
	}
	lost := "sk-lost-" + rand.Text()
	w.secrets["credential in a refused document"] = lost
	for path, body := range map[string]string{
		"PUT /admin/v1/catalog":                             `{"currency":"EUR","providers":[{"id":"x","base_url":"nothing","credentials":[{"name":"a","secret":"` + lost + `"}],"odd":1}]}`,
		"POST /admin/v1/accounts/" + account.ID + "/keys":   `{"name":"","secret":"` + lost + `"}`,
		"POST /admin/v1/webhooks":                           `{"url":"https://user:` + lost + `@example.com/"}`,
		"PATCH /admin/v1/webhooks/" + hook.Value.Webhook.ID: `{"url":"https://user:` + lost + `@example.com/"}`,
	} {
		method, path, _ := strings.Cut(path, " ")
		if got := w.call(token.Value.Secret, method, path, "application/json", body); got != http.StatusBadRequest {
			t.Errorf("%s %s: %d; want 400", method, path, got)
		}
	}

	// The rotations, and a revocation after them, which must apply to a key that proxies
	// cached under its old hash.
	w.rotate()
	account.Revoke(t, beforeID)
	for range 4 {
		if got := w.chat(model, before); got != http.StatusUnauthorized {
			t.Errorf("with the revoked key: %d; want 401", got)
		}
	}
	if got := w.chat(model, importedText); got != http.StatusOK {
		t.Errorf("with the imported key after the exchange: %d; want 200", got)
	}

	// The webhook is delivered, fails, and is delivered again.
	failed := w.await(hook.Value.Webhook.ID, func(d *adminclient.Delivery) bool { return d.LastAttempt != nil && d.LastAttempt.Status != nil })
	status.Store(http.StatusOK)
	_, err = w.Admin.Redeliver(t.Context(), failed, nil)
	w.must(err)
	w.await(hook.Value.Webhook.ID, func(d *adminclient.Delivery) bool {
		return d.ID == failed && d.State == adminclient.DeliveryStateDelivered
	})
	if got := w.call(token.Value.Secret, http.MethodGet, "/admin/v1/deliveries/"+failed, "", ""); got != http.StatusOK {
		t.Errorf("delivery: %d", got)
	}
	w.call(token.Value.Secret, http.MethodGet, "/admin/v1/audit?limit=500", "", "")
	w.AwaitSettled(t)

	w.search(account.ID, model)
}

// rotate rotates the pepper and the data keys, and waits for the end of both.
func (w *leakDetector) rotate() {
	w.t.Helper()
	if r, err := w.Admin.RotatePepper(w.t.Context(), nil); err != nil {
		w.t.Fatalf("rotate pepper: %s, %v", r, err)
	}
	if r, err := w.Admin.RotateMasterKey(w.t.Context(), nil); err != nil {
		w.t.Fatalf("rotate master key: %s, %v", r, err)
	}
	rig.Await(w.t, "both exchanges", func(ctx context.Context) error {
		p, err := w.Admin.GetPepper(ctx)
		if err != nil {
			return err
		}
		m, err := w.Admin.GetMasterKey(ctx)
		if err != nil {
			return err
		}
		if p.Value.Rotation.State != adminclient.RotationStateDone || p.Value.Waiting != 0 || m.Value.Rotation.State != adminclient.RotationStateDone {
			return fmt.Errorf("pepper %s, master key %s", p.Body, m.Body)
		}
		return nil
	})
}

// await waits for a delivery and returns its id.
func (w *leakDetector) await(webhook string, is func(*adminclient.Delivery) bool) (id string) {
	w.t.Helper()
	rig.Await(w.t, "a delivery", func(ctx context.Context) error {
		r, err := w.Admin.ListDeliveries(ctx, webhook, nil)
		if err != nil {
			return err
		}
		for i := range r.Value.Data {
			if is(&r.Value.Data[i]) {
				id = r.Value.Data[i].ID
				return nil
			}
		}
		return errors.New(string(r.Body))
	})
	return id
}

// search looks for the secrets in all output. To show that it works, it also looks for names
// that are not secret.
func (w *leakDetector) search(account, model string) {
	w.t.Helper()
	all := w.everything()
	for what, secret := range w.secrets {
		if len(secret) < 12 {
			w.t.Errorf("%s is too short to be looked for", what)
			continue
		}
		for _, form := range forms(secret) {
			for where, text := range all {
				if at := bytes.Index(text, form); at >= 0 {
					w.t.Errorf("%s shows the %s: …%q", where, what, bytes.ReplaceAll(text[max(at-80, 0):at], form, []byte("***")))
				}
			}
		}
	}
	for what, name := range map[string]string{"bus and answers": model, "table audit_log": account, "table outbox_seen": hex.EncodeToString([]byte(model)), "table webhook_events": "facts"} {
		if !bytes.Contains(all[what], []byte(name)) {
			w.t.Errorf("%s (%d bytes) does not show %q: the search finds nothing", what, len(all[what]), name)
		}
	}
	for _, part := range append(w.DataPlanes(), rig.ControlPlane) {
		if text := all["log "+part+".log"]; len(text) < 1000 {
			w.t.Errorf("the log of %s has %d bytes: it cannot be all", part, len(text))
		}
	}
	w.t.Logf("%d secrets looked for in %d places", len(w.secrets), len(all))
}
