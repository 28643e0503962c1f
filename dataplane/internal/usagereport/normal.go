package usagereport

import "modelgateway/shared/price"

// Inside returns the usage of a report whose details are parts of its input and output, unless they cannot be.
func (c *Counts) Inside() price.Usage {
	u := c.disjoint(false)
	u.ServerToolRequests = c.calls
	if !c.statesCalls {
		u.ServerToolRequests = max(c.calls, c.sources)
	}
	var outside int64
	for _, part := range [...]int64{c.cached, u.CacheWrite30m + u.CacheWrite12h + u.CacheWriteOther, u.CacheWrite5m + u.CacheWrite1h} {
		if part <= u.Input {
			u.Input -= part
		} else {
			outside += part
		}
	}
	if more := c.Total - c.Input - c.Output - outside; more > 0 {
		u.Output += more
		u.Reasoning = max(u.Reasoning, more)
	}
	return u
}

// Picture is Inside for the report of an image model: without details, all of its output is the image.
func (c *Counts) Picture() price.Usage {
	u := c.Inside()
	if !c.statesImageOut {
		u.ImageOut = u.Output
	}
	return u
}

// Beside returns the usage of a report whose cached and written tokens are beside its input. hourly reports whether cache
// writes without a lifetime are for one hour.
func (c *Counts) Beside(hourly bool) price.Usage {
	u := c.disjoint(hourly)
	u.ServerToolRequests = c.calls
	return u
}

// disjoint returns the counts as they are, with the cache writes by lifetime.
func (c *Counts) disjoint(hourly bool) price.Usage {
	u := price.Usage{
		Input: c.Input, CachedInput: c.cached,
		Output: c.Output, Reasoning: c.reasoning,
		AudioIn: c.audioIn, ImageIn: c.imageIn, AudioOut: c.audioOut, ImageOut: c.imageOut,
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
	if c.isReseller {
		u.CacheWriteOther = max(c.written, c.written30m+c.written12h)
		return u
	}
	// Writes without a lifetime have the shorter one.
	u.CacheWrite30m = max(c.written30m, c.written-c.written12h)
	u.CacheWrite12h = c.written12h
	return u
}
