// Package neighbour tests that two consecutive releases are compatible: the previous release,
// built from its own sources, keeps working after the database was migrated to the schema of
// this tree.
//
// The previous release is the last tag such as v1.2.3 before this commit. Where there is
// none, because nothing has been released or the history has no tags, the tests are skipped.
package neighbour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/e2e/rig"
)

// previousRelease returns the commit of the previous release. It skips the test if there is none.
func previousRelease(t *testing.T, root string) string {
	t.Helper()
	tag, err := command(t, root, "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if err != nil {
		t.Skipf("there is no release yet: no tag such as v1.2.3 before this commit: %v", err)
	}
	commit, err := command(t, root, "git", "rev-parse", strings.TrimSpace(tag)+"^{commit}")
	check(t, err)
	return strings.TrimSpace(commit)
}

// checkout returns the tree of a commit. It is made from the history and cached.
func checkout(t *testing.T, root, commit string) string {
	t.Helper()
	cache := filepath.Join(root, ".cache", "released")
	tree := filepath.Join(cache, commit)
	if _, err := os.Stat(tree); err == nil {
		return tree
	}
	check(t, os.MkdirAll(cache, 0o755))
	partial, err := os.MkdirTemp(cache, "partial-*") //nolint:usetesting // it is renamed to its name in the cache
	check(t, err)
	archive := filepath.Join(partial, "tree.tar")
	run(t, root, "git", "archive", "--output", archive, commit)
	run(t, partial, "tar", "-xf", archive)
	check(t, os.Remove(archive))
	check(t, os.Chmod(partial, 0o755))
	if err := os.Rename(partial, tree); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return tree
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	_, err := command(t, dir, name, args...)
	check(t, err)
}

// stack is the running previous release.
type stack struct {
	BaseURLs    []string `json:"base_urls"`
	AdminURL    string   `json:"admin_url"`
	AdminToken  string   `json:"admin_token"`
	PostgresURL string   `json:"postgres_url"`

	admin *adminclient.Client
}

// start starts the whole previous release on free ports.
func start(t *testing.T, tree string) *stack {
	t.Helper()
	run(t, tree, "go", "build", "-o", "bin/", "./scripts/cmd/devstack")
	var out string
	for range 3 {
		dir, err := os.MkdirTemp("", "modelgateway-neighbour-*") //nolint:usetesting // Postgres may run as another user, who cannot enter t.TempDir
		check(t, err)
		check(t, os.Chmod(dir, 0o755))
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		s, output := tryStart(t, tree, dir)
		if s != nil {
			s.admin, err = adminclient.New(s.AdminURL, s.AdminToken)
			check(t, err)
			return s
		}
		if out = output; !strings.Contains(out, "in use") {
			break
		}
	}
	t.Fatalf("the previous release does not start:\n%s", out)
	return nil
}

// tryStart starts the release in dir. If it ends at once, the result is its output.
func tryStart(t *testing.T, tree, dir string) (*stack, string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "bin", "devstack"), "-dir", dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = tree, &out, &out
	// The ports are below the ephemeral range. They are random, because other tests run at the
	// same time.
	offset := strconv.Itoa(10_000 + rand.IntN(12_000))
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MGW_") }), devstack.OffsetVariable+"="+offset)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	check(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended with the context
		<-ended
	})
	var s stack
	for {
		select {
		case <-ended:
			return nil, out.String()
		case <-time.After(100 * time.Millisecond):
		}
		text, err := os.ReadFile(filepath.Join(dir, "stack.json"))
		if err == nil && json.Unmarshal(text, &s) == nil && s.AdminURL != "" {
			return &s, ""
		}
	}
}

// migrate migrates the running stack to the schema of this tree.
func (s *stack) migrate(t *testing.T, root string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "controlplane")
	run(t, root, "go", "build", "-o", program, "./controlplane/cmd/controlplane")
	cmd := exec.CommandContext(t.Context(), program, "migrate")
	cmd.Env = append(os.Environ(), "MGW_POSTGRES_URL="+s.PostgresURL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
}

// customer is an account with a balance and a key.
type customer struct {
	account, key, secret string
}

func (s *stack) customer(t *testing.T, name string) customer {
	t.Helper()
	account, err := s.admin.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: name})
	check(t, err)
	id := account.Value.ID
	credit, err := s.admin.CreateCredit(t.Context(), id, nil, adminclient.CreditCreate{
		Amount: "10.00", Kind: adminclient.CreditKindTopUp, Reference: name,
	})
	check(t, err)
	key, err := s.admin.CreateKey(t.Context(), id, nil, adminclient.KeyCreate{Name: "key"})
	check(t, err)
	if credit.Value == nil || key.Value == nil {
		t.Fatalf("credit and key: %s, %s", credit.Body, key.Body)
	}
	return customer{id, key.Value.ID, key.Value.Secret}
}

// ask sends a request to each proxy and returns the statuses.
func (s *stack) ask(t *testing.T, c customer) []int {
	t.Helper()
	var statuses []int
	for _, base := range s.BaseURLs {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions",
			strings.NewReader(`{"model":"demo-chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":20}`))
		check(t, err)
		request.Header.Set("Authorization", "Bearer "+c.secret)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		check(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		check(t, errors.Join(err, answer.Body.Close()))
		statuses = append(statuses, answer.StatusCode)
	}
	return statuses
}

