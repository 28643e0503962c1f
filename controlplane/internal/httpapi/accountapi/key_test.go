package accountapi_test

import (
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

func TestKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "5.00")
	if err := apikey.Check(k.Secret); err != nil || !b.Hasher.HasMAC(k.Secret) || !strings.HasSuffix(k.Secret, k.Hint) {
		t.Errorf("secret %q with hint %q: %v", k.Secret, k.Hint, err)
	}
	want := adminclient.Key{
		ID: k.ID, AccountID: a.ID, Name: "a key", Status: adminclient.KeyStatusActive, Hint: k.Hint, SpendLimit: new("5.00"),
		Models: []string{}, Networks: []string{}, Spent: "0.00", Reserved: "0.00", Revealable: true, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
	}
	got, err := servertest.Answered(b.API.GetKey(t.Context(), k.ID))
	servertest.Check(t, err)
	if diff := cmp.Diff(&want, got.Value); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	listed, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	if diff := cmp.Diff([]adminclient.Key{want}, listed.Value.Data); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	revealed, err := servertest.Answered(b.API.RevealKey(t.Context(), k.ID))
	servertest.Check(t, err)
	if revealed.Value.Secret != k.Secret {
		t.Errorf("revealed %q; want %q", revealed.Value.Secret, k.Secret)
	}
	b.CheckLedger()
}

// What a key may be used for is kept, changed one by one, announced to proxies, and in the record that they load.
func TestRulesOfAKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	made, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{
		Name: "shop", Description: new("the shop"), Metadata: &adminclient.Metadata{"team": "shop"}, ExpiresAt: &expires, Paused: new(true),
		Models: []string{"m-*", "exact"}, Networks: []string{"192.0.2.7", "10.1.2.3/8"},
	}))
	servertest.Check(t, err)
	if made.Value == nil {
		t.Fatalf("got %+v", made.Problem)
	}
	id := made.Value.ID
	got, err := servertest.Answered(b.API.GetKey(t.Context(), id))
	servertest.Check(t, err)
	k := got.Value
	if k.Status != adminclient.KeyStatusPaused || !k.Paused || !k.ExpiresAt.Equal(expires) || *k.Description != "the shop" || (*k.Metadata)["team"] != "shop" ||
		!slices.Equal(k.Models, []string{"m-*", "exact"}) || !slices.Equal(k.Networks, []string{"192.0.2.7/32", "10.0.0.0/8"}) {
		t.Errorf("got %+v", k)
	}
	record := func() wire.KeyRules {
		t.Helper()
		hash := b.Hasher.Hash(made.Value.Secret)
		loaded, err := leasestore.NewLeases(b.DB).LoadKeys(t.Context(), []apikey.Hash{hash})
		servertest.Check(t, err)
		return loaded[hash].Record.Rules
	}
	want := wire.KeyRules{
		ExpiresMS: expires.UnixMilli(), Paused: true, Models: []string{"m-*", "exact"},
		Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("10.0.0.0/8")},
	}
	if diff := cmp.Diff(want, record(), cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}

	before := len(b.Announcer.Told)
	patch := func(p adminclient.KeyPatch) *adminclient.Key {
		t.Helper()
		got, err := servertest.Answered(b.API.UpdateKey(t.Context(), id, nil, p))
		servertest.Check(t, err)
		if got.Value == nil {
			t.Fatalf("got %+v", got.Problem)
		}
		return got.Value
	}
	if k := patch(adminclient.KeyPatch{Description: new("only words")}); *k.Description != "only words" || !k.Paused || len(k.Models) != 2 {
		t.Errorf("description: got %+v", k)
	}
	if n := len(b.Announcer.Told) - before; n != 0 {
		t.Errorf("a new description was announced %d times", n)
	}
	if k := patch(adminclient.KeyPatch{
		Paused: new(false), ExpiresAt: optional.Null[time.Time](), Models: optional.Of([]string{}), Networks: optional.Of([]string{}),
	}); k.Status != adminclient.KeyStatusActive || k.ExpiresAt != nil || len(k.Models)+len(k.Networks) != 0 {
		t.Errorf("all removed: got %+v", k)
	}
	if n := len(b.Announcer.Told) - before; n != 1 {
		t.Errorf("the rules were announced %d times; want once", n)
	}
	if got := record(); !reflect.DeepEqual(got, wire.KeyRules{}) {
		t.Errorf("record after all rules were removed: %+v", got)
	}

	refused, err := servertest.Answered(b.API.UpdateKey(t.Context(), id, nil, adminclient.KeyPatch{
		ExpiresAt: optional.Of(time.Now().Add(-time.Minute)), Models: optional.Of([]string{"a*b", ""}), Networks: optional.Of([]string{"nowhere"}),
	}))
	servertest.Check(t, err)
	var fields []string
	for _, e := range refused.Problem.Errors {
		fields = append(fields, e.Field)
	}
	if !slices.Equal(slices.Sorted(slices.Values(fields)), []string{"expires_at", "models[0]", "models[1]", "networks[0]"}) {
		t.Errorf("refused: got %+v", refused.Problem)
	}
	b.CheckLedger()
}

