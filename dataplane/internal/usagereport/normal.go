package usagereport

import "modelgateway/shared/price"

// Inside returns the usage of a report that may count its parts inside the whole or beside it: tokens read from and written
// to caches, of pages that were read, of audio, and of reasoning. The total decides which of them are beside. If it allows
// several readings, ambiguous is true and the usage is the one that is cheapest for the customer. If it allows none, or
// there is none, a part is beside the whole only if it is larger, and what only the total includes is reasoning that was
// left out, or the input of a report without one.
func (c *Counts) Inside() (u price.Usage, ambiguous bool) {
	if c.Input == 0 && c.missed > 0 {
		c.Input = c.cached + c.missed
	}

	u = c.disjoint(false)
	u.ServerToolRequests = c.calls
	if !c.statesCalls {
		u.ServerToolRequests = max(c.calls, c.sources)
	}

	p := c.parts(&u)
	p.beside, ambiguous = p.readTotal(c.Total)
	hidden := max(c.Total-c.Input-c.Output-p.sum(p.beside), 0)
	if c.Input == 0 { // the total is not split: what is not output is the input
		if c.Output > 0 {
			u.Input = hidden
		}
		hidden = 0
	}

	for i, n := range p.input() {
		switch outside := p.beside.has(i); {
		case outside && i >= searched:
			u.Input += n
		case !outside && i < searched:
			u.Input -= n
		}
	}

	c.hidden = hidden
	u.Output += p.outputBeside(p.beside) + hidden
	u.Reasoning = max(u.Reasoning, hidden)

	// Cached audio is charged as cached.
	u.AudioIn, u.ImageIn = max(u.AudioIn-c.cachedAudio, 0), max(u.ImageIn-c.cachedImage, 0)
	return u, ambiguous
}

// Picture is Inside for the report of an image model: without details, all of its output is the image.
func (c *Counts) Picture() (u price.Usage, ambiguous bool) {
	u, ambiguous = c.Inside()
	if !c.statesImageOut {
		u.ImageOut = u.Output
	}
	return u, ambiguous
}

// Beside returns the usage of a report whose cached and written tokens are beside its input, unless the total says that they
// are inside. hourly reports whether cache writes without a lifetime are for one hour.
func (c *Counts) Beside(hourly bool) price.Usage {
	u := c.disjoint(hourly)
	if u.Input == 0 {
		u.Input = c.missed
	}
	u.ServerToolRequests = c.calls
	if u.Reasoning > u.Output {
		u.Output += u.Reasoning
	}
	c.readTotal(&u)
	return u
}

// readTotal corrects a usage with disjoint counts by the total: caches may be inside the input, and what only the total has is
// reasoning that was left out, or the input of a report without one.
func (c *Counts) readTotal(u *price.Usage) {
	c.hidden = 0
	caches := u.TotalInput() - u.Input
	switch more := c.Total - u.TotalInput() - u.Output; {
	case more > 0 && u.TotalInput() == 0:
		u.Input = more
	case more > 0:
		c.hidden = more
		u.Output += more
		u.Reasoning = max(u.Reasoning, more)
	case c.Total > 0 && more == -caches && caches <= u.Input:
		u.Input -= caches
	}
}

// disjoint returns the counts as they are, with the cache writes by lifetime.
func (c *Counts) disjoint(hourly bool) price.Usage {
	u := price.Usage{
		Input:       c.Input,
		CachedInput: c.cached,
		Output:      c.Output,
		Reasoning:   c.reasoning,
		AudioIn:     c.audioIn,
		ImageIn:     c.imageIn,
		AudioOut:    c.audioOut,
		ImageOut:    c.imageOut,
	}
	u.CacheWrite5m, u.CacheWrite1h = c.created5m, c.created1h
	switch more := c.created - c.created5m - c.created1h; {
	case more < 0: // the total is newer than its split
		u.CacheWrite1h = min(c.created1h, c.created)
		u.CacheWrite5m = c.created - u.CacheWrite1h
	case hourly:
		u.CacheWrite1h += more
	default:
		u.CacheWrite5m += more
	}

	if c.written == c.created && c.written > 0 {
		return u // one count under two names
	}

	if c.isReseller {
		u.CacheWriteOther = max(c.written, c.written30m+c.written12h)
		return u
	}

	// Writes without a lifetime have the shorter one.
	u.CacheWrite30m = max(c.written30m, c.written-c.written12h)
	u.CacheWrite12h = c.written12h
	return u
}
