package bytebudget

import "sync"

// PerAccount bounds how many things of one kind an account, or one of its keys, has at the same time. The zero value is ready, and it is
// safe for concurrent use.
type PerAccount struct {
	mu sync.Mutex
	n  map[string]int64
}

// Enter adds one to the count of the account unless it has reached most. Leave takes it away.
func (p *PerAccount) Enter(account string, most int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n[account] >= most {
		return false
	}
	if p.n == nil {
		p.n = map[string]int64{}
	}
	p.n[account]++
	return true
}

// Leave undoes one Enter.
func (p *PerAccount) Leave(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n[account]--; p.n[account] == 0 {
		delete(p.n, account)
	}
}
