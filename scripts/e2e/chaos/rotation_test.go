package chaos

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/natsuser"
)

// A rotation is a stack under load whose secrets are exchanged.
type rotation struct {
	*rig.Rig
	t    *testing.T
	load *load

	provider string
	mu       sync.Mutex
	// accepted are the credentials that the provider accepts.
	accepted map[string]bool
}

// newRotation starts a stack whose provider checks its credential, and the load.
func newRotation(t *testing.T) *rotation {
	t.Helper()
	o := &rotation{t: t, accepted: map[string]bool{"Bearer sk-old": true}}
	o.Rig = rig.Start(t, rig.Options{ControlPlanes: 2, ControlSettings: shortSessions()})
	target, err := url.Parse(o.Sim.URL)
	o.must(err)
	transport := &http.Transport{MaxIdleConnsPerHost: clients} // nothing else may close its connections
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		accepted := o.accepted[r.Header.Get("Authorization")]
		o.mu.Unlock()
		if !accepted {
			http.Error(w, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	o.provider = o.Provider(t, rig.Provider{BaseURL: server.URL, Credentials: []rig.Credential{{Name: "main", Secret: "sk-old"}}})
	const model = "rotation"
	o.Model(t, rig.Model{ID: model, Routes: []rig.Route{{Provider: o.provider, UpstreamModel: model + "@" + loadDirectives, Formats: []string{"chat"}}}})
	o.load = startLoadAt(t, o.Rig, clients, model, newBalancer(t, o.Rig).pick)
	o.load.await(t, 60, answered)
	o.load.checkAllAnswered(t, "at first")
	return o
}

func (o *rotation) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// during exchanges a secret while requests run, all of which must be answered.
func (o *rotation) during(what string, exchange func()) {
	o.t.Helper()
	exchange()
	o.load.await(o.t, 4*clients, answered)
	o.load.checkAllAnswered(o.t, what)
}

func (o *rotation) restartControlPlanes() { o.t.Helper(); o.Restart(o.t, o.ControlPlanes()...) }

func (o *rotation) restartDataPlanes() { o.t.Helper(); o.Restart(o.t, o.DataPlanes()...) }

func key32() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

// Every secret is exchanged in the order of docs/operations/secrets.md while requests run. None of
// them fails, old secrets stop to work, and every request is billed once.
func TestSecretsAreRotatedUnderLoad(t *testing.T) {
	rig.Long(t)
	o := newRotation(t)
	o.during("provider credential", o.providerCredential)
	o.during("bootstrap token", o.bootstrapToken)
	o.during("admin token", o.adminToken)
	o.during("webhook secret", o.webhookSecret)
	o.during("password of Postgres", o.postgresPassword)
	o.during("passwords of NATS", o.natsPasswords)
	o.during("fleet key", o.fleetKey)
	o.during("pepper", o.pepper)
	o.during("master key", o.masterKey)
	asked := o.load.finish()
	o.load.checkAllAnswered(t, "at last")
	checkBills(t, o.load, asked, credit)
}

func (o *rotation) providerCredential() {
	set := func(accepted ...string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.accepted = map[string]bool{}
		for _, secret := range accepted {
			o.accepted["Bearer "+secret] = true
		}
	}
	set("sk-old", "sk-new")
	secret, applied := "sk-new", adminclient.WaitForApplied
	_, err := o.Admin.PutCredential(o.t.Context(), o.provider, "next", &adminclient.PutCredentialParams{Wait: &applied},
		adminclient.CatalogCredential{Name: "next", Secret: &secret})
	o.must(err)
	_, err = o.Admin.DeleteCredential(o.t.Context(), o.provider, "main", &adminclient.DeleteCredentialParams{Wait: &applied})
	o.must(err)
	o.load.await(o.t, 2*clients, answered) // requests that began with the old credential have ended
	set("sk-new")
}

// checkToken requires that a token is accepted, or refused.
func (o *rotation) checkToken(token string, accepted bool) {
	o.t.Helper()
	admin, err := adminclient.New(o.AdminURL(), token)
	o.must(err)
	_, err = admin.ListProxies(o.t.Context())
	refused, isAnswer := errors.AsType[*adminclient.Error](err)
	switch {
	case accepted && err != nil:
		o.t.Errorf("a valid token is refused: %v", err)
	case !accepted && (!isAnswer || refused.StatusCode != http.StatusUnauthorized):
		o.t.Errorf("an old token gets %v; want 401", err)
	}
}

func (o *rotation) bootstrapToken() {
	before, after := o.Secret(o.t, "admin_token"), rand.Text()
	o.SetSecret(o.t, "admin_token", before+"\n"+after)
	o.restartControlPlanes()
	o.checkToken(before, true)
	o.SetAdminToken(o.t, after)
	o.SetSecret(o.t, "admin_token", after)
	o.restartControlPlanes()
	o.checkToken(after, true)
	o.checkToken(before, false)
}

func (o *rotation) adminToken() {
	create := func() (id, secret string) {
		made, err := o.Admin.CreateToken(o.t.Context(), nil, adminclient.TokenCreate{Name: "drill", Scopes: []adminclient.Scope{adminclient.ScopeOperator}})
		o.must(err)
		return made.Value.ID, made.Value.Secret
	}
	id, before := create()
	_, after := create()
	o.checkToken(before, true)
	_, err := o.Admin.RevokeToken(o.t.Context(), id)
	o.must(err)
	o.checkToken(after, true)
	o.checkToken(before, false)
}

// webhookSecret exchanges the secret of an endpoint. During the overlap, deliveries have both
// signatures, so that the receiver may change over at any time.
func (o *rotation) webhookSecret() {
	type delivery struct {
		header http.Header
		body   []byte
	}
	got := make(chan delivery, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- delivery{r.Header, body}:
		default:
		}
	}))
	o.t.Cleanup(receiver.Close)
	hook, err := o.Admin.CreateWebhook(o.t.Context(), nil, adminclient.WebhookCreate{URL: receiver.URL})
	o.must(err)
	next, err := o.Admin.RotateWebhookSecret(o.t.Context(), hook.Value.Webhook.ID, nil, adminclient.WebhookRotation{OverlapSeconds: 600})
	o.must(err)
	_, err = o.Admin.TestWebhook(o.t.Context(), hook.Value.Webhook.ID, nil)
	o.must(err)
	var d delivery
	rig.Await(o.t, "a delivery", func(context.Context) error {
		select {
		case d = <-got:
			return nil
		default:
			return errors.New("none has come")
		}
	})
	for which, text := range map[string]string{"old": hook.Value.Secret, "new": next.Value.Secret} {
		secret, err := signature.ParseSecret(text)
		o.must(err)
		if _, err := signature.Verify(d.header, d.body, time.Now(), secret); err != nil {
			o.t.Errorf("with the %s secret: %v", which, err)
		}
	}
	_, err = o.Admin.DeleteWebhook(o.t.Context(), hook.Value.Webhook.ID)
	o.must(err)
}

