// Package lease has the order of the checks with which a proxy admits a request, and is the parent of the packages that
// implement the lease protocol.
// By it the control plane distributes scarce quantities (an account's balance, a
// key's spend limit, an account's slots) to the proxies. docs/protocol
// explains the protocol and why it is correct. The packages are:
//
//   - allocator: the control plane's decisions over locked pools and leases, in batches
//   - holder: a proxy's side of the leases of one account in one session
//   - session: registration and heartbeats, session records, key changes in order, the acknowledgement barrier
//   - settlement: which usage events of a batch are charged, once
//   - usagelog: a proxy's usage events that are not settled yet
//   - rollback: how control planes detect that Postgres lost commits
//
// The messages are in package wire. The packages have no goroutine, clock or
// I/O, so that production and the simulation (scripts/sim) run the same code.
package lease
