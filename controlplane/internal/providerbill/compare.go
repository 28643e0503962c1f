package providerbill

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/shared/money"
)

// Record is what the gateway knows of one call of a provider.
type Record struct {
	// At is when the call ended: what the provider bills has its day.
	At time.Time
	// Model is the provider's name of the model, Credential the name by which the bill knows the credential.
	Model, Credential string
	// RequestID is the provider's id of the request; empty if it named none.
	RequestID string
	// Cost is what the call should cost by the provider's prices.
	Cost money.Nano
	// Estimated reports that Cost is of an estimate, because the provider reported no usage.
	Estimated bool
	// Cancelled reports that the call was ended before its answer was complete.
	Cancelled bool
}

// Reason is why a bill differs.
type Reason string

// The reasons. All but the last four explain a difference.
const (
	// Rounding: the bill shows fewer places.
	Rounding Reason = "rounding"
	// OurEstimate: the call has a cost of our own estimate.
	OurEstimate Reason = "our_estimate"
	// CancelledStream: the call was ended before its answer was complete, and the provider charges another part of it.
	CancelledStream Reason = "cancelled_stream"
	// OtherDay: the provider bills it on the day before or after.
	OtherDay Reason = "other_day"
	// UnknownCall: the gateway did not make the call. Somebody else uses the credential.
	UnknownCall Reason = "unknown_call"
	// NotBilled: the bill lacks the call.
	NotBilled Reason = "not_billed"
	// BilledTwice: the bill has the call more than once.
	BilledTwice Reason = "billed_twice"
	// Price: the same call at another price, or with other counts.
	Price Reason = "price"
	// Unexplained: what is left of the difference of a day.
	Unexplained Reason = "unexplained"
)

// Open reports whether somebody has to look at a difference with this reason.
func (r Reason) Open() bool {
	return r == NotBilled || r == BilledTwice || r == Price || r == Unexplained
}

// Part is a part of a difference.
type Part struct {
	Reason Reason
	// Amount is positive if the bill has more.
	Amount money.Nano
}

// Difference is a difference between a bill and the records: of one request, if the bill has a line for each, or else of a day,
// model and credential.
type Difference struct {
	Day                          time.Time
	Model, Credential, RequestID string
	Billed, Recorded             money.Nano
	// Parts sum to Billed less Recorded.
	Parts []Part
}

// Comparison is the result of comparing a bill with records.
type Comparison struct {
	Billed, Recorded money.Nano
	// Parts are the sums of the parts by reason, without their signs: differences do not cancel out. Counts are the numbers of
	// differences that have them.
	Parts  map[Reason]money.Nano
	Counts map[Reason]int
	// Differences are in the order of day, model, credential and request.
	Differences []Difference
}

// OpenAmount is the sum of what is open.
func (c *Comparison) OpenAmount() (sum money.Nano) {
	for reason, amount := range c.Parts {
		if reason.Open() {
			sum += amount
		}
	}
	return sum
}

// alarmShare is the share of a bill that may be open, as one in so many.
const alarmShare = 1000

// Alarming reports whether more than 0.1 % of the bill is open.
func (c *Comparison) Alarming() bool {
	return c.OpenAmount() > max(c.Billed, c.Recorded)/alarmShare
}

// group is what is compared together if there is no line for each request.
type group struct {
	day               time.Time
	model, credential string
}

// sums are those of a group.
type sums struct {
	billed                                   Amount
	lines                                    int64
	recorded, estimated, cancelled, boundary money.Nano
	calls                                    int64
}

// comparing is a comparison under way.
type comparing struct {
	*Comparison
	bill *Bill
	// byRequest are the lines of requests; the first one of each has the sum.
	byRequest map[string][]*Line
	groups    map[group]*sums
	// models and credentials report which of the members the lines of the bill have.
	models, credentials bool
	// seen are the requests of the bill that the gateway has made.
	seen map[string]bool
}

