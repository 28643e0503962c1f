// Package pgcluster runs a private Postgres cluster with the binaries of the machine: it
// finds or installs them, creates the data directory, and starts and stops the server.
// The dev stack and the database tests use it.
//
// It sends no SQL, does not depend on the schema, and is not part of a production
// deployment.
//
// Invariants:
//   - a server listens on 127.0.0.1 only, and on no Unix socket;
//   - a data directory either does not exist or is complete, because it is created under
//     another name and renamed;
//   - no server outlives the process that started it, however that process ends;
//   - a start succeeds after kill -9 of any process, because Start first ends the
//     remaining processes of the last server in the same directory.
//
// Postgres refuses to run as root. If root calls this package, all programs that access
// the data run as the user postgres, or as nobody if there is no such user.
package pgcluster
