package convert_test

import (
	"strconv"
	"testing"

	"modelgateway/controlplane/internal/httpapi/convert"
)

// Entries that are added or removed between two pages make no other entry appear twice or not at all.
func TestPagesContinueAfterTheLastEntry(t *testing.T) {
	t.Parallel()
	position := func(s *string) []byte { return []byte(*s) }
	list := []string{"b", "d", "f", "h"}
	page, cursor, err := convert.Paginate(new(2), nil, list, position)
	if err != nil || len(page) != 2 || page[1] != "d" || cursor == nil {
		t.Fatalf("the first page: got %v, %v, %v", page, cursor, err)
	}
	page, cursor, err = convert.Paginate(new(2), cursor, []string{"a", "b", "c", "e", "f"}, position)
	if err != nil || len(page) != 2 || page[0] != "e" || page[1] != "f" || cursor != nil {
		t.Errorf("the second page: got %v, %v, %v; want e and f, and no further page", page, cursor, err)
	}
	page, cursor, err = convert.Paginate(new(2), convert.CursorOf([]byte("z")), list, position)
	if err != nil || len(page) != 0 || cursor != nil {
		t.Errorf("after the last entry: got %v, %v, %v; want nothing", page, cursor, err)
	}
}

func TestPageOfAnotherListIsRefused(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{"not base64!", *convert.CursorOf([]byte("text"))} {
		page, err := convert.ReadPage(nil, &cursor)
		if err == nil {
			_, err = page.Number()
		}
		if err == nil {
			t.Errorf("%s is taken for a cursor of numbers", cursor)
		}
	}
	page, err := convert.ReadPage(nil, convert.CursorOf(strconv.AppendInt(nil, 42, 10)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := page.Number(); n != 42 || err != nil {
		t.Errorf("got %d, %v; want 42", n, err)
	}
	if _, err := page.UUID(); err == nil {
		t.Error("a number is taken for the cursor of a list of ids")
	}
	for _, limit := range []int{0, -1, 501} {
		if _, err := convert.ReadPage(&limit, nil); err == nil {
			t.Errorf("a page of %d entries is allowed", limit)
		}
	}
}
