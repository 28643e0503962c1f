// Package leasetest has the property tests of shared/lease that need more than
// the standard library: a random state machine of an allocator and the holders of
// several sessions, in which messages are repeated, delayed and reordered.
package leasetest
