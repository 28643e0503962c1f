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

// Kind is a kind of difference between a bill and the records.
type Kind string

// The kinds. All but the last five explain a difference.
const (
	// Rounding: the bill shows fewer places.
	Rounding Kind = "rounding"
	// OurEstimate: the request has a cost of our own estimate.
	OurEstimate Kind = "our_estimate"
	// CancelledStream: the call was ended before its answer was complete, and the provider charges another part of it.
	CancelledStream Kind = "cancelled_stream"
	// OtherDay: the provider bills it on the day before or after.
	OtherDay Kind = "other_day"
	// AfterEnd: the request ended after the bill does.
	AfterEnd Kind = "after_end"
	// OtherLine: the bill has it on a line that names no model, such as one for calls of tools.
	OtherLine Kind = "other_line"
	// Credited: the provider gave it back.
	Credited Kind = "credited"
	// UnknownCall: the gateway did not make the call. Somebody else uses the credential.
	UnknownCall Kind = "unknown_call"
	// NotBilled: the bill lacks the request.
	NotBilled Kind = "not_billed"
	// BilledTwice: the bill has the line more than once.
	BilledTwice Kind = "billed_twice"
	// Price: the same request at another price, or with other counts.
	Price Kind = "price"
	// NoPrice: what the request costs the operator is unknown, because its route had no provider price.
	NoPrice Kind = "no_price"
	// Unexplained: what is left of the difference of a day.
	Unexplained Kind = "unexplained"
)

// Kinds are all kinds, those that explain nothing first.
var Kinds = []Kind{
	Unexplained, Price, BilledTwice, NotBilled, NoPrice, UnknownCall, OurEstimate, CancelledStream, Rounding, OtherDay, OtherLine,
	AfterEnd, Credited,
}

// Known reports whether it is one of the kinds.
func (k Kind) Known() bool { return slices.Contains(Kinds, k) }

// Open reports whether somebody has to look at a difference of this kind.
func (k Kind) Open() bool { return slices.Index(Kinds, k) < slices.Index(Kinds, UnknownCall) }

// Part is what differs by one kind. Over is what the bill has too much, Under what it has too little; they do not cancel out.
type Part struct {
	Kind  Kind       `json:"kind"`
	Over  money.Nano `json:"over"`
	Under money.Nano `json:"under"`
	// Count is the number of requests, or 1 for what is left of a day.
	Count int64 `json:"count"`
}

// Difference is a day, model and credential with a difference.
type Difference struct {
	// Number counts the differences of a bill.
	Number            int64
	Day               time.Time
	Model, Credential string
	Billed, Recorded  money.Nano
	// Lines and Calls are how many there are.
	Lines, Calls int64
	// Parts sum to Billed less Recorded, those that are open first.
	Parts []Part
}

// OpenAmount is the sum of what is open.
func (d *Difference) OpenAmount() money.Nano { return openAmount(d.Parts) }

func openAmount(parts []Part) (sum money.Nano) {
	for _, part := range parts {
		if part.Kind.Open() {
			sum += part.Over + part.Under
		}
	}
	return sum
}

// Comparison is the result of comparing a bill with records.
type Comparison struct {
	// Billed and Recorded are the sums. Each request, or each day, is rounded to a nano-unit.
	Billed, Recorded money.Nano
	Calls            int64
	// ByModel and ByCredential are unset if the bill has no name of one that the gateway has called: then it is compared without.
	ByModel, ByCredential bool
	// Parts are the sums of those of all differences.
	Parts       []Part
	Differences []Difference
}

// OpenAmount is the sum of what is open.
func (c *Comparison) OpenAmount() money.Nano { return openAmount(c.Parts) }

// openShare is the share of a bill that may be open, as one in so many.
const openShare = 1000

// TooMuchOpen reports whether more than 0.1 % of a bill is open.
func TooMuchOpen(open, billed, recorded money.Nano) bool {
	return open > max(abs(billed), abs(recorded))/openShare
}

