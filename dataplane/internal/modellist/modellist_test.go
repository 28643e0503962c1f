package modellist

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var now = time.Unix(1_800_000_000, 0)

// newSnapshot returns a catalog with models that are public, one granted to acc_granted, and a price change in an hour.
func newSnapshot(tb testing.TB, models int) *catalog.Snapshot {
	tb.Helper()
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		tb.Fatal(err)
	}
	store := catalog.New(fleet)
	set := func(kind, name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			tb.Fatal(err)
		}
		store.Set(kind, name, data)
	}
	set(subject.KindProvider, "prv", catalogkv.Provider{
		ID: "prv", Enabled: true, Credentials: []catalogkv.Credential{{ID: "crd", Sealed: fleet.Seal([]byte("s"), catalogkv.CredentialContext("crd"))}},
	})
	for i := range models {
		id := fmt.Sprint("model-", i)
		sheet := func(version, rate int64) price.Sheet {
			return price.Sheet{Version: version, Rates: price.Rates{price.Input: rate, price.Output: rate}}
		}
		set(subject.KindModel, id, catalogkv.Model{
			ID: id, Type: catalogkv.Text, Enabled: true, Public: i > 0,
			Prices: []catalogkv.ScheduledPrice{{Sheet: sheet(1, 1_000_000_000)}, {EffectiveUnix: now.Add(time.Hour).Unix(), Sheet: sheet(2, 3_000_000_000)}},
			Routes: []catalogkv.Route{{ID: "rte_" + id, Provider: "prv", Enabled: true, Formats: []catalogkv.Format{catalogkv.Chat}}},
		})
	}
	set(subject.KindGrant, "acc_granted", catalogkv.Grant{AccountID: "acc_granted", Models: []string{"model-0"}})
	set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: 1})
	if err := store.Apply(); err != nil {
		tb.Fatal(err)
	}
	return store.Snapshot()
}

func of(t *testing.T, l *Lists, s *catalog.Snapshot, key wire.KeyRecord, at time.Time) *List {
	t.Helper()
	list, err := l.Of(s, &key, at)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestListIsEncodedOncePerSnapshotAndAccount(t *testing.T) {
	t.Parallel()
	var l Lists
	s := newSnapshot(t, 3)
	public := of(t, &l, s, wire.KeyRecord{}, now)
	if of(t, &l, s, wire.KeyRecord{}, now) != public || of(t, &l, s, wire.KeyRecord{AccountID: "acc_1"}, now) != public {
		t.Error("the public list was encoded again")
	}
	granted := of(t, &l, s, wire.KeyRecord{AccountID: "acc_granted"}, now)
	if granted == public || !strings.Contains(string(granted.Body), "model-0") || strings.Contains(string(public.Body), "model-0") {
		t.Errorf("public list %s, list with a grant %s", public.Body, granted.Body)
	}
	discount := wire.KeyRecord{AccountID: "acc_1", PriceMultiplier: 500_000}
	half := of(t, &l, s, discount, now)
	if !strings.Contains(string(half.Body), `"input_per_million_tokens":"0.50"`) {
		t.Errorf("with a discount: %s", half.Body)
	}
	discount.ModelMultipliers = map[string]price.Multiplier{"model-1": 2_000_000}
	if changed := of(t, &l, s, discount, now); !strings.Contains(string(changed.Body), `"input_per_million_tokens":"2.00"`) || changed.ETag == half.ETag {
		t.Errorf("after a change of the multipliers: %s", changed.Body)
	}
	if other := of(t, &l, newSnapshot(t, 2), wire.KeyRecord{}, now); strings.Contains(string(other.Body), "model-2") {
		t.Errorf("of another snapshot: %s", other.Body)
	}
}

func TestListEndsWithItsPrices(t *testing.T) {
	t.Parallel()
	var l Lists
	s := newSnapshot(t, 2)
	before := of(t, &l, s, wire.KeyRecord{}, now)
	if of(t, &l, s, wire.KeyRecord{}, now.Add(time.Hour-1)) != before {
		t.Error("the list was encoded again before the prices changed")
	}
	if after := of(t, &l, s, wire.KeyRecord{}, now.Add(time.Hour)); !strings.Contains(string(after.Body), `"3.00"`) {
		t.Errorf("after the change of the prices: %s", after.Body)
	}
}

func TestCachedListsAreBounded(t *testing.T) {
	t.Parallel()
	var l Lists
	s := newSnapshot(t, 1)
	for i := range 3 * maxBytes >> 20 {
		l.put(s, fmt.Sprint("acc_", i), &cachedList{List: List{Body: make([]byte, 1<<20)}})
	}
	sum := 0
	for _, c := range l.cached {
		sum += len(c.Body)
	}
	if sum != l.bytes || sum > maxBytes {
		t.Errorf("%d bytes are cached, %d counted; want at most %d", sum, l.bytes, maxBytes)
	}
}

func TestIfNoneMatch(t *testing.T) {
	t.Parallel()
	l := List{ETag: [1]string{`"abc"`}}
	for value, want := range map[string]bool{
		`"abc"`: true, `W/"abc"`: true, `"x", "abc"`: true, "*": true, `"abcd"`: false, "abc": false, "": false, `"x"`: false,
	} {
		if got := l.Matches([]string{value}); got != want {
			t.Errorf("%q: got %v; want %v", value, got, want)
		}
	}
	if l.Matches(nil) {
		t.Error("a request without the header matches")
	}
}

func BenchmarkListOf300Models(b *testing.B) {
	s := newSnapshot(b, 300)
	b.Run("cached", func(b *testing.B) {
		var l Lists
		b.ReportAllocs()
		for b.Loop() {
			_, _ = l.Of(s, &wire.KeyRecord{}, now)
		}
	})
	b.Run("encoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = encode(s, &wire.KeyRecord{}, now)
		}
	})
}