// The last use is the time of the last settled request, in what each operation answers.
func TestKeySaysItsLastUse(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	k, idle := b.Key(a.ID, ""), b.Key(a.ID, "")
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	p := b.Proxy("proxy-1")
	p.Report(k, at, b.Sheet("demo-chat"), price.Usage{})
	p.Report(k, at.Add(-time.Minute), b.Sheet("demo-chat"), price.Usage{})

	listed, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	got, err := servertest.Answered(b.API.GetKey(t.Context(), k.ID))
	servertest.Check(t, err)
	renamed, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{Name: new("renamed")}))
	servertest.Check(t, err)
	for name, at2 := range map[string]*time.Time{"list": listed.Value.Data[0].LastUsedAt, "get": got.Value.LastUsedAt, "update": renamed.Value.LastUsedAt} {
		if at2 == nil || !at2.Equal(at) {
			t.Errorf("%s: the last use is %v; want %s", name, at2, at)
		}
	}
	if listed.Value.Data[1].ID != idle.ID || listed.Value.Data[1].LastUsedAt != nil {
		t.Errorf("a key without a request: %+v", listed.Value.Data[1])
	}
}

// The bound of concurrent requests of a key is a pool of its own, in the record that proxies load, and counts as one limit.
func TestSlotsOfAKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(50)
	made, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "few", MaxConcurrentRequests: new(7)}))
	servertest.Check(t, err)
	k, free := made.Value, b.Key(a.ID, "")
	pool := func(secret string) wire.PoolID {
		t.Helper()
		hash := b.Hasher.Hash(secret)
		loaded, err := leasestore.NewLeases(b.DB).LoadKeys(t.Context(), []apikey.Hash{hash})
		servertest.Check(t, err)
		return loaded[hash].Record.KeySlotsPool
	}
	slots := func(of string) (total string) {
		t.Helper()
		pools, err := servertest.Answered(b.API.ListAccountPools(t.Context(), a.ID, nil))
		servertest.Check(t, err)
		for _, p := range pools.Value.Data {
			if p.Kind == adminclient.PoolKindSlots && p.KeyID != nil && *p.KeyID == of {
				total = p.Total
			}
		}
		return total
	}
	if pool(k.Secret) == 0 || pool(free.Secret) != 0 || *k.MaxConcurrentRequests != 7 || slots(k.ID) != "7" {
		t.Errorf("created: %+v, pools %d and %d, %s slots", k.MaxConcurrentRequests, pool(k.Secret), pool(free.Secret), slots(k.ID))
	}
	for _, step := range []struct {
		name  string
		to    adminclient.KeyPatch
		of    *adminclient.IssuedKey
		want  *int
		pool  bool
		told  int
		total string
	}{
		{"lowered", adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(3)}, k, new(3), true, 1, "3"},
		{"left alone", adminclient.KeyPatch{Name: new("renamed")}, k, new(3), true, 0, "3"},
		{"removed", adminclient.KeyPatch{MaxConcurrentRequests: optional.Null[int]()}, k, nil, false, 1, "3"},
		{"set again", adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(0)}, k, new(0), true, 1, "0"},
		{"set for the first time", adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(5)}, free, new(5), true, 1, "5"},
	} {
		before := len(b.Announcer.Told)
		r, err := servertest.Answered(b.API.UpdateKey(t.Context(), step.of.ID, nil, step.to))
		servertest.Check(t, err)
		if r.Value == nil {
			t.Fatalf("%s: %+v", step.name, r.Problem)
		}
		if diff := cmp.Diff(step.want, r.Value.MaxConcurrentRequests); diff != "" || (pool(step.of.Secret) != 0) != step.pool || slots(step.of.ID) != step.total {
			t.Errorf("%s: pool %d, %s slots (-want +got):\n%s", step.name, pool(step.of.Secret), slots(step.of.ID), diff)
		}
		if n := len(b.Announcer.Told) - before; n != step.told {
			t.Errorf("%s: announced %d times; want %d", step.name, n, step.told)
		}
	}

	wrong, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(-1)}))
	servertest.Check(t, err)
	servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")

	forever := adminclient.LimitPeriod{Period: adminclient.LimitPeriodPeriodForever}
	limit := func() *adminclient.Problem {
		return problemOf(b.API.CreateLimit(t.Context(), a.ID, nil, adminclient.LimitCreate{Amount: "1", Window: forever}))
	}
	for range 6 {
		if p := limit(); p != nil {
			t.Fatalf("limit: %+v", p)
		}
	}
	servertest.Problem(t, limit(), http.StatusConflict, "too_many_limits")
	for _, of := range []string{k.ID, free.ID} {
		_, err := servertest.Answered(b.API.UpdateKey(t.Context(), of, nil, adminclient.KeyPatch{MaxConcurrentRequests: optional.Null[int]()}))
		servertest.Check(t, err)
	}
	if p := limit(); p != nil {
		t.Errorf("the seventh limit, without slots of keys: %+v", p)
	}
	servertest.Problem(t, problemOf(b.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{MaxConcurrentRequests: optional.Of(1)})), http.StatusConflict, "too_many_limits")
	servertest.Problem(t, problemOf(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "n", MaxConcurrentRequests: new(1)})), http.StatusConflict, "too_many_limits")
	b.CheckLedger()
}

