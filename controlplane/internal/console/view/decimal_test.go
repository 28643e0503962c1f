package view

import (
	"slices"
	"testing"
)

func TestDecimalsAreExact(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Add("9000000000.123456789", "0.000000001"):       "9000000000.12345679",
		Add("0.1", "0.2"):                                "0.30",
		Sub("12.50", "-0.000000001"):                     "12.500000001",
		Sub("1", "2.5"):                                  "-1.50",
		Mul("0.123456789", "0.987654321"):                "0.121932631112635269",
		Mul("10", "0.85"):                                "8.50",
		Add("1", "x"):                                    "",
		Add("123456789012345678.9", "0.000000000000001"): "123456789012345678.900000000000001",
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
	if Compare("0.10", "0.1") != 0 || Compare("-1", "0.5") != -1 || Compare("10", "9") != 1 {
		t.Error("decimals are not compared by value")
	}
}

func TestColumnsAreSharesOfTheHighest(t *testing.T) {
	t.Parallel()
	if got := Columns([]string{"0.00", "5", "10", "0.0001", "-3"}); !slices.Equal(got, []int{0, 500, 1000, 15, 0}) {
		t.Errorf("got %v", got)
	}
	if got := Columns([]string{"0", ""}); !slices.Equal(got, []int{0, 0}) {
		t.Errorf("got %v", got)
	}
	if Share("4", "5.00") != 80 || Share("1", "0") != -1 || Share("6", "5") != 120 {
		t.Error("wrong shares")
	}
}