// postgresPassword moves the control planes to another login role with the privileges of the
// first, and ends the first one.
func (o *rotation) postgresPassword() {
	db := o.Postgres(o.t)
	password := rand.Text()
	_, err := db.Exec(o.t.Context(), "create role controlplane_next login password '"+password+"' in role controlplane")
	o.must(err)
	dsn, err := url.Parse(o.Secret(o.t, "postgres_url"))
	o.must(err)
	dsn.User = url.UserPassword("controlplane_next", password)
	o.SetSecret(o.t, "postgres_url", dsn.String())
	o.restartControlPlanes()
	_, err = db.Exec(o.t.Context(), "alter role controlplane nologin password null")
	o.must(err)
	if n, err := o.Number(o.t.Context(), "select count(*) from pg_stat_activity where usename = 'controlplane'"); n != 0 || err != nil {
		o.t.Errorf("%d connections of the old role, %v; want none", n, err)
	}
}

func (o *rotation) natsPasswords() {
	users := natsuser.Users()
	next := natsuser.Next(users)
	passwords := map[string]string{natsuser.ControlPlane: o.Secret(o.t, "nats_controlplane"), natsuser.DataPlane: o.Secret(o.t, "nats_dataplane")}
	fresh := map[string]string{}
	for _, u := range next {
		fresh[u.Name] = rand.Text()
	}
	both := maps.Clone(passwords)
	maps.Copy(both, fresh)
	o.SetNATSUsers(o.t, slices.Concat(users, next), both)
	o.SetSecret(o.t, "nats_controlplane", fresh[next[0].Name])
	o.SetSecret(o.t, "nats_dataplane", fresh[next[1].Name])
	o.SetControlPlanes("MGW_NATS_USER=" + next[0].Name)
	o.SetDataPlanes("MGW_NATS_USER=" + next[1].Name)
	o.restartControlPlanes()
	o.restartDataPlanes()
	o.SetNATSUsers(o.t, next, fresh)
}

