package moneystore_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// settleAt settles a request that began at a time, and returns the result.
func (w *world) settleAt(a *worldAccount, at time.Time, cost money.Nano) settle.Result {
	w.t.Helper()
	w.events++
	return w.deliver(event.Usage{
		V: event.Version, RequestID: ident.Request.Format(ident.NewAt(at)), Session: w.session, Seq: w.events, AccountID: a.id.String(), KeyID: a.key.String(),
		Model: "m", Format: "chat", Status: event.Completed, Usage: price.Usage{Input: 1}, Rule: event.RuleReported, PriceVersion: 1, Cost: cost,
	})
}

func (w *world) deliver(e event.Usage) settle.Result {
	w.t.Helper()
	raw, err := json.Marshal(e)
	storetest.Check(w.t, err)
	batch, err := json.Marshal(event.Batch{V: 1, Session: w.session, Events: []json.RawMessage{raw}})
	storetest.Check(w.t, err)
	result, err := settle.New(moneystore.NewSettlement(w.db), nil).Settle(w.t.Context(), settle.DecodeBatch(batch))
	storetest.Check(w.t, err)
	return result
}

// archives returns a service that keeps usage for one month, with or without an export directory.
func (w *world) archives(dir string) *archive.Service {
	return w.archivesOf(usagestore.NewArchive(w.db), dir)
}

func (w *world) archivesOf(store archive.Store, dir string) *archive.Service {
	return archive.New(archive.Config{
		Store: store, ReadFunc: usage.NewService(usagestore.NewUsage(w.db)).Export,
		Log: slog.New(slog.DiscardHandler), Dir: dir, UsageRetentionMonths: 1, AuditRetentionMonths: 1,
	})
}

// partitionOf creates the partition of some months ago and returns a time in it.
func (w *world) partitionOf(months int) time.Time {
	w.t.Helper()
	now := time.Now().UTC()
	at := time.Date(now.Year(), now.Month()-time.Month(months), 15, 0, 0, 0, 0, time.UTC)
	_, err := w.db.Pool().Exec(w.t.Context(), "select ensure_usage_partitions($1, now())", at)
	storetest.Check(w.t, err)
	return at
}

func readLines(t *testing.T, dir, name string) (lines []string, sum [sha256.Size]byte) {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join(dir, name))
	storetest.Check(t, err)
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	storetest.Check(t, err)
	text, err := io.ReadAll(plain)
	storetest.Check(t, err)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines, sha256.Sum256(packed)
}

// A month past its retention is exported to a file once and dropped. Its ledger
// entries and roll-ups stay.
func TestOldMonthsAreExportedAndDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	old := w.partitionOf(3)
	storetest.Check(t, w.post(t.Context(), a, ledger.Payment, money.Unit))
	for i := range 3 {
		if r := w.settleAt(a, old.Add(time.Duration(i)*time.Minute), money.Nano(10+i)); r.Settled != 1 {
			t.Fatalf("settled %+v", r)
		}
		a.balance, a.spent = a.balance-money.Nano(10+i), a.spent+money.Nano(10+i)
	}
	storetest.Check(t, w.charge(t.Context(), a, 7))
	before := w.totals()
	dir := t.TempDir()
	storetest.Check(t, w.archives(dir).Run(t.Context()))
	w.verify()
	if after := w.totals(); after != before {
		t.Errorf("totals were %+v, and are %+v", before, after)
	}
	months, err := w.archives(dir).Months(t.Context())
	storetest.Check(t, err)
	first := months[0]
	if first.Month.Month() != old.Month() || first.Records != 3 || first.Cost != 33 || first.ExportedAt.IsZero() || first.DroppedAt.IsZero() || first.ExportedBy != "system" {
		t.Errorf("first month: %+v", first)
	}
	lines, sum := readLines(t, dir, first.File)
	if len(lines) != 3 || string(sum[:]) != string(first.SHA256) {
		t.Errorf("%s holds %q, with sum %x; want three lines, %x", first.File, lines, sum, first.SHA256)
	}
	made, err := statement.NewService(moneystore.NewStatements(w.db)).Make(t.Context(), statement.Query{
		AccountID: a.id, Period: statement.Period{From: time.Now().AddDate(0, 0, -2), To: time.Now().AddDate(0, 0, 2)},
	})
	storetest.Check(t, err)
	if made.Usage != 40 || made.Closing != a.balance {
		t.Errorf("statement: %+v; want usage of 40 and a balance of %s", made, a.balance)
	}
	// Events of the month go into quarantine now, new and repeated ones, and nothing is charged.
	if r := w.settleAt(a, old.Add(time.Hour), 5); r.Quarantined != 1 {
		t.Errorf("a late event of the month: %+v; want quarantine", r)
	}
	w.verify()
	storetest.Check(t, w.archives(dir).Run(t.Context())) // nothing is left to do
	if again, err := w.archives(dir).Months(t.Context()); err != nil || len(again) != len(months) || !again[0].DroppedAt.Equal(first.DroppedAt) {
		t.Errorf("run again: %+v, %v", again, err)
	}
}

