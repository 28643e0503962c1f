// Package docs holds the tests of the repository's documents: that links lead
// somewhere, that cited invariants, tests, targets and settings exist, and that
// the glossary names what is in the code.
package docs