// Compare compares the charges of a bill with the records of the same days and provider. A file of counts has no charges.
func Compare(bill *Bill, records iter.Seq[Record]) (*Comparison, error) {
	c := &comparing{
		Comparison: &Comparison{Parts: map[Reason]money.Nano{}, Counts: map[Reason]int{}},
		bill:       bill,
		byRequest:  map[string][]*Line{},
		groups:     map[group]*sums{},
		seen:       map[string]bool{},
	}
	if err := c.addLines(); err != nil {
		return nil, err
	}
	for r := range records {
		if err := c.addRecord(&r); err != nil {
			return nil, err
		}
	}

	c.unknownCalls()
	c.compareGroups()
	slices.SortFunc(c.Differences, func(a, b Difference) int {
		return cmp.Or(
			a.Day.Compare(b.Day),
			cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Credential, b.Credential),
			cmp.Compare(a.RequestID, b.RequestID),
		)
	})
	return c.Comparison, nil
}

func (c *comparing) addLines() error {
	var billed Amount
	var err error
	for i := range c.bill.Lines {
		line := &c.bill.Lines[i]
		c.models = c.models || line.Model != ""
		c.credentials = c.credentials || line.Credential != ""
		if billed, err = billed.Add(line.Amount); err != nil {
			return err
		}
	}
	c.Billed = billed.Round()

	for i := range c.bill.Lines {
		line := &c.bill.Lines[i]
		if line.RequestID != "" {
			c.byRequest[line.RequestID] = append(c.byRequest[line.RequestID], line)
			continue
		}
		s := c.sums(line.Day, line.Model, line.Credential)
		s.lines++
		if s.billed, err = s.billed.Add(line.Amount); err != nil {
			return err
		}
	}
	return nil
}

// sums returns the sums of a group. Members that no line of the bill has are left out, so that a bill by day alone is compared by
// day.
func (c *comparing) sums(on time.Time, model, credential string) *sums {
	g := group{day: on}
	if c.models {
		g.model = baseModel(model)
	}
	if c.credentials {
		g.credential = credential
	}
	if c.groups[g] == nil {
		c.groups[g] = &sums{}
	}
	return c.groups[g]
}

// boundaryTime is how long before midnight a call ends that a provider may bill on the next day.
const boundaryTime = time.Hour

func (c *comparing) addRecord(r *Record) error {
	var err error
	if c.Recorded, err = money.Add(c.Recorded, r.Cost); err != nil {
		return err
	}
	if lines := c.byRequest[r.RequestID]; r.RequestID != "" && lines != nil {
		c.seen[r.RequestID] = true
		return c.compareRequest(r, lines)
	}
	if len(c.byRequest) > 0 && len(c.groups) == 0 { // a bill by request
		if r.Cost != 0 {
			reason := NotBilled
			switch {
			case r.Cancelled:
				reason = CancelledStream
			case r.Estimated:
				reason = OurEstimate
			}
			c.add(&Difference{
				Day:        day(r.At),
				Model:      r.Model,
				Credential: r.Credential,
				RequestID:  r.RequestID,
				Recorded:   r.Cost,
				Parts:      []Part{{reason, -r.Cost}},
			})
		}
		return nil
	}

	s := c.sums(day(r.At), r.Model, r.Credential)
	s.calls++
	s.recorded += r.Cost
	switch {
	case r.Cancelled:
		s.cancelled += r.Cost
	case r.Estimated:
		s.estimated += r.Cost
	}
	if next := day(r.At).Add(24 * time.Hour); next.Sub(r.At) <= boundaryTime {
		s.boundary += r.Cost
	}
	return nil
}

// compareRequest compares a call with its lines.
func (c *comparing) compareRequest(r *Record, lines []*Line) error {
	var sum Amount
	var err error
	for _, line := range lines {
		if sum, err = sum.Add(line.Amount); err != nil {
			return err
		}
	}
	d := &Difference{
		Day:        lines[0].Day,
		Model:      r.Model,
		Credential: r.Credential,
		RequestID:  r.RequestID,
		Billed:     sum.Round(),
		Recorded:   r.Cost,
	}
	delta := d.Billed - d.Recorded
	if delta == 0 {
		return nil
	}

	d.Parts = []Part{{c.reasonOf(r, lines, delta), delta}}
	c.add(d)
	return nil
}