// earlier is a store whose clock is a month behind.
type earlier struct{ *usagestore.Archive }

// Now returns a time in the middle of the last month.
func (earlier) Now(context.Context) (time.Time, error) {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()-1, 15, 0, 0, 0, 0, time.UTC), nil
}

// The age of a month is computed with the clock of Postgres, so a replica whose clock
// is ahead does not close a month too early.
func TestMonthAgeUsesPostgresClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	old := w.partitionOf(2)
	store := usagestore.NewArchive(w.db)
	storetest.Check(t, w.archivesOf(earlier{store}, "").Run(t.Context()))
	if r := w.settleAt(&w.accounts[0], old, 10); r.Settled != 1 {
		t.Errorf("settled %+v: the month was closed too early", r)
	}
	storetest.Check(t, w.archivesOf(store, "").Run(t.Context()))
	if r := w.settleAt(&w.accounts[0], old.Add(time.Minute), 10); r.Quarantined != 1 {
		t.Errorf("settled %+v: the month is not closed", r)
	}
}

func (w *world) totals() usage.Sums {
	w.t.Helper()
	found, err := usage.NewService(usagestore.NewUsage(w.db)).Totals(w.t.Context(), usage.TotalQuery{Limit: 2})
	storetest.Check(w.t, err)
	if len(found) != 1 {
		w.t.Fatalf("got %d totals", len(found))
	}
	return found[0].Sums
}

// Without an export directory a closed month waits until an operator has exported it.
func TestMonthsWaitForOperatorWithoutDir(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	old := w.partitionOf(2)
	w.settleAt(a, old, 10)
	a.balance, a.spent = -10, 10
	storetest.Check(t, w.charge(t.Context(), a, 1))
	storetest.Check(t, w.post(t.Context(), a, ledger.Payment, money.Unit))
	service := w.archives("")
	running := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).Truncate(24 * time.Hour)
	if err := service.MarkExported(t.Context(), running); !errors.Is(err, archive.ErrNotClosed) {
		t.Errorf("the running month: got %v; want ErrNotClosed", err)
	}
	storetest.Check(t, service.Run(t.Context()))
	storetest.Check(t, service.Run(t.Context()))
	w.verify()
	months, err := service.Months(t.Context())
	storetest.Check(t, err)
	if len(months) == 0 || !months[0].ExportedAt.IsZero() || !months[0].DroppedAt.IsZero() {
		t.Fatalf("months: %+v; want one that is not exported", months)
	}
	if r := w.settleAt(a, old.Add(time.Minute), 10); r.Quarantined != 1 {
		t.Errorf("an event of a closed month: %+v; want quarantine", r)
	}
	// The partition refuses inserts itself, for a batch that was checked before the month was closed.
	_, err = w.db.Pool().Exec(t.Context(), `insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, status, started_at,
		finished_at, usage, rule, price_version, cost, reservation) values ($1, 1, 1, $1, $1, 'm', 'chat', 'completed', now(), clock_timestamp(), '{}', 'r', 1, 0, 0)`,
		ident.NewAt(old.Add(time.Minute)))
	if err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("an insert into a closed month: %v; want it refused", err)
	}
	if _, err := w.db.Pool().Exec(t.Context(), "select drop_usage_month($1)", months[0].Month); err != nil {
		t.Fatal(err)
	}
	if left := w.count("select count(*) from usage_records where cost = 10"); left != 1 {
		t.Error("a month was dropped that nobody has exported")
	}
	booked := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	storetest.Check(t, service.MarkExported(t.Context(), months[0].Month))
	storetest.Check(t, service.MarkExported(t.Context(), months[0].Month))
	storetest.Check(t, service.Run(t.Context()))
	if left := w.count("select count(*) from usage_records where cost = 10"); left != 0 {
		t.Error("the month is still there")
	}
	w.verify()

	// Days of another zone are summed from the records, of which some are missing now.
	day := old.Truncate(24 * time.Hour)
	for _, zone := range storetest.Zones {
		_, err := usage.NewService(usagestore.NewUsage(w.db)).Totals(t.Context(), usage.TotalQuery{AccountID: a.id, From: day, To: day.AddDate(0, 0, 1), Zone: zone, Limit: 1})
		if dropped := errors.Is(err, usage.ErrRecordsDropped); dropped == usage.IsUTC(zone) {
			t.Errorf("totals in %v of a month that was dropped: got %v", zone, err)
		}
		_, err = statement.NewService(moneystore.NewStatements(w.db)).Make(t.Context(), statement.Query{
			AccountID: a.id, Period: statement.Period{From: booked, To: booked.AddDate(0, 0, 3)}, Zone: zone,
		})
		if dropped := errors.Is(err, usage.ErrRecordsDropped); dropped == usage.IsUTC(zone) {
			t.Errorf("a statement in %v with charges of that month: got %v", zone, err)
		}
	}
}

func (w *world) count(query string) (n int64) {
	w.t.Helper()
	storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), query).Scan(&n))
	return n
}

