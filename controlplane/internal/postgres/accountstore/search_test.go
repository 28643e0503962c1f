package accountstore_test

import (
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/search"
	"modelgateway/shared/ident"
)

// Names are found by any part of at least three characters, whatever they are made of, and by their beginnings.
func TestSearchFindsTheMiddleOfNames(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	for _, name := range []string{"Northwind Robotics", "50%_off \\ Ltd", "Bäckerei Müller", "ab"} {
		if _, err := db.Pool().Exec(t.Context(), "insert into accounts (id, name, max_concurrent_requests, revision) values ($1, $2, 1, 1)", ident.New(), name); err != nil {
			t.Fatal(err)
		}
	}
	found := search.NewService(accountstore.NewSearch(db), nil)
	for text, want := range map[string]string{
		"robot":              "Northwind Robotics",
		"WIND ROB":           "Northwind Robotics",
		"ics":                "Northwind Robotics",
		"no":                 "Northwind Robotics",
		"ab":                 "ab",
		"%_o":                "50%_off \\ Ltd",
		"\\ l":               "50%_off \\ Ltd",
		"üll":                "Bäckerei Müller",
		"botirob":            "", // all of its parts are in the name
		"cs":                 "",
		"northwind robotica": "",
	} {
		results, err := found.Find(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(results); got > 1 || (got == 1) != (want != "") || (got == 1 && results[0].Name != want) {
			t.Errorf("%q: got %+v; want %q", text, results, want)
		}
	}
}