func TestKeyNotFound(t *testing.T) {
	t.Parallel()
	b := start(t)
	id := "key_00000000000070008000000000000000"
	got, err := servertest.Answered(b.API.GetKey(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, got.Problem, http.StatusNotFound, "not_found")
	patched, err := servertest.Answered(b.API.UpdateKey(t.Context(), id, nil, adminclient.KeyPatch{Name: new("x")}))
	servertest.Check(t, err)
	servertest.Problem(t, patched.Problem, http.StatusNotFound, "not_found")
	revealed, err := servertest.Answered(b.API.RevealKey(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, revealed.Problem, http.StatusNotFound, "not_found")
	revoked, err := servertest.Answered(b.API.RevokeKey(t.Context(), id, nil))
	servertest.Check(t, err)
	servertest.Problem(t, revoked.Problem, http.StatusNotFound, "not_found")
	owner := "acc_00000000000070008000000000000000"
	made, err := servertest.Answered(b.API.CreateKey(t.Context(), owner, nil, adminclient.KeyCreate{Name: "x"}))
	servertest.Check(t, err)
	servertest.Problem(t, made.Problem, http.StatusNotFound, "not_found")
	listed, err := servertest.Answered(b.API.ListKeys(t.Context(), owner, nil))
	servertest.Check(t, err)
	servertest.Problem(t, listed.Problem, http.StatusNotFound, "not_found")
}

func TestKeyLimit(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	for _, step := range []struct {
		name      string
		patch     adminclient.KeyPatch
		limit     *string
		announced int
	}{
		{"set", adminclient.KeyPatch{SpendLimit: optional.Of("2.50")}, new("2.50"), 1},
		{"set to the same", adminclient.KeyPatch{SpendLimit: optional.Of("2.5")}, new("2.50"), 0},
		{"left alone", adminclient.KeyPatch{Name: new("renamed")}, new("2.50"), 0},
		{"lowered to nothing", adminclient.KeyPatch{SpendLimit: optional.Of("0.00")}, new("0.00"), 1},
		{"removed", adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, nil, 1},
		{"removed again", adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, nil, 0},
	} {
		before := len(b.Announcer.Told)
		r, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, nil, step.patch))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", step.name, r.Problem)
		}
		if diff := cmp.Diff(step.limit, r.Value.SpendLimit); diff != "" {
			t.Errorf("%s: limit (-want +got):\n%s", step.name, diff)
		}
		told := b.Announcer.Told[before:]
		if len(told) != step.announced || (len(told) == 1 && (told[0].Kind != wire.KeyUpdated || told[0].KeyHash != b.Hasher.Hash(k.Secret))) {
			t.Errorf("%s: announced %+v; want %d changes of the key", step.name, told, step.announced)
		}
		b.CheckLedger()
	}
	for _, limit := range []string{"-1.00", "1.0000000001", "much", "2000000000.00"} {
		r, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{SpendLimit: optional.Of(limit)}))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	// The process of dp-2 before it was started again has confirmed the revocation, and the present one has not.
	b.Announcer.Answer = propagation.Confirmation{
		Bound: 20 * time.Second, Confirmed: []session.ActiveSession{{Session: 5, Proxy: "dp-1"}, {Session: 6, Proxy: "dp-2"}},
		Waiting: []session.ActiveSession{{Session: 7, Proxy: "dp-2"}},
	}
	began := time.Now()
	waiting, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	first := waiting.Value
	if first == nil || first.Effective || !slices.Equal(first.ConfirmedBy, []string{"dp-1"}) || !slices.Equal(first.WaitingFor, []string{"dp-2"}) || first.Bound == nil || first.Bound.Before(began.Add(20*time.Second)) {
		t.Fatalf("revoke with a proxy missing: %s", waiting.Body)
	}
	b.Announcer.Answer = propagation.Confirmation{Effective: true, Confirmed: []session.ActiveSession{{Session: 6, Proxy: "dp-1"}, {Session: 7, Proxy: "dp-2"}}}
	done, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	if done.StatusCode != http.StatusOK || !done.Value.Effective || !slices.Equal(done.Value.ConfirmedBy, []string{"dp-1", "dp-2"}) || done.Value.Revision != first.Revision || done.Value.Bound != nil {
		t.Errorf("revoke again: %s", done.Body)
	}
	if len(b.Announcer.Told) != 2 || b.Announcer.Told[0] != b.Announcer.Told[1] || b.Announcer.Told[0].Kind != wire.KeyRevoked {
		t.Errorf("announced %+v; want the same revocation twice", b.Announcer.Told)
	}
	patched, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, nil, adminclient.KeyPatch{Name: new("x")}))
	servertest.Check(t, err)
	servertest.Problem(t, patched.Problem, http.StatusConflict, "key_revoked")
	got, err := servertest.Answered(b.API.GetKey(t.Context(), k.ID))
	servertest.Check(t, err)
	if got.Value.Status != adminclient.KeyStatusRevoked || got.Value.RevokedAt == nil {
		t.Errorf("read back: %s", got.Body)
	}
}

