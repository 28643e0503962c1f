// Package pgcluster owns a private Postgres cluster made from the machine's
// own binaries: finding or installing them, creating the data directory,
// starting the server and stopping it. The development stack and the database
// tests run on it.
//
// It does not speak SQL, knows nothing of the schema, and is no part of a
// production deployment.
//
// Invariants:
//   - a server listens on 127.0.0.1 only, and on no Unix socket;
//   - a data directory either does not exist or is complete: it is made aside
//     and renamed into place;
//   - no server outlives the process that started it, however that ends;
//   - a start after kill -9 of anything succeeds: what is left of the last
//     server in the same directory is ended first.
//
// Postgres refuses to run as root. Started by root, everything that touches
// the data runs as the user postgres, or nobody where there is none.
package pgcluster
