package view

import "testing"

func TestAmountsKeepEveryDigit(t *testing.T) {
	t.Parallel()
	for exact, want := range map[string]Amount{
		"0.00":            {Whole: "0", Places: ".00"},
		"1000.00":         {Whole: "1\u202f000", Places: ".00"},
		"4089.558875525":  {Whole: "4\u202f089", Places: ".5588", Rest: "75525"},
		"-1234567.0001":   {Whole: "−1\u202f234\u202f567", Places: ".0001", Negative: true},
		"-0.00":           {Whole: "−0", Places: ".00"},
		"7":               {Whole: "7"},
		"not known":       {Whole: "not known"},
		"":                {},
		"<script>":        {Whole: "<script>"},
		"1.2.3":           {Whole: "1.2.3"},
		"499.950637451":   {Whole: "499", Places: ".9506", Rest: "37451"},
		"9000000000.0001": {Whole: "9\u202f000\u202f000\u202f000", Places: ".0001"},
	} {
		want.Exact = exact
		if got := Money(exact); got != want {
			t.Errorf("Money(%q): got %+v; want %+v", exact, got, want)
		}
	}
}

func TestRoomOfPlaces(t *testing.T) {
	t.Parallel()
	for exact, want := range map[string]int{"7": 2, "0.00": 2, "0.123": 4, "0.1234": 4, "0.12345": 6, "0.1234567": 9, "0.123456789": 9} {
		if got := Money(exact).Room(); got != want {
			t.Errorf("Money(%q).Room(): got %d; want %d", exact, got, want)
		}
	}
}