func (c *comparing) reasonOf(r *Record, lines []*Line, delta money.Nano) Reason {
	n := money.Nano(len(lines))
	switch first := lines[0].Amount.Round(); {
	case abs(delta) <= n*c.tolerance():
		return Rounding
	case r.Cancelled:
		return CancelledStream
	case r.Estimated:
		return OurEstimate
	case n > 1 && abs(first-r.Cost) <= c.tolerance() && abs(delta-(n-1)*first) <= n*c.tolerance():
		return BilledTwice
	default:
		return Price
	}
}

// tolerance is by how much an amount of the bill may differ from the exact one.
func (c *comparing) tolerance() money.Nano { return (c.bill.Step + 1) / 2 }

// unknownCalls adds the requests of the bill that the gateway has not made.
func (c *comparing) unknownCalls() {
	for id, lines := range c.byRequest {
		if c.seen[id] {
			continue
		}
		var sum Amount
		for _, line := range lines {
			sum, _ = sum.Add(line.Amount) // the sum of all lines fits
		}
		if amount := sum.Round(); amount != 0 {
			c.add(&Difference{
				Day:        lines[0].Day,
				Model:      lines[0].Model,
				Credential: lines[0].Credential,
				RequestID:  id,
				Billed:     amount,
				Parts:      []Part{{UnknownCall, amount}},
			})
		}
	}
}

// compareGroups compares the sums of days. A part of a difference is explained as far as the calls of the day can explain it.
func (c *comparing) compareGroups() {
	moved := c.move()
	for g, s := range c.groups {
		d := &Difference{
			Day:        g.day,
			Model:      g.model,
			Credential: g.credential,
			Billed:     s.billed.Round(),
			Recorded:   s.recorded,
		}
		left := d.Billed - d.Recorded
		take := func(reason Reason, limit money.Nano) {
			if n := max(min(left, limit), -limit); n != 0 {
				d.Parts = append(d.Parts, Part{reason, n})
				left -= n
			}
		}
		if n := moved[g]; n != 0 {
			d.Parts = append(d.Parts, Part{OtherDay, n})
			left -= n
		}
		take(Rounding, money.Nano(s.lines)*c.tolerance())
		take(OurEstimate, s.estimated)
		take(CancelledStream, s.cancelled)
		switch {
		case s.calls == 0:
			take(UnknownCall, abs(left))
		case s.lines == 0:
			take(NotBilled, abs(left))
		default:
			take(Unexplained, abs(left))
		}
		if len(d.Parts) > 0 {
			c.add(d)
		}
	}
}

// move finds what is billed on the day after it was recorded: as much as the one day lacks and the next has too much, and no more
// than the calls that ended shortly before midnight. It returns the changes by group.
func (c *comparing) move() map[group]money.Nano {
	moved := map[group]money.Nano{}
	days := slices.SortedFunc(maps.Keys(c.groups), func(a, b group) int { return a.day.Compare(b.day) })
	for _, g := range days {
		next := group{g.day.Add(24 * time.Hour), g.model, g.credential}
		s, after := c.groups[g], c.groups[next]
		if after == nil {
			continue
		}
		lacks := s.recorded - s.billed.Round() + moved[g]
		if n := min(lacks, after.billed.Round()-after.recorded, s.boundary); n > 0 {
			moved[g] -= n
			moved[next] += n
		}
	}
	return moved
}

func (c *comparing) add(d *Difference) {
	c.Differences = append(c.Differences, *d)
	for _, part := range d.Parts {
		c.Parts[part.Reason] += abs(part.Amount)
		c.Counts[part.Reason]++
	}
}

func abs(n money.Nano) money.Nano { return max(n, -n) }

// baseModel returns the name of a model without the date of its version, in lower case: bills name versions where requests name the
// model, and the other way round.
func baseModel(name string) string {
	name = strings.ToLower(name)
	for _, layout := range []string{"-2006-01-02", "-20060102"} {
		if at := len(name) - len(layout); at > 0 {
			if _, err := time.Parse(layout, name[at:]); err == nil {
				return name[:at]
			}
		}
	}
	return name
}
