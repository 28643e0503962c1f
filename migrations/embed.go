// Package migrations owns the database schema: numbered SQL files, applied in
// order by the control plane. A file that has been released is never edited;
// schema changes expand first and contract a release later, so that two
// neighbouring versions run side by side.
package migrations

import "embed"

// Files holds the migrations, named NNNNN_what.sql.
//
//go:embed *.sql
var Files embed.FS
