// Package devstack owns the whole product on one machine, as `make run` starts
// it: Postgres, NATS, the provider simulator, one control plane and two data
// planes, with an account, a key and a catalog to try it with.
//
// It runs the real binaries with the real configuration, and knows them only by
// their settings, their probes and the admin API. It is not a way to run the
// product in production.
//
// Invariants:
//   - everything listens on 127.0.0.1;
//   - everything that it writes lies in one directory (.dev), but for a database
//     that the server's user could not reach there;
//   - one stack at a time runs in a directory;
//   - stack.json exists only while the stack is ready;
//   - a second run finds the account, key and data of the first, however that
//     ended.
package devstack
