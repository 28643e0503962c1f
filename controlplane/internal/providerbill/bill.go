// Package providerbill reads the bills and usage exports of providers, and compares them with what the gateway has recorded.
//
// It reads and compares only: nothing that it finds changes the ledger. Every difference is split into parts of a kind, and the
// parts of a difference sum to it.
package providerbill

import (
	"crypto/sha256"
	"time"

	"modelgateway/shared/money"
)

// Format is a format of bills.
type Format string

// The formats.
const (
	OpenAICosts   Format = "openai_costs"
	OpenAIUsage   Format = "openai_usage"
	AnthropicCost Format = "anthropic_cost"
	AWSCUR        Format = "aws_cur"
	FOCUS         Format = "focus"
	// PlainCSV is the format for all others: see readPlain.
	PlainCSV Format = "csv"
)

// Formats are all formats.
var Formats = []Format{OpenAICosts, OpenAIUsage, AnthropicCost, AWSCUR, FOCUS, PlainCSV}

// Unit is what a bill counts.
type Unit string

// The units. A usage export has no amounts: its tokens are compared.
const (
	Money  Unit = "money"
	Tokens Unit = "tokens"
)

// Content is what a file says as a whole.
type Content struct {
	Format Format
	Unit   Unit
	// Currency is the code of the currency in upper case; empty if the file names none.
	Currency string
	// FirstDay and LastDay are the days of the first and the last line. EndsAt is when the last line ends: the end of the last day,
	// unless the file has times.
	FirstDay, LastDay, EndsAt time.Time
	// Hash is the SHA-256 of what is unpacked, so that the same bill is the same whether it was packed or not.
	Hash [sha256.Size]byte
	// Lines is the number of the lines for usage, WithRequest of those that name a request.
	Lines, WithRequest int64
	// Billed is the sum of the lines. Other is the sum of what is no charge for usage: taxes, fees, credits and discounts.
	Billed, Other Amount
	// Step is the smallest unit that an amount of the bill shows, in nano-units and at least 1: its amounts are rounded to it. Zero
	// if it has no amounts.
	Step money.Nano
}

// Line is one line of a bill. Members that the bill does not name are empty.
type Line struct {
	// Number is the line of the file in a table, and counts the lines of a report.
	Number int64
	// Day is the day that the line is about, in the time zone of the bill; its time is midnight of UTC.
	Day time.Time
	// Model is the provider's name of the model.
	Model string
	// Credential is what the bill names of who called: the id of a key, a project, a workspace or an account.
	Credential string
	// RequestID is the provider's id of the request, if there is a line for each.
	RequestID string
	// Amount is zero in an export of counts.
	Amount Amount
	// Requests, Input and Output are counts; zero if the bill has none.
	Requests, Input, Output int64
}

// quantity is what the comparison compares: the amount, or the tokens as whole numbers.
func (l *Line) quantity(u Unit) Amount {
	if u == Tokens {
		return Amount{Nano: money.Nano(l.Input + l.Output)}
	}
	return l.Amount
}
