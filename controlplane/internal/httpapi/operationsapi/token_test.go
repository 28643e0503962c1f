package operationsapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	b := start(t)
	past, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{
		Name: "t", Scopes: []adminclient.Scope{adminclient.ScopeRead}, ExpiresAt: new(time.Now().Add(-time.Second)),
	}))
	servertest.Check(t, err)
	servertest.Problem(t, past.Problem, http.StatusBadRequest, "invalid_input")
	made, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{
		Name: "t", Scopes: []adminclient.Scope{adminclient.ScopeRead}, ExpiresAt: new(time.Now().Add(time.Hour)),
	}))
	servertest.Check(t, err)
	list := func() *servertest.Answer[adminclient.AccountList] {
		r, err := servertest.Answered(b.As(made.Value.Secret).ListAccounts(t.Context(), nil))
		servertest.Check(t, err)
		return r
	}
	if r := list(); r.StatusCode != http.StatusOK {
		t.Fatalf("before its end: %s", r.Body)
	}
	b.Exec("update admin_tokens set expires_at = now() - interval '1 second' where id = $1", strings.TrimPrefix(made.Value.ID, "tok_"))
	servertest.Problem(t, list().Problem, http.StatusUnauthorized, "token_expired")
}

// The use of a token is recorded, but not for each request.
func TestTokenUseIsRecordedOnceAMinute(t *testing.T) {
	t.Parallel()
	b := start(t)
	secret := b.Token(adminclient.ScopeRead)
	used := func() (at time.Time, writes int64) {
		r, err := servertest.Answered(b.As(secret).ListAccounts(t.Context(), nil))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("list: %s", r.Body)
		}
		servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select last_used_at, xmin::text::bigint from admin_tokens").Scan(&at, &writes))
		return at, writes
	}
	first, writes := used()
	if again, more := used(); !again.Equal(first) || more != writes {
		t.Errorf("used at %s, then at %s: noted twice", first, again)
	}
	b.Exec("update admin_tokens set last_used_at = now() - interval '2 minutes'")
	if later, _ := used(); time.Since(later) > time.Minute {
		t.Errorf("a use after two minutes is not recorded: %s", later)
	}
}

// After too many failures of an address its further failures get 429. Valid tokens are accepted
// all the same, also those that were never seen before: many clients can share an address.
func TestFailedAttemptsLockOnlyFailures(t *testing.T) {
	t.Parallel()
	b := startWith(t, elsewhere{})
	good := b.Token(adminclient.ScopeRead)
	try := func(token string) *servertest.Answer[adminclient.AccountList] {
		r, err := servertest.Answered(b.As(token).ListAccounts(t.Context(), nil))
		servertest.Check(t, err)
		return r
	}
	forged := "mgwa_" + strings.Repeat("A", 43)
	for i, token := range []string{"mgwa_1", "junk", "x.y.z", forged, "mgwa_5", "mgwa_6", "mgwa_7", forged, forged, "mgwa_10"} {
		if r := try(token); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("failure %d: %s", i+1, r.Body)
		}
	}
	for _, token := range []string{"mgwa_11", "x.y.z", forged} {
		locked := try(token)
		servertest.Problem(t, locked.Problem, http.StatusTooManyRequests, "too_many_failures")
		if wait, err := strconv.Atoi(locked.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 30 {
			t.Errorf("Retry-After is %d, %v; want 1 to 30", wait, err)
		}
	}
	for _, token := range []string{good, "a.b.c", servertest.BootstrapToken} {
		if r := try(token); r.StatusCode != http.StatusOK {
			t.Errorf("a valid token is rejected after failures of its address: %s", r.Body)
		}
	}
}

