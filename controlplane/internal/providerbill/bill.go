// Package providerbill reads the bills and usage exports of providers, and compares them with what the gateway has recorded.
//
// It reads and compares only: nothing that it finds changes the ledger. Every difference is split into parts with a reason, and the
// parts of a difference sum to it.
package providerbill

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
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

// ErrFormat is returned for a file in none of the formats, or one that breaks off.
var ErrFormat = errors.New("providerbill: the file is no bill in a known format")

// The bounds of a bill, uncompressed. A report in JSON is held in memory page by page, a table row by row.
const (
	maxTable  = 4 << 30
	maxReport = 64 << 20
	maxLine   = 1 << 20
	maxLines  = 10_000_000
)

// Bill is a bill or a usage export.
type Bill struct {
	Format Format
	// Hash is the SHA-256 of the file: a file that is imported again is the same bill.
	Hash [sha256.Size]byte
	// Currency is the code of the currency in upper case; empty if the file has counts only.
	Currency string
	// Lines are the charges for usage.
	Lines []Line
	// Other is the sum of what is no charge for usage: taxes, fees, credits and discounts.
	Other Amount
	// Step is the smallest unit that an amount of the bill shows, in nano-units and at least 1: its amounts are rounded to it. Zero
	// if it has no amounts.
	Step money.Nano
}

// Line is one line of a bill. Members that the bill does not name are empty.
type Line struct {
	// Day is the day of UTC that the line is about.
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

// Parse reads a bill. Its format is known by its content; it may be compressed with gzip.
func Parse(r io.Reader) (*Bill, error) {
	hash := sha256.New()
	in := bufio.NewReader(io.TeeReader(r, hash))
	text := io.Reader(in)
	if head, err := in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		text = unpacked
	}

	bill, err := parseText(bufio.NewReader(text))
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // what is behind a gzip stream belongs to the hash, too
		return nil, fmt.Errorf("read the bill: %w", err)
	}
	bill.Hash = [sha256.Size]byte(hash.Sum(nil))
	return bill, nil
}

func parseText(in *bufio.Reader) (*Bill, error) {
	const byteOrderMark = "\ufeff"
	if head, err := in.Peek(len(byteOrderMark)); err == nil && string(head) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark))
	}
	head, _ := in.Peek(1 << 10)
	if start := bytes.TrimLeft(head, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return parseJSON(newBoundedReader(in, maxReport, maxReport))
	}
	return parseCSV(newBoundedReader(in, maxTable, maxLine))
}

func (b *Bill) add(line *Line) error {
	if len(b.Lines) == maxLines {
		return fmt.Errorf("%w: it has more than %d lines", ErrFormat, maxLines)
	}
	b.Lines = append(b.Lines, *line)
	return nil
}

// setCurrency notes the currency of a line. A bill has one.
func (b *Bill) setCurrency(code string) error {
	code = strings.ToUpper(strings.TrimSpace(code))
	switch {
	case code == "" || code == b.Currency:
	case len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return fmt.Errorf("%w: %q is no currency", ErrFormat, code)
	case b.Currency == "":
		b.Currency = code
	default:
		return fmt.Errorf("%w: it has two currencies, %q and %q", ErrFormat, b.Currency, code)
	}
	return nil
}

// setStep notes the places that an amount shows.
func (b *Bill) setStep(unit money.Nano) {
	if b.Step == 0 || unit < b.Step {
		b.Step = unit
	}
}

// boundedReader returns an error after a number of bytes, or of bytes without the end of a line.
type boundedReader struct {
	r io.Reader
	// line bounds a line. left and leftOfLine are how much may follow.
	line, left, leftOfLine int64
}

func newBoundedReader(r io.Reader, all, line int64) *boundedReader {
	return &boundedReader{r, line, all, line}
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if end := bytes.LastIndexByte(p[:n], '\n'); end >= 0 {
		b.leftOfLine = b.line - int64(n-end)
	} else {
		b.leftOfLine -= int64(n)
	}
	if b.left < 0 || b.leftOfLine < 0 {
		return 0, fmt.Errorf("%w: it, or a line of it, is too long", ErrFormat)
	}
	return n, err
}

// day returns the day of UTC of a time.
func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
