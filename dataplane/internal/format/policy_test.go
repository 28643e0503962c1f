package format

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/shared/catalogkv"
)

func TestWithChangesOnlyOverriddenRows(t *testing.T) {
	t.Parallel()
	base := NewPolicy(
		Param{Name: "a", Action: Forward, Types: String, Required: true},
		Param{Name: "tier", Action: Force, Value: `"default"`, Allow: []string{`"auto"`}},
		Param{Name: "n", Action: Clamp, Min: 1, Max: 10},
		Param{Name: "deep", Action: Forward, Closed: true},
		Param{Name: "deep.mode", Action: Forward, Deny: []string{`"pro"`}},
	)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	model := catalogkv.Params{
		"tier":      {Policy: "force", Value: raw(`"flex"`)},
		"n":         {Policy: "clamp", Value: raw(`4`)},
		"deep.mode": {Policy: "forward"},
		"new":       {Policy: "forward"},
		"odd":       {Policy: "let it through"},
	}
	route := catalogkv.Params{
		"tier": {Policy: "reject", Allow: []json.RawMessage{raw(`"auto"`)}},
		"a":    {Policy: "drop"},
	}
	got := base.With(model, nil, route)
	want := []Param{
		{Name: "a", Action: Drop, Types: String, Required: true},
		{Name: "deep", Action: Forward, Closed: true},
		{Name: "deep.mode", Action: Forward},
		{Name: "n", Action: Clamp, Value: "4", Min: 1, Max: 4},
		{Name: "new", Action: Forward},
		{Name: "odd", Action: Reject},
		{Name: "tier", Action: Reject, Allow: []string{`"auto"`}},
	}
	var rows []Param
	for _, name := range got.Names() {
		rows = append(rows, got.Row(name))
	}
	if diff := cmp.Diff(want, rows, cmpopts.IgnoreUnexported(Param{})); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if row := base.Row("tier"); row.Action != Force || row.Value != `"default"` {
		t.Errorf("the base has changed: %+v", row)
	}
	if base.With() != base || base.With(nil, catalogkv.Params{}) != base {
		t.Error("a policy without overrides is compiled again")
	}
	if row := base.Row("none"); row.Action != Reject {
		t.Errorf("a parameter without a row has action %v; want Reject", row.Action)
	}
}

func TestClampedMovesIntoBounds(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][2]int64{
		`7`: {1, 7}, `{"max":3}`: {1, 3}, `{"min":2,"max":3}`: {2, 3}, `"x"`: {1, 10}, ``: {1, 10},
	} {
		low, high := clampBounds(json.RawMessage(value), 1, 10)
		if low != want[0] || high != want[1] {
			t.Errorf("%s: got %d to %d; want %v", value, low, high, want)
		}
	}
}

func TestSameValueComparesScalarsByMeaning(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		want bool
	}{
		{`"auto"`, `"auto"`, true},
		{`"auto"`, `"\u0061uto"`, true},
		{`"auto"`, `"Auto"`, false},
		{`0`, `0.0`, true},
		{`0`, `1`, false},
		{`0`, `0.5`, false},
		{`0`, `"0"`, false},
		{`false`, `false`, true},
		{`false`, `true`, false},
		{`{"a":[1]}`, `{ "a": [1] }`, true},
		{`{"a":[1]}`, `{"a":[2]}`, false},
	}
	for _, tt := range tests {
		if got := sameValue([]byte(tt.a), []byte(tt.b)); got != tt.want {
			t.Errorf("%s and %s: got %v", tt.a, tt.b, got)
		}
	}
}

func TestIntegerSaturates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw  string
		want int64
		ok   bool
	}{
		{`3`, 3, true},
		{`3.0`, 3, true},
		{`30e-1`, 3, true},
		{`-2`, -2, true},
		{`2.5`, 0, false},
		{`25e-1`, 0, false},
		{`99999999999999999999`, math.MaxInt64, true},
		{`-99999999999999999999`, math.MinInt64, true},
		{`1e400`, math.MaxInt64, true},
		{`-1.5e400`, math.MinInt64, true},
		{`1e+99999999999999999999`, math.MaxInt64, true},
		{`1e-400`, 0, false},
		{`99999999999999999999.5`, 0, false},
		{`"3"`, 0, false},
		{`true`, 0, false},
		{`null`, 0, false},
		{``, 0, false},
	}
	for _, tt := range tests {
		if got, ok := integer([]byte(tt.raw)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: got %d, %v; want %d, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}