// Pair is the lines of a request and its records; or lines or records that have no counterpart; or the lines of a day without requests.
type Pair struct {
	// Lines is the number of lines; zero if the bill lacks the request. The members up to Negative are of the lines.
	Lines             int64
	Day               time.Time
	Model, Credential string
	ByRequest         bool
	Billed            Amount
	// First is the smallest amount of a line. Negative is the sum of those below zero, Repeated that of lines that are equal to
	// another one.
	First, Negative, Repeated money.Nano

	// Calls is the number of records; zero if the gateway did not make the call.
	Calls int64
	// RequestID is ours, ProviderRequestID the provider's.
	RequestID, ProviderRequestID string
	// At is when the request ended: what the provider bills has its day.
	At time.Time
	// CalledModel is the provider's name of the model, CalledCredential the name of the gateway's credential.
	CalledModel, CalledCredential string
	// Recorded is what the request should cost by the provider's prices.
	Recorded money.Nano
	// Estimated reports that Recorded is of an estimate, because the provider reported no usage; Cancelled that the call was ended
	// before its answer was complete; NoPrice that the price is unknown.
	Estimated, Cancelled, NoPrice bool
}

// group is what is compared together if there is no line for each request.
type group struct {
	day               time.Time
	model, credential string
}

// sums are those of a group.
type sums struct {
	lines, calls, noPrice int64
	// recorded and billed are all; the others are of what has no line for each request.
	billed, recorded               money.Nano
	daily                          Amount
	dailyLines, dailyCalls         int64
	dailyRecorded                  money.Nano
	estimated, cancelled, boundary money.Nano
	// early is of calls that ended shortly before the bill begins, and may be on its first day.
	early                                money.Nano
	afterEnd, negative, repeated, moving money.Nano
	parts                                map[Kind]*Part
}

func (s *sums) add(kind Kind, amount money.Nano, count int64) {
	if amount == 0 {
		return
	}
	part := s.parts[kind]
	if part == nil {
		part = &Part{Kind: kind}
		s.parts[kind] = part
	}
	part.Count += count
	if amount > 0 {
		part.Over += amount
	} else {
		part.Under -= amount
	}
}

// merge adds the sums of another group.
func (s *sums) merge(o *sums) {
	s.lines, s.calls, s.noPrice = s.lines+o.lines, s.calls+o.calls, s.noPrice+o.noPrice
	s.billed, s.recorded, s.dailyRecorded = s.billed+o.billed, s.recorded+o.recorded, s.dailyRecorded+o.dailyRecorded
	s.daily, _ = s.daily.Add(o.daily) // the sum of all lines fits
	s.dailyLines, s.dailyCalls = s.dailyLines+o.dailyLines, s.dailyCalls+o.dailyCalls
	s.estimated, s.cancelled, s.boundary = s.estimated+o.estimated, s.cancelled+o.cancelled, s.boundary+o.boundary
	s.early += o.early
	s.afterEnd, s.negative, s.repeated = s.afterEnd+o.afterEnd, s.negative+o.negative, s.repeated+o.repeated
	for kind, part := range o.parts {
		s.add(kind, part.Over, part.Count)
		s.add(kind, -part.Under, part.Count)
		if part.Over > 0 && part.Under > 0 {
			s.parts[kind].Count -= part.Count
		}
	}
}

// comparing is a comparison under way.
type comparing struct {
	bill   *Bill
	zone   *time.Location
	groups map[group]*sums
}

// Compare compares a bill with the records of its provider and days.
func Compare(bill *Bill, pairs iter.Seq2[*Pair, error]) (*Comparison, error) {
	zone, err := bill.zone()
	if err != nil {
		return nil, err
	}
	c := &comparing{bill, zone, map[group]*sums{}}
	for p, err := range pairs {
		if err != nil {
			return nil, err
		}
		c.addPair(p)
	}

	result := &Comparison{}
	result.ByModel = c.sharedNames(func(g *group) *string { return &g.model })
	result.ByCredential = c.sharedNames(func(g *group) *string { return &g.credential })
	c.moveDays()
	c.moveLines()
	c.finish(result)
	return result, nil
}

// boundaryTime is how long before midnight a call ends that a provider may bill on the next day.
const boundaryTime = time.Hour

// groupOf returns the group of a pair, and whether the pair is of the bill at all. It is early if it is of the day before the bill, and
// may be billed on its first day.
func (c *comparing) groupOf(p *Pair) (g group, ours, early bool) {
	if p.Lines > 0 {
		g = group{p.Day, baseModel(p.Model), c.bill.credential(p.Credential)}
		if p.ByRequest && p.Calls > 0 { // the request tells what the line may not name
			g.model, g.credential = cmp.Or(g.model, baseModel(p.CalledModel)), p.CalledCredential
		}
		return g, true, false
	}

	g = group{dayOf(p.At, c.zone), baseModel(p.CalledModel), p.CalledCredential}
	if g.day.AddDate(0, 0, 1).Equal(c.bill.FirstDay) && c.endsAtMidnight(p) && !c.byRequest(p) {
		g.day = c.bill.FirstDay
		return g, true, true
	}
	return g, !g.day.Before(c.bill.FirstDay) && !g.day.After(c.bill.LastDay), false
}

