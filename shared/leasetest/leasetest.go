// Package leasetest owns the property tests of shared/lease that need more than
// the standard library: a state machine over a pool's book and the holders of
// its sessions, in which any old message may come again, late, and in any
// order.
package leasetest
