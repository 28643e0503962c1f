package accountstore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// A project is found as a key is: by the middle of its name, by the beginning of its reference, and by that of its id.
func TestSearchFindsProjects(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	owner, id := ident.New(), ident.New()
	for _, insert := range []string{
		"insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'Example', 1, 1)",
		"insert into projects (id, account_id, name, external_id, revision) values ($2, $1, 'The Web Shop', 'SHOP-7', 1)",
		"insert into projects (id, account_id, name, revision) values (gen_random_uuid(), $1, 'Another', 1)",
	} {
		if _, err := db.Pool().Exec(t.Context(), insert, []any{owner, id}[:1+strings.Count(insert, "$2")]...); err != nil {
			t.Fatal(err)
		}
	}
	found := search.NewService(accountstore.NewSearch(db), nil)
	want := []search.Result{{
		Type: search.Project, ID: ident.Project.Format(id), AccountID: ident.Account.Format(owner), Name: "The Web Shop", ExternalID: "SHOP-7",
	}}
	for _, text := range []string{"web shop", "th", "SHOP", want[0].ID, want[0].ID[:20]} {
		got, err := found.Find(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
