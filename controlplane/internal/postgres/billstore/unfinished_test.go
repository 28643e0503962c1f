package billstore_test

import (
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/billstore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/ident"
)

// lines counts the lines of all bills.
func (w *world) lines() int {
	return storetest.Scalar[int](w, "select count(*) from provider_bill_lines")
}

// A file that is refused after lines of it were stored leaves none.
func TestRefusedFileLeavesNoLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := "day,model,amount\n" + strings.Repeat(yesterday.Format(time.DateOnly)+",demo,1\n", 12_000)
	if _, _, err := w.importFile(text+"broken\n", nil); err == nil || w.lines() != 0 {
		t.Errorf("got %v and %d lines; want the file refused, and none", err, w.lines())
	}
	first := w.mustImport(text)
	if again, created, err := w.importFile(text, nil); err != nil || created || again.ID != first.ID || w.lines() != 12_000 {
		t.Errorf("the same file again: got %t, %v and %d lines; want the first bill, and its 12000", created, err, w.lines())
	}
}

// The lines of an import whose process was stopped are removed when it can be none that is under way, and no others.
func TestLinesOfUnfinishedImportsAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustImport(rows("DAY,demo-1,1.000000000,"))
	insert := func(bill ident.UUID) {
		_, err := w.SQL.Exec(t.Context(), `insert into provider_bill_lines
			select $1, n, now(), 'demo', '', '', 1, 0, 0, 0, 0 from generate_series(1, 3) n`, bill)
		if err != nil {
			t.Fatal(err)
		}
	}
	insert(ident.NewAt(time.Now().Add(-3 * time.Hour)))
	insert(ident.NewAt(time.Now().Add(-2 * time.Hour)))
	insert(ident.NewAt(time.Now().Add(-30 * time.Minute)))
	for range 2 {
		if err := billstore.New(w.Replica()).RemoveUnfinished(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.lines(); n != 1+3 {
			t.Errorf("got %d lines; want that of the bill, and the 3 of the import under way", n)
		}
	}
}
