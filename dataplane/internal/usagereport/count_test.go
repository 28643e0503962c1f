package usagereport

import "testing"

func TestCountReadsWhatCanOnlyBeACount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		raw  string
		want int64
		ok   bool
	}{
		{``, 0, true},
		{`null`, 0, true},
		{`0`, 0, true},
		{`-0`, 0, true},
		{`7`, 7, true},
		{`57.0`, 57, true},
		{`3e0`, 3, true},
		{`30e-1`, 3, true},
		{`1e1`, 10, true},
		{`1.5e+1`, 15, true},

		// Fractions are rounded up.
		{`14417.92`, 14418, true},
		{`1.000000000000000000001`, 2, true},
		{`0.1`, 1, true},
		{`0.01e1`, 1, true},
		{`1e-400`, 1, true},
		{`12345e-2`, 124, true},

		// Digits in strings are read.
		{`"10"`, 10, true},
		{`"007"`, 7, true},
		{`"14417.92"`, 14418, true},
		{`"0"`, 0, true},
		{`"\u0031"`, 1, true},

		// A count is bounded, so that sums cannot overflow.
		{`9223372036854775807`, maxCount, true},
		{`99999999999999999999.5`, maxCount, true},
		{`1e400`, maxCount, true},
		{`1e99999999999999999999`, maxCount, true},
		{`0e99999999999999999999`, 0, true},
		{`"99999999999999999999"`, maxCount, true},

		// Everything else cannot be read.
		{`-5`, 0, false},
		{`-0.1`, 0, false},
		{`true`, 0, false},
		{`false`, 0, false},
		{`{}`, 0, false},
		{`[]`, 0, false},
		{`[3]`, 0, false},
		{`""`, 0, false},
		{`"`, 0, false},
		{`"-5"`, 0, false},
		{`" 5"`, 0, false},
		{`"5 tokens"`, 0, false},
		{`"1,000"`, 0, false},
		{`"1e3"`, 0, false},
		{`"."`, 0, false},
		{`"5."`, 0, false},
		{`".5"`, 0, false},
		{`"NaN"`, 0, false},
		{`-`, 0, false},
		{`1.2.3`, 0, false},
		{`1e`, 0, false},
		{`1e+`, 0, false},
		{`1x`, 0, false},
		{`Infinity`, 0, false},
	} {
		got, ok := Count([]byte(tt.raw))
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: got %d, %v; want %d, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}
