// Package devstack runs the whole product on one machine, for `make run` and for the
// end-to-end tests: Postgres, NATS, the provider simulator, control planes and data
// planes, with a demo account, an API key and a catalog.
//
// It runs the real binaries and uses only their settings, their probes and the admin API.
// It is not meant for production.
//
// Invariants:
//   - all servers listen on 127.0.0.1;
//   - all files are in one directory (.dev), except for a database whose server runs as
//     another user and cannot enter the directory;
//   - one stack at a time runs in a directory;
//   - stack.json exists only while the stack is ready;
//   - a second run uses the account, key and data of the first, however that one ended.
package devstack
