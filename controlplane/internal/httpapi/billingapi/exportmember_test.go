package billingapi_test

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/price"
)

// members returns the names of the members of a struct in JSON.
func members(of any) (names []string) {
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// A table has a column for each member of its rows, so that what one form of an export has is in the other.
func TestTablesHaveAllMembersOfTheirRows(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	b.Credit(b.Account(1).ID, "1.00", "first")
	format := adminclient.ExportFormatCSV
	read := func(copyTo func(into *bytes.Buffer) error) []string {
		t.Helper()
		var text bytes.Buffer
		servertest.Check(t, copyTo(&text))
		row, err := csv.NewReader(&text).Read()
		servertest.Check(t, err)
		return row
	}

	usage := slices.DeleteFunc(append(members(adminclient.UsageRecord{}), members(price.Usage{})...), func(name string) bool {
		return name == "usage" || name == "secondary"
	})
	for _, name := range members(price.Secondary{}) {
		usage = append(usage, "secondary_"+name)
	}
	for name, table := range map[string]struct{ header, members []string }{
		"usage": {read(func(into *bytes.Buffer) error {
			export, err := b.API.ExportUsage(t.Context(), &adminclient.ExportUsageParams{Format: &format})
			servertest.Check(t, err)
			_, err = export.CopyTo(into)
			return err
		}), usage},
		"ledger": {read(func(into *bytes.Buffer) error {
			export, err := b.API.ExportLedger(t.Context(), &adminclient.ExportLedgerParams{Format: &format})
			servertest.Check(t, err)
			_, err = export.CopyTo(into)
			return err
		}), members(adminclient.LedgerEntry{})},
		"margin": {read(func(into *bytes.Buffer) error {
			export, err := b.API.ExportMargin(t.Context(), &adminclient.ExportMarginParams{Format: &format})
			servertest.Check(t, err)
			_, err = export.CopyTo(into)
			return err
		}), members(adminclient.MarginLine{})},
	} {
		for _, member := range table.members {
			if !slices.Contains(table.header, member) {
				t.Errorf("%s: no column for %s", name, member)
			}
		}
		if !slices.Contains(table.header, "currency") {
			t.Errorf("%s: no currency", name)
		}
	}
}

// An export has the filters of its list.
func TestExportsHaveTheFiltersOfTheirLists(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string]struct{ list, export any }{
		"usage":  {adminclient.ListUsageParams{}, adminclient.ExportUsageParams{}},
		"ledger": {adminclient.ListLedgerParams{}, adminclient.ExportLedgerParams{}},
		"margin": {adminclient.GetMarginParams{}, adminclient.ExportMarginParams{}},
	} {
		for field := range reflect.TypeOf(pair.list).Fields() {
			filter := field.Name
			if filter == "Format" { // that of an export is the form of the file
				filter = "RequestFormat"
			}
			if _, has := reflect.TypeOf(pair.export).FieldByName(filter); !has && filter != "Limit" && filter != "Cursor" {
				t.Errorf("%s: the export has no %s", name, filter)
			}
		}
	}

	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	b.Credit(a.ID, "1.00", "first")
	for kind, want := range map[adminclient.TransactionKind]int64{"payment": 2, "refund": 0} {
		for _, account := range []*string{nil, &a.ID} {
			export, err := b.API.ExportLedger(t.Context(), &adminclient.ExportLedgerParams{Kind: &kind, AccountID: account})
			servertest.Check(t, err)
			var text bytes.Buffer
			done, err := export.CopyTo(&text)
			servertest.Check(t, err)
			if account != nil {
				want /= 2 // its own side
			}
			if done.Rows != want {
				t.Errorf("%s of %v: got %d entries; want %d", kind, account, done.Rows, want)
			}
		}
	}
}