// awaitSettled waits until an account has this number of usage records, and then checks the
// ledger.
func (s *stack) awaitSettled(t *testing.T, c customer, requests int) {
	t.Helper()
	rig.Await(t, "all requests to be settled", func(ctx context.Context) error {
		found, err := s.admin.ListUsage(ctx, &adminclient.ListUsageParams{AccountID: &c.account})
		if err != nil {
			return err
		}
		if found.Value == nil || len(found.Value.Data) != requests {
			return fmt.Errorf("want %d usage records, got %s", requests, found.Body)
		}
		return nil
	})
	ledger, err := s.admin.CheckLedger(t.Context(), nil)
	check(t, err)
	if ledger.Value == nil || !ledger.Value.OK {
		t.Errorf("ledger check: %s", ledger.Body)
	}
}

// The previous release works as before: requests that lease, settlement, and admin calls that
// read and write each kind of object.
func TestPreviousReleaseRunsOnThisSchema(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a whole release")
	}
	t.Parallel()
	layout, err := devstack.FindLayout(".", t.TempDir())
	check(t, err)
	s := start(t, checkout(t, layout.Root, previousRelease(t, layout.Root)))
	ok := []int{http.StatusOK, http.StatusOK}

	before := s.customer(t, "before")
	if got := s.ask(t, before); !slices.Equal(got, ok) {
		t.Fatalf("before the migration: got %v", got)
	}
	s.awaitSettled(t, before, 2)
	s.migrate(t, layout.Root)

	if got := s.ask(t, before); !slices.Equal(got, ok) {
		t.Errorf("after the migration: got %v", got)
	}
	after := s.customer(t, "after")
	if got := s.ask(t, after); !slices.Equal(got, ok) {
		t.Errorf("a new account: got %v", got)
	}
	s.awaitSettled(t, before, 4)
	s.awaitSettled(t, after, 2)
	s.change(t, after)
	s.agree(t)
}

// A migration that was released is never edited: databases that have it would differ from new ones.
func TestReleasedMigrationsAreUnchanged(t *testing.T) {
	t.Parallel()
	layout, err := devstack.FindLayout(".", t.TempDir())
	check(t, err)
	release := previousRelease(t, layout.Root)
	if changed, err := command(t, layout.Root, "git", "diff", "--name-status", "--diff-filter=a", release, "--", "migrations/*.sql"); err != nil || changed != "" {
		t.Errorf("since the previous release, migrations were changed or removed: %v\n%s", err, changed)
	}
}

// change makes the remaining kinds of changes.
func (s *stack) change(t *testing.T, c customer) {
	t.Helper()
	name, limit := "renamed", "5.00"
	account, err := s.admin.UpdateAccount(t.Context(), c.account, nil, adminclient.AccountPatch{Name: &name})
	check(t, err)
	reason := "a test"
	corrected, err := s.admin.CreateCredit(t.Context(), c.account, nil, adminclient.CreditCreate{
		Amount: "-1.00", Kind: adminclient.CreditKindCorrection, Reference: "correction", Reason: &reason,
	})
	check(t, err)
	limited, err := s.admin.CreateKey(t.Context(), c.account, nil, adminclient.KeyCreate{Name: "limited", SpendLimit: &limit})
	check(t, err)
	if account.Value == nil || corrected.Value == nil || limited.Value == nil {
		t.Errorf("changes: %s, %s, %s", account.Body, corrected.Body, limited.Body)
	}
	revoked, err := s.admin.RevokeKey(t.Context(), c.key, nil)
	check(t, err)
	if revoked.Value == nil || !revoked.Value.Effective {
		t.Errorf("revoke: %s", revoked.Body)
	}
	refused := []int{http.StatusUnauthorized, http.StatusUnauthorized}
	if got := s.ask(t, c); !slices.Equal(got, refused) {
		t.Errorf("a revoked key: got %v; want %v", got, refused)
	}
	audit, err := s.admin.ListAudit(t.Context(), nil)
	check(t, err)
	tokens, err := s.admin.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: "t", Scopes: []adminclient.Scope{"read"}})
	check(t, err)
	if audit.Value == nil || len(audit.Value.Data) == 0 || tokens.Value == nil {
		t.Errorf("audit log and token: %s, %s", audit.Body, tokens.Body)
	}
}

// agree compares the roll-ups of this release with the usage records. The previous release
// does not know them, and they must be correct all the same.
func (s *stack) agree(t *testing.T) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), s.PostgresURL)
	check(t, err)
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	var records, cost, totalled, total int64
	check(t, db.QueryRow(t.Context(), "select count(*), sum(cost)::bigint from usage_records").Scan(&records, &cost))
	check(t, db.QueryRow(t.Context(), "select sum(requests)::bigint, sum(cost)::bigint from usage_daily").Scan(&totalled, &total))
	if records < 6 || records != totalled || cost != total {
		t.Errorf("%d records of %d, totals of %d records and %d", records, cost, totalled, total)
	}
}
