package price

import (
	"reflect"
	"strings"
	"testing"
)

// Whoever adds a kind of usage adds it to the type, to the table and to Counts.
func TestKindsAreTheCountsOfAUsage(t *testing.T) {
	t.Parallel()
	u := Usage{}
	v, n, counts := reflect.ValueOf(&u).Elem(), 0, u.Counts()
	for i := range v.NumField() {
		if v.Field(i).Kind() != reflect.Int64 {
			continue
		}
		if n == len(Kinds) {
			t.Fatalf("%s has no kind", v.Type().Field(i).Name)
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if string(Kinds[n].Line) != name || counts[n] != v.Field(i).Addr().Interface() {
			t.Errorf("%s: kind %d is %s", name, n, Kinds[n].Line)
		}
		n++
	}
	if n != len(Kinds) {
		t.Errorf("%d counts have %d kinds", n, len(Kinds))
	}
}

// The classes of kinds agree with what the rest of the package computes.
func TestClassesOfKinds(t *testing.T) {
	t.Parallel()
	for i := range Kinds {
		k, u := &Kinds[i], &Usage{}
		*u.Counts()[i] = 1
		if want := k.IsInput() && !k.IsPart; (u.TotalInput() == 1) != want {
			t.Errorf("%s: total input %d", k.Line, u.TotalInput())
		}
		if (u.CacheWrite() == 1) != strings.HasPrefix(string(k.Line), "cache_write") {
			t.Errorf("%s: cache writes %d", k.Line, u.CacheWrite())
		}
		if tokens := k.Unit == Tokens; tokens != (k.IsInput() || k.IsOutput()) || k.IsPart && k.Fallback == "" {
			t.Errorf("%s: unit %d, input %t, output %t", k.Line, k.Unit, k.IsInput(), k.IsOutput())
		}
	}
}
