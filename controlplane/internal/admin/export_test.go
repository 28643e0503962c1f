package admin

// Addresses returns how many addresses are remembered.
func (g *Guard) Addresses() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.addresses)
}
