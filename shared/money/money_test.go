package money

import (
	"errors"
	"math"
	"testing"
)

func TestParseIsTheInverseOfString(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     Nano
		text     string
	}{
		{"cents", "12.34", 12_340_000_000, "12.34"},
		{"whole", "5", 5 * Unit, "5.00"},
		{"minimum", "0.000000001", 1, "0.000000001"},
		{"negative", "-0.5", -500_000_000, "-0.50"},
		{"zero", "0", 0, "0.00"},
		{"maximum", "9223372036.854775807", math.MaxInt64, "9223372036.854775807"},
	}
	for _, tt := range tests {
		got, err := Parse(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("%s: Parse(%q) = %d, %v; want %d", tt.name, tt.in, got, err, tt.want)
		}
		if got.String() != tt.text {
			t.Errorf("%s: String() = %q; want %q", tt.name, got.String(), tt.text)
		}
	}
	if got := Nano(math.MinInt64).String(); got != "-9223372036.854775808" {
		t.Errorf("the minimum is formatted as %q", got)
	}
}

func TestParseRejectsOtherTexts(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "-", ".", "1.", ".5", "1,5", "1e3", "+1", "--1", "0.0000000001", "9223372036.854775808", "99999999999999999999", "1 ", "٣"} {
		if got, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %d; want an error", in, got)
		}
	}
}

func TestSumDetectsOverflow(t *testing.T) {
	t.Parallel()
	if got, err := Sum(1, -2, 4); got != 3 || err != nil {
		t.Errorf("Sum = %d, %v; want 3", got, err)
	}
	for _, pair := range [][2]Nano{{math.MaxInt64, 1}, {math.MinInt64, -1}} {
		if _, err := Add(pair[0], pair[1]); !errors.Is(err, ErrOverflow) {
			t.Errorf("Add(%d, %d): %v; want ErrOverflow", pair[0], pair[1], err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12.34")
	f.Add("-0.000000001")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(n.String()); err != nil || again != n {
			t.Errorf("Parse(%q) = %d, parsed back as %d, %v", s, n, again, err)
		}
	})
}