// Old audit entries are exported to a file and deleted; others cannot be deleted.
func TestOldAuditEntriesAreArchived(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	all := w.count("select count(*) from audit_log")
	if all < 3 {
		t.Fatalf("only %d entries", all)
	}
	_, err := w.db.Pool().Exec(t.Context(), "alter table audit_log disable trigger audit_log_append_only")
	storetest.Check(t, err)
	_, err = w.db.Pool().Exec(t.Context(), "update audit_log set created_at = created_at - interval '100 days' where id <> (select max(id) from audit_log)")
	storetest.Check(t, err)
	_, err = w.db.Pool().Exec(t.Context(), "alter table audit_log enable trigger audit_log_append_only")
	storetest.Check(t, err)
	if _, err := w.db.Pool().Exec(t.Context(), "delete from audit_log"); err == nil {
		t.Error("the audit log can be deleted")
	}
	dir := t.TempDir()
	storetest.Check(t, w.archives(dir).Run(t.Context()))
	storetest.Check(t, w.archives(dir).Run(t.Context()))
	names, err := filepath.Glob(filepath.Join(dir, "audit-*"))
	storetest.Check(t, err)
	if len(names) != 1 {
		t.Fatalf("files: %q; want one", names)
	}
	lines, _ := readLines(t, dir, filepath.Base(names[0]))
	if int64(len(lines)) != all-1 || w.count("select count(*) from audit_log") < 1 || w.count("select count(*) from audit_log where created_at < now() - interval '90 days'") != 0 {
		t.Errorf("%d of %d entries are in the file", len(lines), all)
	}
	if !strings.Contains(lines[0], `"action":"account.create"`) {
		t.Errorf("first line: %s", lines[0])
	}
	if _, err := w.db.Pool().Exec(t.Context(), "delete from audit_log"); err == nil {
		t.Error("audit entries that are not in a file can be deleted")
	}
}

// Records that were settled just before their month is closed are not summed yet: the
// month is not dropped before, and the check of changed rows finds no difference.
func TestMonthIsNotDroppedBeforeItsUsageIsSummed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	old := w.partitionOf(3)
	compare := func(when string) {
		t.Helper()
		report, err := moneystore.NewLedger(w.db).CheckChanged(t.Context())
		storetest.Check(t, err)
		if found := differing(report); found != "" {
			t.Errorf("%s: %s", when, found)
		}
	}
	dir := t.TempDir()
	run := func(when string, dropped bool) {
		t.Helper()
		storetest.Check(t, w.archives(dir).Run(t.Context()))
		months, err := w.archives(dir).Months(t.Context())
		storetest.Check(t, err)
		if first := months[0]; first.Records != 1 || first.ExportedAt.IsZero() || first.DroppedAt.IsZero() == dropped {
			t.Errorf("%s: %+v; want it exported, and dropped %v", when, first, dropped)
		}
		compare(when)
	}
	exec := func(query string) {
		t.Helper()
		_, err := w.db.Pool().Exec(t.Context(), query)
		storetest.Check(t, err)
	}
	storetest.Check(t, w.post(t.Context(), a, ledger.Payment, money.Unit))
	compare("before") // sums are kept from here on
	if r := w.settleAt(a, old, 10); r.Settled != 1 {
		t.Fatalf("settled %+v", r)
	}
	compare("with the record")
	run("just closed", false)
	// As if the month had been closed, and the sums updated, some hours ago.
	exec("alter table usage_records disable trigger all")
	exec("alter table ledger_transactions disable trigger ledger_transactions_append_only")
	part := "usage_records_" + old.Format("200601")
	exec("alter table " + part + " disable trigger append_only; alter table " + part + " drop constraint closed")
	exec("update usage_records set settled_at = settled_at - interval '1 hour'")
	exec("update ledger_transactions set created_at = created_at - interval '1 hour'")
	exec("update ledger_check_state set summed_until = summed_until - interval '2 hours'")
	exec("update usage_months set closed_at = closed_at - interval '1 hour'")
	run("closed long ago, sums not kept since", false)
	run("sums kept since", true)
}

// Months may be dropped in any order: sums that are computed again contain the
// dropped months, and no other month twice.
func TestSumsAreRecomputedAfterMonthWasDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := &w.accounts[0]
	old := w.partitionOf(4)
	for month := range 3 {
		if r := w.settleAt(a, old.AddDate(0, month, 0), money.Nano(10+month)); r.Settled != 1 {
			t.Fatalf("settled %+v", r)
		}
	}
	service := w.archives("")
	storetest.Check(t, service.Run(t.Context()))
	middle := old.AddDate(0, 1, 1-old.Day())
	storetest.Check(t, service.MarkExported(t.Context(), middle))
	storetest.Check(t, service.Run(t.Context()))
	if left := w.count("select count(*) from usage_records"); left != 2 {
		t.Fatalf("%d records are left; want those of two months", left)
	}
	report, err := moneystore.NewLedger(w.db).CheckChanged(t.Context())
	storetest.Check(t, err)
	if found := differing(report); found != "" {
		t.Errorf("found %s", found)
	}
}