func TestRevokeWithoutProxiesIsEffective(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	b.Announcer.Err = errors.New("the bus is away")
	r, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusAccepted || r.Value.Effective || r.Value.Bound != nil {
		t.Errorf("revoke without bus: %s", r.Body)
	}
}

// The second import has keys that exist, one that is new, one that is twice in it, and the same name for all.
func TestImportCreatesOnlyKeysThatDoNotExist(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(1), b.Account(1)
	hashes := make([]string, 4)
	for i := range hashes {
		hashes[i] = b.Hasher.Hash(apikey.Generate()).String()
	}
	imported := func(keys ...adminclient.ImportedKey) []adminclient.Key {
		t.Helper()
		r, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: keys}))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusCreated || len(r.Value.Data) != len(keys) {
			t.Fatalf("import: %s", r.Body)
		}
		return r.Value.Data
	}
	first := imported(
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[0]},
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[1], ExternalID: new("one"), SpendLimit: new("0.00")},
	)
	second := imported(
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[1]},
		adminclient.ImportedKey{AccountID: other.ID, Name: "key", Hash: hashes[2], SpendLimit: new("2.50")},
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[0]},
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[3]},
		adminclient.ImportedKey{AccountID: a.ID, Name: "key", Hash: hashes[3]},
	)
	if second[4].ID != second[3].ID {
		t.Errorf("got %s and %s for one hash; want one key", second[3].ID, second[4].ID)
	}
	if second[0].ID != first[1].ID || second[2].ID != first[0].ID {
		t.Errorf("got %s and %s; want the keys that exist, %s and %s", second[0].ID, second[2].ID, first[1].ID, first[0].ID)
	}
	for i, want := range []*string{new("0.00"), new("2.50"), nil, nil} {
		got := second[i].SpendLimit
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("limit of key %d: got %v; want %v", i, got, want)
		}
	}
	log, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Action: new("key.create")}))
	servertest.Check(t, err)
	if n := len(log.Value.Data); n != 4 {
		t.Errorf("got %d entries of created keys in the audit log; want 4", n)
	}
	taken, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "key", Hash: b.Hasher.Hash(apikey.Generate()).String()},
		{AccountID: a.ID, Name: "key", Hash: b.Hasher.Hash(apikey.Generate()).String(), ExternalID: new("one")},
	}}))
	servertest.Check(t, err)
	servertest.Problem(t, taken.Problem, http.StatusConflict, "external_id_taken")
	list, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	if n := len(list.Value.Data); n != 3 {
		t.Errorf("the account has %d keys after a refused import; want 3", n)
	}
	b.CheckLedger()
}