func (c *comparing) addPair(p *Pair) {
	g, ours, early := c.groupOf(p)
	if !ours {
		return
	}
	s := c.groups[g]
	if s == nil {
		s = &sums{parts: map[Kind]*Part{}}
		c.groups[g] = s
	}
	if early {
		s.early += p.Recorded
		return
	}

	s.lines, s.calls, s.recorded = s.lines+p.Lines, s.calls+p.Calls, s.recorded+p.Recorded
	if p.NoPrice {
		s.noPrice += p.Calls
	}
	if c.byRequest(p) {
		billed := p.Billed.Round()
		s.billed += billed
		s.add(c.kindOf(p), billed-p.Recorded, 1)
		return
	}

	s.daily, _ = s.daily.Add(p.Billed) // the sum of all lines fits
	s.dailyLines, s.dailyCalls, s.dailyRecorded = s.dailyLines+p.Lines, s.dailyCalls+p.Calls, s.dailyRecorded+p.Recorded
	s.negative, s.repeated = s.negative+p.Negative, s.repeated+p.Repeated
	switch c.reasonOf(p) {
	case AfterEnd:
		s.afterEnd += p.Recorded
	case CancelledStream:
		s.cancelled += p.Recorded
	case OurEstimate:
		s.estimated += p.Recorded
	case OtherDay:
		s.boundary += p.Recorded
	default: // it must be on the bill
	}
}

// byRequest reports whether a pair is compared by itself: if it has lines of a request, or if all lines of the bill have one.
func (c *comparing) byRequest(p *Pair) bool {
	return p.ByRequest || (p.Lines == 0 && c.bill.WithRequest == c.bill.Lines)
}

// reasonOf returns why records may have another amount on the bill, or none; empty if there is no reason.
func (c *comparing) reasonOf(p *Pair) Kind {
	switch {
	case p.Calls == 0:
		return ""
	case p.Lines == 0 && p.At.After(c.bill.EndsAt):
		return AfterEnd
	case p.Cancelled:
		return CancelledStream
	case p.Estimated:
		return OurEstimate
	case p.Lines == 0 && c.endsAtMidnight(p):
		return OtherDay
	}
	return ""
}

// endsAtMidnight reports whether calls ended so shortly before the end of a day that they may be billed on the next one.
func (c *comparing) endsAtMidnight(p *Pair) bool {
	return endOf(dayOf(p.At, c.zone), c.zone).Sub(p.At) <= boundaryTime
}

// kindOf returns the kind of the difference of a request.
func (c *comparing) kindOf(p *Pair) Kind {
	delta := p.Billed.Round() - p.Recorded
	n := money.Nano(p.Lines)
	reason := c.reasonOf(p)
	switch {
	case p.Calls == 0 && delta < 0:
		return Credited
	case p.Calls == 0:
		return UnknownCall
	case p.Lines == 0 && reason == OtherDay && dayOf(p.At, c.zone).Before(c.bill.LastDay):
		return NotBilled // the bill has the next day, but not the request
	case p.Lines == 0:
		return cmp.Or(reason, NotBilled)
	case abs(delta) <= n*c.tolerance()+money.Nano(p.Calls):
		return Rounding
	case n > 1 && abs(p.First-p.Recorded) <= c.tolerance() && abs(delta-(n-1)*p.First) <= n*c.tolerance():
		return BilledTwice
	case p.NoPrice:
		return NoPrice
	case p.Negative < 0 && delta < 0:
		return Credited
	default:
		return cmp.Or(reason, Price)
	}
}

// tolerance is by how much an amount of the bill may differ from the exact one.
func (c *comparing) tolerance() money.Nano { return (c.bill.Step + 1) / 2 }

// sharedNames reports whether bill and records have a name in common. If there are records and none does, the bill has names of
// its own, such as product codes: then the groups are joined without them.
func (c *comparing) sharedNames(of func(*group) *string) bool {
	billed, called := map[string]bool{}, map[string]bool{}
	for g, s := range c.groups {
		if s.lines > 0 {
			billed[*of(&g)] = true
		}
		if s.calls > 0 {
			called[*of(&g)] = true
		}
	}
	for name := range called {
		if billed[name] && name != "" {
			return true
		}
	}
	if len(called) == 0 || len(billed) == 0 {
		return true
	}

	joined := map[group]*sums{}
	for g, s := range c.groups {
		*of(&g) = ""
		if first := joined[g]; first != nil {
			first.merge(s)
		} else {
			joined[g] = s
		}
	}
	c.groups = joined
	return false
}

