package admin

// Addresses returns how many addresses are remembered.
func (g *Guard) Addresses() int {
	g.failures.mu.Lock()
	defer g.failures.mu.Unlock()
	return len(g.failures.addresses)
}