func (o *rotation) fleetKey() {
	before, after := o.Secret(o.t, "fleet_key"), key32()
	o.SetDataPlanes("MGW_SECRETS_PREVIOUS_FLEET_KEYS=" + after)
	o.restartDataPlanes()
	o.SetSecret(o.t, "fleet_key", after)
	o.SetDataPlanes("MGW_SECRETS_PREVIOUS_FLEET_KEYS=" + before)
	o.restartControlPlanes()
	o.restartDataPlanes()
	o.SetDataPlanes("MGW_SECRETS_PREVIOUS_FLEET_KEYS=")
	o.restartDataPlanes()
}

func (o *rotation) pepper() {
	before, after := o.Secret(o.t, "pepper"), rand.Text()
	previous := func(pepper string) {
		o.SetControlPlanes("MGW_SECRETS_PREVIOUS_PEPPERS=" + pepper)
		o.SetDataPlanes("MGW_SECRETS_PREVIOUS_PEPPERS=" + pepper)
		o.restartControlPlanes()
		o.restartDataPlanes()
	}
	previous(after)
	o.SetSecret(o.t, "pepper", after)
	previous(before)
	_, err := o.Admin.RotatePepper(o.t.Context(), nil)
	o.must(err)
	rig.Await(o.t, "the keys to have hashes under the new pepper", func(ctx context.Context) error {
		p, err := o.Admin.GetPepper(ctx)
		if err == nil && (p.Value.Waiting != 0 || p.Value.HashOnly != 0 || p.Value.Rotation.State != adminclient.RotationStateDone) {
			err = fmt.Errorf("got %s", p.Body)
		}
		return err
	})
	previous("")
}

func (o *rotation) masterKey() {
	before, after := o.Secret(o.t, "master_key"), key32()
	o.SetControlPlanes("MGW_SECRETS_PREVIOUS_MASTER_KEYS=m2:" + after)
	o.restartControlPlanes()
	o.SetSecret(o.t, "master_key", "m2:"+after)
	o.SetControlPlanes("MGW_SECRETS_PREVIOUS_MASTER_KEYS=m1:" + before)
	o.restartControlPlanes()
	_, err := o.Admin.RotateMasterKey(o.t.Context(), nil)
	o.must(err)
	rig.Await(o.t, "the old master key to be removable", func(ctx context.Context) error {
		m, err := o.Admin.GetMasterKey(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(m.Value.Keys, func(k adminclient.MasterKey) bool { return k.ID == "m1" && k.Removable }) {
			return fmt.Errorf("got %s", m.Body)
		}
		return nil
	})
	o.SetControlPlanes("MGW_SECRETS_PREVIOUS_MASTER_KEYS=")
	o.restartControlPlanes()
}
