package view

import "strings"

// Amount is an amount of money as pages show it: the digits of the API, all of them, with the whole units in groups of three.
// Tables align it at the decimal point, and dim what is beyond the fourth place.
type Amount struct {
	// Exact is the text of the API.
	Exact string
	// Whole has the sign, Places the point and up to four places, Rest the places beyond.
	Whole, Places, Rest string
	Negative            bool
}

// shownPlaces are the places of an amount that are not dimmed.
const shownPlaces = 4

// Money returns how a decimal is shown. A text that is not a decimal is shown as it is.
func Money(exact string) Amount {
	whole, fraction, found := strings.Cut(exact, ".")
	digits, minus := strings.CutPrefix(whole, "-")
	if digits == "" || strings.Trim(digits+fraction, "0123456789") != "" {
		return Amount{Exact: exact, Whole: exact}
	}
	a := Amount{Exact: exact, Whole: grouped(digits), Negative: Negative(exact)}
	if minus {
		a.Whole = "−" + a.Whole
	}
	if found {
		shown := min(len(fraction), shownPlaces)
		a.Places, a.Rest = "."+fraction[:shown], fraction[shown:]
	}
	return a
}

// Room is the number of places for which a column needs room: 2, 4, 6 or 9.
func (a Amount) Room() int {
	places := len(a.Places) - 1 + len(a.Rest)
	for _, room := range []int{2, 4, 6} {
		if places <= room {
			return room
		}
	}
	return 9
}

// grouped returns digits in groups of three.
func grouped(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(d)
	}
	return b.String()
}
