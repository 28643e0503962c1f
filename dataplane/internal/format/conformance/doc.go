// Package conformance tests all wire formats with one suite. It holds tests only.
//
// Each format must pass the same tests: every parameter is treated as its table says, answers are rewritten without any
// other change, all reported usage is read, no event allocates memory, and no input makes a reader panic. testdata
// holds answers by format; the golden file of a fixture, with ".client." in its name, is the answer that the client
// gets.
package conformance
