package usagereport

import "modelgateway/shared/price"

// The parts of a report that can be inside its input or output, or beside it. Those of caches are first: they have prices
// of their own, so they are taken out of the input if they are inside.
const (
	cached = iota
	written
	created
	searched
	audioIn
	reasoning
	audioOut
	imageOut
	numParts
)

// parts are the parts of a report with the whole that they belong to.
type parts struct {
	wholeInput, wholeOutput int64
	n                       [numParts]int64
	// beside has the parts that are beside the whole.
	beside set
}

// set is a set of parts.
type set uint16

func (s set) has(part int) bool { return s&(1<<part) != 0 }

// parts returns the parts of a report with the disjoint counts u.
func (c *Counts) parts(u *price.Usage) parts {
	return parts{
		wholeInput: c.Input, wholeOutput: c.Output,
		n: [numParts]int64{
			cached:    u.CachedInput,
			written:   u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther,
			created:   u.CacheWrite5m + u.CacheWrite1h,
			searched:  c.searched,
			audioIn:   u.AudioIn,
			reasoning: u.Reasoning,
			audioOut:  u.AudioOut,
			imageOut:  u.ImageOut,
		},
	}
}

// input returns the parts of the input.
func (p *parts) input() []int64 { return p.n[:reasoning] }

func (p *parts) sum(s set) int64 { return p.sumOf(s, cached, numParts) }

// outputBeside returns the sum of the parts of the output in s.
func (p *parts) outputBeside(s set) int64 { return p.sumOf(s, reasoning, numParts) }

// sumOf returns the sum of those parts from first up to end that are in s.
func (p *parts) sumOf(s set, first, end int) (sum int64) {
	for i := first; i < end; i++ {
		if s.has(i) {
			sum += p.n[i]
		}
	}
	return sum
}

// readTotal returns the parts that are beside the whole according to the total. Among several readings that add up, the one
// with the smallest output is the cheapest: the price does not depend on which parts of the input are beside it as long as
// their sum is the same.
func (p *parts) readTotal(total int64) (beside set, ambiguous bool) {
	more := total - p.wholeInput - p.wholeOutput
	if more <= 0 {
		return p.tooLarge(), false // nothing beside the whole, or a total that cannot be used
	}

	best := int64(-1)
	for s := set(1); s < 1<<numParts; s++ {
		if p.hasNone(s) || p.sum(s) != more || !p.fits(s) {
			continue
		}
		output := p.outputBeside(s)
		ambiguous = ambiguous || best >= 0 && output != best
		if best < 0 || output < best {
			beside, best = s, output
		}
	}

	if best < 0 {
		return p.tooLarge(), false
	}

	return beside, ambiguous
}

// hasNone reports whether a part in s is zero. Then s is the same reading as the set without it.
func (p *parts) hasNone(s set) bool {
	for i, n := range p.n {
		if n == 0 && s.has(i) {
			return true
		}
	}
	return false
}

// fits reports whether the parts that are not beside the whole fit into it. Audio may be cached, so it may also be inside a
// part that is beside.
func (p *parts) fits(beside set) bool {
	inside := ^beside
	return p.sumOf(inside, cached, searched) <= p.wholeInput &&
		p.sumOf(inside, searched, audioIn) <= p.wholeInput &&
		p.sumOf(inside, audioIn, reasoning) <= p.wholeInput+p.sumOf(beside, cached, searched) &&
		p.sumOf(inside, reasoning, numParts) <= p.wholeOutput
}

// tooLarge returns the parts that cannot be inside their whole.
func (p *parts) tooLarge() (beside set) {
	rest := p.wholeInput
	for i, n := range p.input() {
		if i >= searched {
			rest = p.wholeInput
		}
		if n > rest {
			beside |= 1 << i
			continue
		}
		rest -= n
	}
	for i := reasoning; i < numParts; i++ {
		if p.n[i] > p.wholeOutput {
			beside |= 1 << i
		}
	}
	return beside
}