// A token with daily limits books and reveals no more than they allow, also with concurrent
// requests. A repeated booking counts once, and a refused one books nothing.
func TestDailyLimitsOfATokenAreKept(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	made, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{
		Name: "cabinet", Scopes: []adminclient.Scope{adminclient.ScopeCredits, adminclient.ScopeKeysReveal},
		CreditsPerDay: new("10.00"), RevealsPerDay: new(int64(2)),
	}))
	servertest.Check(t, err)
	if v := made.Value; v == nil || v.CreditsPerDay == nil || *v.CreditsPerDay != "10.00" || *v.RevealsPerDay != 2 {
		t.Fatalf("create: %s", made.Body)
	}
	limited := b.As(made.Value.Secret)
	credit := func(reference, amount string) *servertest.Answer[adminclient.Transaction] {
		r, err := servertest.Answered(limited.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
			Amount: amount, Kind: adminclient.CreditKindCorrection, Reference: reference, Reason: new("a reason"),
		}))
		servertest.Check(t, err)
		return r
	}
	before, err := servertest.Answered(b.API.GetBalance(t.Context(), a.ID))
	servertest.Check(t, err)
	var booked atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			amount := "3.00"
			if i%2 == 1 {
				amount = "-3.00"
			}
			if r := credit(strconv.Itoa(i), amount); r.StatusCode == http.StatusCreated {
				booked.Add(1)
			}
		})
	}
	all.Wait()
	if n := booked.Load(); n != 3 {
		t.Errorf("%d bookings of 3.00; want three within a limit of 10.00", n)
	}
	if r := credit("last", "1.00"); r.StatusCode != http.StatusCreated {
		t.Errorf("a booking that reaches the limit: %s", r.Body)
	}
	if r := credit("last", "1.00"); r.StatusCode != http.StatusOK {
		t.Errorf("the same booking again: %s", r.Body)
	}
	over := credit("over", "0.01")
	servertest.Problem(t, over.Problem, http.StatusTooManyRequests, "token_limit_reached")
	if wait, err := strconv.Atoi(over.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 24*60*60 {
		t.Errorf("Retry-After is %d, %v; want the time until midnight", wait, err)
	}
	if after, err := servertest.Answered(b.API.GetBalance(t.Context(), a.ID)); err != nil || after.Value.Balance == before.Value.Balance {
		t.Errorf("the balance is still %s: %v", before.Value.Balance, err)
	}
	for range 2 {
		if r, err := servertest.Answered(limited.RevealKey(t.Context(), k.Value.ID)); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("reveal: %s, %v", r.Body, err)
		}
	}
	third, err := servertest.Answered(limited.RevealKey(t.Context(), k.Value.ID))
	servertest.Check(t, err)
	servertest.Problem(t, third.Problem, http.StatusTooManyRequests, "token_limit_reached")
	if r, err := servertest.Answered(b.API.RevealKey(t.Context(), k.Value.ID)); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("reveal with a token without limits: %s, %v", r.Body, err)
	}
	b.CheckLedger()
}

// Whatever shows a secret or many rows is in the audit log, each time.
func TestDisclosuresAreAudited(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	once := &adminclient.CreateKeyParams{IdempotencyKey: new("once")}
	var id string
	for range 2 {
		k, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, once, adminclient.KeyCreate{Name: "k"}))
		servertest.Check(t, err)
		id = k.Value.ID
	}
	for range 2 {
		_, err := servertest.Answered(b.API.RevealKey(t.Context(), id))
		servertest.Check(t, err)
	}
	b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/usage/export?account_id="+a.ID, "", "")
	b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/ledger/export", "", "")
	list, err := servertest.Answered(b.API.ListAudit(t.Context(), nil))
	servertest.Check(t, err)
	got := map[string]int{}
	for _, e := range list.Value.Data {
		got[e.Action]++
		if e.Action == "usage.export" && e.Object != a.ID {
			t.Errorf("the export has the object %s; want the account", e.Object)
		}
	}
	for action, want := range map[string]int{"key.create": 1, "key.create_replayed": 1, "key.reveal": 2, "usage.export": 1, "ledger.export": 1} {
		if got[action] != want {
			t.Errorf("%d entries %s; want %d", got[action], action, want)
		}
	}
}

// elsewhere is a verifier that knows one token.
type elsewhere struct{}

func (elsewhere) Verify(_ context.Context, text string) (admin.Principal, error) {
	switch text {
	case "a.b.c":
		return admin.Principal{Name: "oidc:alice", Scopes: []admin.Scope{admin.Cabinet}}, nil
	case "d.o.wn":
		return admin.Principal{}, fmt.Errorf("%w: no answer", admin.ErrUnavailable)
	default:
		return admin.Principal{}, admin.ErrUnauthenticated
	}
}

