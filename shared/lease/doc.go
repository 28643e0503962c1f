// Package lease holds the protocol by which scarce quantities (an account's
// balance, a key's spend limit, an account's slots) are shared out to proxies.
// It has no code of its own; docs/protocol.md is the argument, and its packages
// are:
//
//   - allocator: the control plane's decisions over locked pools and leases
//   - holder: a proxy's side of the leases of one account in one session
//   - session: session records, key changes in order, the acknowledgement barrier
//   - settlement: which usage events of a batch are charged, once
//   - usagelog: a proxy's usage events that are not settled yet
//   - rollback: how control planes find out that Postgres lost commits
//   - sim: the simulation of all of them with seeded faults
//
// The messages are in package wire. All are plain state: no goroutine, no clock
// and no I/O, so that production and the simulation run the same code.
package lease
