// Package conformance tests all wire formats with one suite. It holds tests only.
//
// Each format passes the same tests: its parameter table does what it says, its
// answers are rewritten without a change to anything else, usage is read in full, no
// event allocates memory, and no input makes a reader panic. testdata holds answers by
// format; the golden files of a fixture have ".client." in their names and are what the
// client gets.
package conformance
