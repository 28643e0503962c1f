package price

// Unit is what a quantity counts.
type Unit int

// The units.
const (
	Tokens Unit = iota
	ImageUnit
	SecondUnit
	CallUnit
)

// Kind describes one kind of quantity of a usage.
type Kind struct {
	// Line is the name in JSON, in price sheets and in receipts.
	Line Line
	Unit Unit
	// Fallback is the line whose rate applies if the sheet has no rate for Line: Input or Output. Input, Output and what is
	// not counted in tokens have none.
	Fallback Line
	// IsPart means that the quantity is counted in that of Fallback, too.
	IsPart bool
	// IsCacheWrite means input tokens that are written to a cache.
	IsCacheWrite bool
	// CostsMore means that providers charge clearly more for it than for Fallback, whose rate then is too low.
	CostsMore bool
}

// Kinds are the kinds of quantities, in the order of Usage's members.
var Kinds = [...]Kind{
	{Line: Input},
	{Line: CachedInput, Fallback: Input},
	{Line: CacheWrite5m, Fallback: Input, IsCacheWrite: true},
	{Line: CacheWrite1h, Fallback: Input, IsCacheWrite: true, CostsMore: true},
	{Line: CacheWrite30m, Fallback: Input, IsCacheWrite: true},
	{Line: CacheWrite12h, Fallback: Input, IsCacheWrite: true, CostsMore: true},
	{Line: CacheWriteOther, Fallback: Input, IsCacheWrite: true},
	{Line: Output},
	{Line: Reasoning, Fallback: Output, IsPart: true},
	{Line: AudioIn, Fallback: Input, IsPart: true, CostsMore: true},
	{Line: AudioOut, Fallback: Output, IsPart: true, CostsMore: true},
	{Line: ImageIn, Fallback: Input, IsPart: true},
	{Line: ImageOut, Fallback: Output, IsPart: true},
	{Line: Images, Unit: ImageUnit},
	{Line: Seconds, Unit: SecondUnit},
	{Line: ServerTool, Unit: CallUnit},
}

// IsInput reports whether the kind is counted in input tokens, read from or written to a cache or not.
func (k *Kind) IsInput() bool { return k.Line == Input || k.Fallback == Input }

// IsOutput reports whether the kind is counted in output tokens.
func (k *Kind) IsOutput() bool { return k.Line == Output || k.Fallback == Output }

// Counts returns the counts of a usage in the order of Kinds.
func (u *Usage) Counts() [len(Kinds)]*int64 {
	return [...]*int64{
		&u.Input,
		&u.CachedInput,
		&u.CacheWrite5m,
		&u.CacheWrite1h,
		&u.CacheWrite30m,
		&u.CacheWrite12h,
		&u.CacheWriteOther,
		&u.Output,
		&u.Reasoning,
		&u.AudioIn,
		&u.AudioOut,
		&u.ImageIn,
		&u.ImageOut,
		&u.Images,
		&u.Seconds,
		&u.ServerToolRequests,
	}
}

// CacheWrite returns all input tokens that were written to a cache.
func (u *Usage) CacheWrite() (n int64) {
	for i, count := range u.Counts() {
		if Kinds[i].IsCacheWrite {
			n += *count
		}
	}
	return n
}

// fallbackLines holds the line whose rate applies if the sheet has no rate for a line.
var fallbackLines = fallbacks()

func fallbacks() map[Line]Line {
	lines := map[Line]Line{}
	for _, k := range Kinds {
		if k.Fallback != "" {
			lines[k.Line] = k.Fallback
		}
	}
	return lines
}