func TestImport(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, other := b.Account(1), b.Account(1)
	text := apikey.Generate()
	hash := b.Hasher.Hash(text).String()
	r, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "oldest", Hash: hash, Hint: new(text[len(text)-4:]), SpendLimit: new("1.00")},
	}}))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusCreated || len(r.Value.Data) != 1 || r.Value.Data[0].Revealable {
		t.Fatalf("import: %s", r.Body)
	}
	id := r.Value.Data[0].ID
	revealed, err := servertest.Answered(b.API.RevealKey(t.Context(), id))
	servertest.Check(t, err)
	servertest.Problem(t, revealed.Problem, http.StatusConflict, "not_revealable")

	again, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "oldest", Hash: hash},
	}}))
	servertest.Check(t, err)
	if again.StatusCode != http.StatusCreated || again.Value.Data[0].ID != id {
		t.Errorf("import again: %s; want key %s", again.Body, id)
	}
	stolen, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: other.ID, Name: "stolen", Hash: hash},
	}}))
	servertest.Check(t, err)
	servertest.Problem(t, stolen.Problem, http.StatusConflict, "hash_taken")
	invalid, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: "nobody", Name: "x", Hash: "zz", SpendLimit: new("?")},
	}}))
	servertest.Check(t, err)
	servertest.Problem(t, invalid.Problem, http.StatusBadRequest, "invalid_input")
	if n := len(invalid.Problem.Errors); n != 3 {
		t.Errorf("got %d field errors; want 3: %v", n, invalid.Problem)
	}
	b.CheckLedger()
}

// A portal shows the keys that work, and those that do not. A key that is several things is one of them only.
func TestKeysAreListedByStatus(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	create := func(name string) string {
		made, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: name}))
		servertest.Check(t, err)
		return made.Value.ID
	}
	change := func(id, what string) {
		_, err := b.DB.Pool().Exec(t.Context(), "update api_keys set "+what+" where name = $1", id)
		servertest.Check(t, err)
	}
	for _, name := range []string{"active", "later", "paused", "expired", "both", "revoked"} {
		create(name)
	}
	change("later", "expires_at = now() + interval '1 hour'")
	change("paused", "paused = true")
	change("expired", "expires_at = now() - interval '1 hour'")
	change("both", "expires_at = now() - interval '1 hour', paused = true")
	change("revoked", "expires_at = now() - interval '1 hour', paused = true, revoked_at = now()")

	for status, want := range map[adminclient.KeyStatus][]string{
		adminclient.KeyStatusActive:  {"active", "later"},
		adminclient.KeyStatusPaused:  {"paused"},
		adminclient.KeyStatusExpired: {"expired", "both"},
		adminclient.KeyStatusRevoked: {"revoked"},
	} {
		found, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, &adminclient.ListKeysParams{Status: &status}))
		servertest.Check(t, err)
		var got []string
		for _, k := range found.Value.Data {
			if got = append(got, k.Name); k.Status != status {
				t.Errorf("%s: the key %s is %s", status, k.Name, k.Status)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
	}
	unknown := adminclient.ListKeysParams{Status: new(adminclient.KeyStatus("gone"))}
	servertest.Problem(t, problemOf(b.API.ListKeys(t.Context(), a.ID, &unknown)), http.StatusBadRequest, "invalid_input")
}