func TestIdentityProviderTokenIsAccepted(t *testing.T) {
	t.Parallel()
	b := startWith(t, elsewhere{})
	made, err := servertest.Answered(b.As("a.b.c").CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Example"}))
	servertest.Check(t, err)
	if made.StatusCode != http.StatusCreated {
		t.Fatalf("create: %s", made.Body)
	}
	forbidden, err := servertest.Answered(b.As("a.b.c").ListTokens(t.Context(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, forbidden.Problem, http.StatusForbidden, "insufficient_scope")
	bad, err := servertest.Answered(b.As("x.y.z").ListAccounts(t.Context(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, bad.Problem, http.StatusUnauthorized, "unauthenticated")
	down, err := servertest.Answered(b.As("d.o.wn").ListAccounts(t.Context(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, down.Problem, http.StatusServiceUnavailable, "identity_provider_unavailable")
	audit, err := servertest.Answered(b.API.ListAudit(t.Context(), nil))
	servertest.Check(t, err)
	if e := audit.Value.Data; len(e) != 1 || e[0].Actor != "oidc:alice" {
		t.Errorf("audit log: %s; want alice", audit.Body)
	}
}

// No secret is stored unencrypted in the database or written to the log by any operation: keys,
// tokens, credentials, and secrets in rejected requests.
func TestSecretsAreNeverLoggedOrStored(t *testing.T) {
	t.Parallel()
	b := start(t)
	secrets := []string{servertest.BootstrapToken, "sk-first", "sk-second", "sk-third", "sk-spare", "sk-wrong", "sk-marker"}
	a := b.Account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("once")}
	for range 2 {
		k, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
		servertest.Check(t, err)
		secrets = append(secrets, k.Value.Secret)
		shown, err := servertest.Answered(b.API.RevealKey(t.Context(), k.Value.ID))
		servertest.Check(t, err)
		secrets = append(secrets, shown.Value.Secret)
	}
	token, err := servertest.Answered(b.API.CreateToken(t.Context(), &adminclient.CreateTokenParams{IdempotencyKey: new("token")},
		adminclient.TokenCreate{Name: "t", Scopes: []adminclient.Scope{adminclient.ScopeOperator}}))
	servertest.Check(t, err)
	secrets = append(secrets, token.Value.Secret)
	b.Apply(servertest.SmallCatalog)
	rotated, err := servertest.Answered(b.API.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-second")}))
	servertest.Check(t, err)
	patched, err := servertest.Answered(b.API.UpdateCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredentialPatch{Secret: new("sk-third")}))
	servertest.Check(t, err)
	_, err = servertest.Answered(b.API.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "sk-wrong", Credentials: []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-wrong")}}}))
	servertest.Check(t, err)
	for _, body := range [][]byte{rotated.Body, patched.Body} {
		if strings.Contains(string(body), "sk-") {
			t.Errorf("an answer shows the credential: %s", body)
		}
	}
	b.everyOperation("sk-marker")
	haystack := b.Logs.String() + b.dump()
	for _, secret := range slices.Compact(secrets) {
		if at := strings.Index(haystack, secret); at >= 0 {
			t.Errorf("%q lies there: …%s…", secret, haystack[max(0, at-200):min(len(haystack), at+100)])
		}
	}
}

// everyOperation sends a text to each operation in every possible position.
func (b *server) everyOperation(marker string) {
	b.T.Helper()
	doc, err := servertest.Document()
	servertest.Check(b.T, err)
	for _, op := range doc.Operations {
		path := op.Path
		for strings.Contains(path, "{") {
			begin, end := strings.Index(path, "{"), strings.Index(path, "}")
			path = path[:begin] + marker + path[end+1:]
		}
		for _, body := range []string{`{"` + marker + `": 1}`, `{"name": ["` + marker + `"`, `"` + marker + `"`} {
			r, err := http.NewRequestWithContext(b.T.Context(), op.Method, b.URL+path+"?limit="+marker, strings.NewReader(body))
			servertest.Check(b.T, err)
			r.Header.Set("Authorization", "Bearer "+servertest.BootstrapToken)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("If-Match", marker)
			answer, err := http.DefaultClient.Do(r)
			servertest.Check(b.T, err)
			_ = answer.Body.Close()
			if answer.StatusCode < http.StatusBadRequest || answer.StatusCode >= http.StatusInternalServerError {
				b.T.Errorf("%s %s: got %d; want it refused", op.Method, path, answer.StatusCode)
			}
		}
	}
}

// dump returns every row of every table as text, with the content of binary columns.
func (b *server) dump() string {
	b.T.Helper()
	rows, err := b.DB.Pool().Query(b.T.Context(), `
		select c.table_name, c.column_name, c.data_type from information_schema.columns c
		join information_schema.tables t using (table_schema, table_name)
		where c.table_schema = 'public' and t.table_type = 'BASE TABLE' order by 1, 2`)
	servertest.Check(b.T, err)
	var queries []string
	for rows.Next() {
		var table, column, kind string
		servertest.Check(b.T, rows.Scan(&table, &column, &kind))
		value := fmt.Sprintf("%q::text", column)
		if kind == "bytea" {
			value = fmt.Sprintf("encode(%q, 'escape')", column)
		}
		queries = append(queries, fmt.Sprintf("select coalesce(string_agg(%s, ' '), '') from %q", value, table))
	}
	servertest.Check(b.T, rows.Err())
	if len(queries) < 100 {
		b.T.Fatalf("%d columns", len(queries))
	}
	var all strings.Builder
	for _, query := range queries {
		var text string
		servertest.Check(b.T, b.DB.Pool().QueryRow(b.T.Context(), query).Scan(&text))
		all.WriteString(text + "\n")
	}
	return all.String()
}
