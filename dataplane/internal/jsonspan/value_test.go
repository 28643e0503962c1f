package jsonspan

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestInt64AcceptsEverySpellingOfAnInteger(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw  string
		want int64
		ok   bool
	}{
		{"3", 3, true},
		{"-3", -3, true},
		{"3.0", 3, true},
		{"3e0", 3, true},
		{"3E+2", 300, true},
		{"30e-1", 3, true},
		{"1.50e1", 15, true},
		{"1.5e1", 15, true},
		{"120.00", 120, true},
		{"0.003e3", 3, true},
		{"100e-2", 1, true},
		{"-0", 0, true},
		{"0.000", 0, true},
		{"0e999999999999999999999", 0, true},
		{"9223372036854775807", 1<<63 - 1, true},
		{"9223372036854775808", 0, false},
		{"-9223372036854775808", -1 << 63, true},
		{"-9223372036854775809", 0, false},
		{"9223372036854775807.0", 1<<63 - 1, true},
		{"1e18", 1e18, true},
		{"1e19", 0, false},
		{"1e99999999999999999999", 0, false},
		{"1e-99999999999999999999", 0, false},
		{"1" + strings.Repeat("0", 500) + "e-500", 1, true},
		{"1.5", 0, false},
		{"0.1", 0, false},
		{"15e-1", 0, false},
		{`"3"`, 0, false},
		{"true", 0, false},
		{"null", 0, false},
		{"", 0, false},
		{"-", 0, false},
		{"1e", 0, false},
		{"3 ", 0, false},
	}
	for _, tt := range tests {
		got, ok := Int64([]byte(tt.raw))
		if got != tt.want || ok != tt.ok {
			t.Errorf("Int64(%s) = %d, %v; want %d, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzInt64(f *testing.F) {
	for _, seed := range []string{"3.0", "30e-1", "-0", "1e18", "9223372036854775807", "0.003e3", "1.5", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 40 {
			return
		}
		got, ok := Int64([]byte(raw))
		if !json.Valid([]byte(raw)) || strings.TrimSpace(raw) != raw || !strings.ContainsAny(raw[:1], "-0123456789") {
			if ok {
				t.Fatalf("Int64(%q) = %d; want refused", raw, got)
			}
			return
		}
		if _, exponent, found := strings.Cut(strings.ToLower(raw), "e"); found {
			if n, err := strconv.Atoi(exponent); err != nil || n > 100 || n < -100 {
				return // too long for big.Rat
			}
		}
		exact, parsed := new(big.Rat).SetString(raw)
		want := parsed && exact.IsInt() && exact.Num().IsInt64()
		if ok != want || ok && got != exact.Num().Int64() {
			t.Fatalf("Int64(%q) = %d, %v; want %v, %v", raw, got, ok, exact, want)
		}
	})
}

func TestTextDecodesEscapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw, want string
		ok        bool
	}{
		{`""`, "", true},
		{`"plain é"`, "plain é", true},
		{`"a\"\\\/\b\f\n\r\tz"`, "a\"\\/\b\f\n\r\tz", true},
		{`"\u00e9\ud83d\ude00"`, "é😀", true},
		{`"\ud83d"`, "\ufffd", true},
		{`"\ud83d\u0041"`, "\ufffdA", true},
		{`"\ud83dx"`, "\ufffdx", true},
		{`"\ude00\ud83d"`, "\ufffd\ufffd", true},
		{`12`, "", false},
		{`"`, "", false},
		{``, "", false},
	}
	for _, tt := range tests {
		got, ok := Text(nil, []byte(tt.raw))
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("Text(%s) = %q, %v; want %q, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"plain", `\ud83d\ude00`, `\ud83d\ud83d\ude00`, `\n\"`, `\ud83d\n`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, inside string) {
		raw := []byte(`"` + inside + `"`)
		got, ok := Text(nil, raw) // of any text, without a panic
		var want string
		if json.Unmarshal(raw, &want) != nil || !utf8.ValidString(inside) {
			return
		}
		if !ok || string(got) != want {
			t.Fatalf("Text(%q) = %q, %v; want %q", raw, got, ok, want)
		}
		var back string
		if err := json.Unmarshal(AppendString(nil, want), &back); err != nil || back != want {
			t.Fatalf("AppendString(%q) reads as %q, %v", want, back, err)
		}
	})
}

func TestBoolAndKindOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw       string
		kind      Kind
		value, ok bool
	}{
		{"true", KindTrue, true, true},
		{"false", KindFalse, false, true},
		{"null", KindNull, false, false},
		{`"true"`, KindString, false, false},
		{"-1", KindNumber, false, false},
		{"[]", KindArray, false, false},
		{"{}", KindObject, false, false},
		{"", KindInvalid, false, false},
		{"x", KindInvalid, false, false},
	}
	for _, tt := range tests {
		value, ok := Bool([]byte(tt.raw))
		if kind := KindOf([]byte(tt.raw)); kind != tt.kind || value != tt.value || ok != tt.ok {
			t.Errorf("%q: kind %v, Bool %v, %v; want %v, %v, %v", tt.raw, kind, value, ok, tt.kind, tt.value, tt.ok)
		}
	}
}