// sorted returns the groups in order.
func (c *comparing) sorted() []group {
	return slices.SortedFunc(maps.Keys(c.groups), func(a, b group) int {
		return cmp.Or(a.day.Compare(b.day), cmp.Compare(a.model, b.model), cmp.Compare(a.credential, b.credential))
	})
}

// left is what is billed without a line for each request, less what is recorded.
func (s *sums) left() money.Nano { return s.daily.Round() - s.dailyRecorded - s.moving }

// moveDays finds what is billed on the day after it was recorded: as much as the one day lacks and the next has too much, and no more
// than the requests that ended shortly before midnight.
func (c *comparing) moveDays() {
	for _, g := range c.sorted() {
		s, after := c.groups[g], c.groups[group{g.day.AddDate(0, 0, 1), g.model, g.credential}]
		if after == nil {
			continue
		}
		if n := min(-s.left(), after.left(), s.boundary); n > 0 {
			s.move(OtherDay, -n)
			after.move(OtherDay, n)
		}
	}
}

// moveLines finds what the bill has on lines that name no model, while the models of the day lack it.
func (c *comparing) moveLines() {
	for _, g := range c.sorted() {
		without := c.groups[group{g.day, "", g.credential}]
		if g.model == "" || without == nil || without.calls > 0 {
			continue
		}
		s := c.groups[g]
		if n := min(-s.left()-s.afterEnd, without.left()); n > 0 && s.dailyLines > 0 {
			s.move(OtherLine, -n)
			without.move(OtherLine, n)
		}
	}
}

func (s *sums) move(kind Kind, n money.Nano) {
	s.add(kind, n, 1)
	s.moving += n
}

// finish names what is left of each group, as far as its requests can explain it.
func (c *comparing) finish(result *Comparison) {
	all := sums{parts: map[Kind]*Part{}}
	for _, g := range c.sorted() {
		s := c.groups[g]
		c.explain(g.day, s)
		s.billed += s.daily.Round()
		all.merge(s)
		if len(s.parts) == 0 {
			continue
		}
		result.Differences = append(result.Differences, Difference{
			Number:     int64(len(result.Differences) + 1),
			Day:        g.day,
			Model:      g.model,
			Credential: g.credential,
			Billed:     s.billed,
			Recorded:   s.recorded,
			Lines:      s.lines,
			Calls:      s.calls,
			Parts:      inOrder(s.parts),
		})
	}
	result.Billed, result.Recorded, result.Calls, result.Parts = all.billed, all.recorded, all.calls, inOrder(all.parts)
}

func (c *comparing) explain(day time.Time, s *sums) {
	left := s.left()
	take := func(kind Kind, limit money.Nano) {
		n := max(min(left, limit), -limit)
		s.add(kind, n, 1)
		left -= n
	}
	take(Rounding, money.Nano(s.dailyLines)*c.tolerance()+money.Nano(s.dailyCalls)*min(c.bill.Step, 1))
	if left < 0 {
		take(AfterEnd, s.afterEnd)
		take(Credited, -s.negative)
	}
	take(OurEstimate, s.estimated)
	take(CancelledStream, s.cancelled)
	switch { // the days before the first and after the last are on other bills
	case left > 0:
		take(OtherDay, s.early)
	case day.Equal(c.bill.LastDay):
		take(OtherDay, s.boundary)
	}
	slack := money.Nano(s.dailyLines) * c.tolerance()
	switch {
	case s.dailyCalls == 0 && left < 0:
		take(Credited, -left)
	case s.calls == 0 && s.moving == 0:
		take(UnknownCall, abs(left))
	case s.lines == 0:
		take(NotBilled, abs(left))
	case s.noPrice > 0 && left > 0:
		take(NoPrice, left)
	case s.repeated > 0 && abs(left-s.repeated) <= 2*slack+1:
		take(BilledTwice, abs(left))
	default:
		take(Unexplained, abs(left))
	}
}

// inOrder returns parts in the order of Kinds.
func inOrder(parts map[Kind]*Part) []Part {
	var list []Part
	for _, kind := range Kinds {
		if part := parts[kind]; part != nil {
			list = append(list, *part)
		}
	}
	return list
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
