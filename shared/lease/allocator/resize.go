package allocator

// Adjust adds an amount to what the pool was given: a deposit, or a correction
// that takes something away. Then less may be left than sessions hold idle: the
// pool turns central, and whoever hears of the change hands back.
func (p *Pool) Adjust(amount int64) {
	p.Total += amount
	p.Free += amount
	if amount < 0 && !p.Central {
		p.Central = true
		p.Generation++
	}
}

// Resize sets what the pool was given. Free follows, below zero if more is
// spent or handed out than is left.
func (p *Pool) Resize(total int64) { p.Adjust(total - p.Total) }

// SetLimit sets a spend limit, or takes it away.
func (p *Pool) SetLimit(limit *int64) {
	p.Unlimited = limit == nil
	total := int64(0)
	if limit != nil {
		total = *limit
	}
	p.Free += total - p.Total
	p.Total = total
}
