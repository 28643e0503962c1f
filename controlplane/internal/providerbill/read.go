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
	"unicode"
	"unicode/utf8"

	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// The bounds of a bill. A report in JSON is held in memory day by day, a table row by row.
const (
	// MaxFile bounds the file as it is sent, in bytes.
	MaxFile = 64 << 20
	// maxText, maxReport, maxBucket and maxRecord bound what is unpacked: all of it, a report in JSON, a day of one with what its decoder
	// reads ahead, which is as much again, and a row of a table.
	maxText   = 1 << 30
	maxReport = 32 << 20
	maxBucket = 8 << 20
	maxRecord = 1 << 20
	// maxLines bounds the lines for usage, maxGroups how many different days, models and credentials they are about.
	maxLines  = 3_000_000
	maxGroups = 50_000
	// maxDays bounds the days from the first to the last line.
	maxDays = 400
	// maxCount bounds a count of a line, so that the sum of all lines is exact.
	maxCount = 1 << 40
	// maxName bounds a name in a line, in bytes.
	maxName = 300
)

// file names the whole file in an error.
const file = "file"

// unpack returns the content of a file, and an error after a number of bytes.
func unpack(r io.Reader, limit int64) (io.Reader, error) {
	in := bufio.NewReader(r)
	head, _ := in.Peek(2) // an error comes again when the content is read
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return &boundedReader{r: in, left: limit, leftOfRecord: limit}, nil
	}
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		return nil, asInvalid(file, err)
	}
	return &boundedReader{r: unpacked, left: limit, leftOfRecord: limit}, nil
}

// upload is the file as it is sent. It keeps its own error, which is nothing that is wrong with the file.
type upload struct {
	r    io.Reader
	left int64
	err  error
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if u.left -= int64(n); u.left < 0 {
		n, err = 0, ErrTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}

// Read reads a bill once and passes each line for usage on. Its format is known by its content; it may be packed with gzip. Days and
// times without a zone are of the given one. What is wrong with the file is a validation error with its place.
func Read(r io.Reader, zone *time.Location, add func(*Line) error) (*Content, error) {
	text, err := unpack(r, maxText)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	in := bufio.NewReader(io.TeeReader(text, hash))
	if err := known(in); err != nil {
		return nil, err
	}

	bill := &reading{
		Content: &Content{Unit: Money},
		zone:    zone,
		add:     add,
		groups:  map[group]struct{}{},
	}
	switch head, _ := in.Peek(1 << 10); string(firstOf(head)) {
	case "{":
		err = bill.readJSON(in)
	case "[":
		err = validation.New(file, "is a list: put the pages of a report one after another, not into a list")
	default:
		err = bill.readCSV(in)
	}
	if err != nil {
		return nil, err
	}
	hash.Sum(bill.Hash[:0])
	return bill.Content, bill.end()
}

// firstOf returns the first character of a text that is no space.
func firstOf(text []byte) []byte {
	text = bytes.TrimLeft(text, " \t\r\n")
	return text[:min(1, len(text))]
}

const byteOrderMark = "\ufeff"

// known skips a byte order mark, and refuses files that are often taken for bills.
func known(in *bufio.Reader) error {
	if head, err := in.Peek(len(byteOrderMark)); err == nil && string(head) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark))
	}

	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return asInvalid(file, err)
	}
	for start, name := range map[string]string{
		"PAR1": "is Parquet", "PK\x03\x04": "is a ZIP archive or a workbook", "%PDF": "is a PDF",
		"\xff\xfe": "is UTF-16", "\xfe\xff": "is UTF-16", "<": "is HTML or XML",
	} {
		if strings.HasPrefix(string(head), start) {
			return validation.New(file, "%s: export the bill as CSV or JSON in UTF-8", name)
		}
	}
	if len(head) == 0 {
		return validation.New(file, "is empty")
	}
	return nil
}

// reading is a bill while it is read.
type reading struct {
	*Content
	zone *time.Location
	add  func(*Line) error
	// magnitude is the sum of all amounts without their signs, so that no sum of some of them can overflow.
	magnitude Amount
	groups    map[group]struct{}
	// hasCounts and hasAmounts report whether there are such lines; withoutAmount is the place of the first one without an amount.
	hasCounts, hasAmounts bool
	withoutAmount         string
	// firstBucket is when the first bucket of a report begins: a day of the bill also if nothing is on it.
	firstBucket time.Time
	// number is that of the present line, and at its place in a report.
	number int64
	at     string
}

// end checks the bill as a whole.
func (b *reading) end() error {
	if b.Lines == 0 {
		return validation.New(file, "has no line for usage")
	}
	switch {
	case b.Format == OpenAIUsage || (b.hasCounts && !b.hasAmounts):
		b.Unit = Tokens
	case !b.hasAmounts:
		return validation.New(file, "has neither amounts nor tokens")
	case b.withoutAmount != "":
		return validation.New(b.withoutAmount, "is empty, but other lines have an amount: write 0 if it is nothing")
	}
	b.Step = min(b.Step, smallestUnit(b.Currency))
	if day := dayOf(b.firstBucket, b.zone); !b.firstBucket.IsZero() && day.Before(b.FirstDay) {
		b.FirstDay = day
	}
	if b.LastDay.Sub(b.FirstDay) >= maxDays*24*time.Hour {
		return validation.New(file, "is about the days from %s to %s; a bill may have %d days",
			b.FirstDay.Format(time.DateOnly), b.LastDay.Format(time.DateOnly), maxDays)
	}
	return nil
}

// smallestUnit returns the unit that amounts of a currency are rounded to at most: a decimal such as 5 shows no cents, but has them.
func smallestUnit(currency string) money.Nano {
	const withoutCents = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
	if currency != "" && strings.Contains(withoutCents, currency) {
		return money.Unit
	}
	return money.Unit / 100
}

