// Package docs holds the tests of the repository's documents: that links lead
// somewhere, that cited invariants, tests, targets, settings and metrics exist,
// that the glossary names what is in the code, and that the reference of the
// metrics is up to date.
package docs
