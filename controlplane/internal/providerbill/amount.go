package providerbill

import (
	"errors"
	"math/big"
	"strconv"
	"strings"

	"modelgateway/shared/money"
)

// Amount is an exact amount of a bill, in 1e-18 of a currency unit: providers bill fractions of a nano-unit, which count only in their
// sum. Its value is Nano plus Rest, which is 0 ≤ Rest < 1e9 parts of a nano-unit.
type Amount struct {
	Nano money.Nano
	Rest int64
}

const restPerNano = 1_000_000_000

// maxDigits and maxExponent bound a decimal, so that a hostile one costs nothing.
const (
	maxDigits   = 60
	maxExponent = 40
)

var (
	errNoAmount = errors.New("must be a decimal such as 12.34")
	errTooLarge = errors.New("is too large")
)

// parseAmount reads a decimal, which may have an exponent. Places below 1e-18 are rounded half up. The value is multiplied by ten to
// the power of shift: -2 for an amount in cents.
func parseAmount(text string, shift int) (Amount, error) {
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(strings.TrimSpace(text)), "e")
	unsigned := strings.TrimPrefix(strings.TrimPrefix(mantissa, "-"), "+")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	digits := whole + fraction
	if digits == "" || len(digits) > maxDigits || len(mantissa)-len(unsigned) > 1 || strings.Trim(digits, "0123456789") != "" {
		return Amount{}, errNoAmount
	}

	power := shift
	if hasExponent {
		n, err := strconv.Atoi(exponent)
		switch {
		case err != nil:
			return Amount{}, errNoAmount
		case strings.Trim(digits, "0") == "": // OpenAI writes zero as 0E-6176, too
		case n > maxExponent || n < -maxExponent:
			return Amount{}, errNoAmount
		default:
			power += n
		}
	}

	n, _ := new(big.Int).SetString(digits, 10)
	const places = 18
	switch power += places - len(fraction); {
	case power >= 0:
		n.Mul(n, tenTo(power))
	default:
		divisor := tenTo(-power)
		n.Add(n, new(big.Int).Rsh(divisor, 1))
		n.Quo(n, divisor)
	}
	if strings.HasPrefix(mantissa, "-") {
		n.Neg(n)
	}

	nano, rest := new(big.Int).DivMod(n, big.NewInt(restPerNano), new(big.Int))
	if !nano.IsInt64() {
		return Amount{}, errTooLarge
	}
	return Amount{money.Nano(nano.Int64()), rest.Int64()}, nil
}

func tenTo(power int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(power)), nil)
}

// SumOf returns the amount of a sum of nano-units and a sum of rests.
func SumOf(nano money.Nano, rests int64) Amount {
	return Amount{nano + money.Nano(rests/restPerNano), rests % restPerNano}
}

// Add returns the sum, or money.ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	sum := Amount{Rest: a.Rest + b.Rest}
	carry := money.Nano(sum.Rest / restPerNano)
	sum.Rest %= restPerNano
	var err error
	sum.Nano, err = money.Sum(a.Nano, carry, b.Nano)
	return sum, err
}

// Round returns the amount in nano-units, rounded half up.
func (a Amount) Round() money.Nano {
	if a.Rest >= restPerNano/2 {
		return a.Nano + 1
	}
	return a.Nano
}

// step returns the smallest unit that a decimal shows, in nano-units and at least 1: an amount of "1.50" was rounded to a cent.
func step(text string, shift int) money.Nano {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), "e")
	power, _ := strconv.Atoi(exponent)
	if strings.Trim(mantissa, "+-0.") == "" {
		power = 0 // a zero says nothing with its exponent
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	places := len(fraction) - power - shift
	unit := money.Unit
	for range min(max(places, 0), 9) {
		unit /= 10
	}
	return unit
}
