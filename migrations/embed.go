// Package migrations owns the database schema: numbered SQL files, applied in
// order by the control plane. A file that has been released is never edited;
// schema changes expand first and contract a release later, so that two
// neighbouring releases run side by side.
package migrations

import "embed"

// Files holds the migrations, named such as 00042_add_regions.sql.
//
//go:embed *.sql
var Files embed.FS