// place names the present line in an error.
func (b *reading) place(member string) string {
	if b.at != "" {
		return validation.Member(b.at, member)
	}
	if member == "" {
		return fmt.Sprintf("line %d", b.number)
	}
	return fmt.Sprintf("line %d, %s", b.number, member)
}

// addPeriod adds a line about a time. One that is about several days would be compared with the requests of the first.
func (b *reading) addPeriod(line *Line, begins, until time.Time) error {
	line.Day = dayOf(begins, b.zone)
	const hour = time.Hour // may be of two days where clocks differ by half an hour
	switch {
	case until.Before(begins):
		return validation.New(b.place(""), "ends before it begins")
	case until.Sub(begins) > hour && dayOf(until.Add(-time.Nanosecond), b.zone).After(line.Day):
		return validation.New(b.place(""),
			"is about several days, from %s to %s: get lines by the day or the hour, and name the time zone of the days",
			begins.In(b.zone).Format(time.RFC3339), until.In(b.zone).Format(time.RFC3339))
	}
	return b.addLine(line, until)
}

// addLine passes a line on. end is when it ends.
func (b *reading) addLine(line *Line, end time.Time) error {
	if line.Amount.Nano < 0 && line.Model == "" && line.RequestID == "" { // a credit or a discount
		return b.addOther(line.Amount)
	}
	if b.Lines == maxLines {
		return validation.New(file, "has more than %d lines", maxLines)
	}
	line.Number = b.number
	for member, text := range map[string]string{"model": line.Model, "credential": line.Credential, "request id": line.RequestID} {
		if problem := unusable(text, maxName); problem != "" {
			return validation.New(b.place(member), "%s", problem)
		}
	}
	if day := line.Day; day.Year() < 2000 || day.Year() > 2200 {
		return validation.New(b.place("day"), "must be in the years 2000 to 2200")
	}
	if max(line.Requests, line.Input, line.Output) > maxCount || min(line.Requests, line.Input, line.Output) < 0 {
		return validation.New(b.place("counts"), "must be 0 to %d", int64(maxCount))
	}

	b.groups[group{line.Day, line.Model, line.Credential}] = struct{}{}
	if len(b.groups) > maxGroups {
		return validation.New(file, "is about more than %d different days, models and credentials", maxGroups)
	}

	var err error
	if b.Billed, err = b.Billed.Add(line.Amount); err != nil {
		return validation.New(b.place("amount"), "makes the sum too large")
	}
	if b.Lines++; b.Lines == 1 || line.Day.Before(b.FirstDay) {
		b.FirstDay = line.Day
	}
	if line.Day.After(b.LastDay) {
		b.LastDay = line.Day
	}
	if end.After(b.EndsAt) {
		b.EndsAt = end
	}
	if line.RequestID != "" {
		b.WithRequest++
	}
	b.hasCounts = b.hasCounts || line.Input+line.Output > 0
	return b.add(line)
}

// amount reads the amount of the present line.
func (b *reading) amount(member, text string, shift int) (Amount, error) {
	amount, err := parseAmount(text, shift)
	if err != nil {
		return amount, validation.New(b.place(member), "%v", err)
	}

	magnitude := amount
	if magnitude.Nano < 0 {
		magnitude = Amount{Nano: max(-magnitude.Nano, 0)} // at least as large, as the rest counts upwards
	}
	if b.magnitude, err = b.magnitude.Add(magnitude); err != nil || amount.Nano == -1<<63 {
		return amount, validation.New(b.place(member), "makes the sum too large")
	}

	b.hasAmounts = true
	if unit := step(text, shift); b.Step == 0 || unit < b.Step {
		b.Step = unit
	}
	return amount, nil
}

// addOther counts what is no charge for usage.
func (b *reading) addOther(amount Amount) error {
	var err error
	if b.Other, err = b.Other.Add(amount); err != nil {
		return validation.New(b.place("amount"), "makes the sum too large")
	}
	return nil
}

// setCurrency notes the currency of a line. A bill has one.
func (b *reading) setCurrency(code string) error {
	code = strings.ToUpper(strings.TrimSpace(code))
	switch {
	case code == "" || code == b.Currency:
	case len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return validation.New(b.place("currency"), "must be a code such as USD")
	case b.Currency == "":
		b.Currency = code
	default:
		return validation.New(b.place("currency"), "is %s, but lines before are in %s: import a file for each currency", code, b.Currency)
	}
	return nil
}

// unusable returns why a text is no name; empty if it is one. Control characters could act on a terminal.
func unusable(text string, limit int) string {
	switch {
	case len(text) > limit:
		return fmt.Sprintf("is longer than %d bytes", limit)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has a control character"
	}
	return ""
}

// dayOf returns the day of a time in a zone, as midnight of UTC.
func dayOf(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// endOf returns when a day ends in a zone.
func endOf(day time.Time, zone *time.Location) time.Time {
	return usage.StartOfDay(day.AddDate(0, 0, 1), zone)
}

var errTooLong = errors.New("the file, or a row of it, is too long")

// boundedReader returns an error after a number of bytes, or of bytes since the last record.
type boundedReader struct {
	r                  io.Reader
	left, leftOfRecord int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.left -= int64(n)
	b.leftOfRecord -= int64(n)
	if b.left < 0 || b.leftOfRecord < 0 {
		return 0, errTooLong
	}
	return n, err
}

// asInvalid returns what is wrong with the file at a place.
func asInvalid(place string, err error) error {
	if _, is := validation.As(err); is || err == nil {
		return err
	}
	return validation.New(place, "cannot be read: %v", err)
}
