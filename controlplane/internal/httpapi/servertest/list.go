package servertest

import (
	"slices"
	"testing"
)

// Sorted returns a sorted copy.
func Sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }

// Walk reads a list page by page and returns its ids. It calls a function between the pages.
func Walk(t *testing.T, list func(limit *int, cursor *string) (ids []string, next *string), between func()) []string {
	t.Helper()
	var found []string
	var cursor *string
	for range 20 {
		ids, next := list(new(2), cursor)
		if len(ids) > 2 || next != nil && len(ids) != 2 {
			t.Errorf("a page of 2 holds %v", ids)
		}
		found = append(found, ids...)
		if cursor = next; cursor == nil {
			return found
		}
		between()
	}
	t.Fatalf("no end after %v", found)
	return nil
}

// IDsOf returns the ids of a list.
func IDsOf[E any](list []E, id func(E) string) []string {
	var ids []string
	for _, e := range list {
		ids = append(ids, id(e))
	}
	return ids
}
