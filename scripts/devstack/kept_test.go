package devstack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChangedMigrationIsReported(t *testing.T) {
	t.Parallel()
	l := Layout{Root: t.TempDir(), Dir: t.TempDir()}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(l.Root, "migrations"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.Root, "migrations", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("00001_initial.sql", "create table a ();")
	if err := l.checkSchema(); err != nil {
		t.Fatalf("new directory: %v", err)
	}
	if err := l.recordSchema(); err != nil {
		t.Fatal(err)
	}
	write("00002_more.sql", "create table b ();")
	if err := l.checkSchema(); err != nil {
		t.Errorf("a further migration: %v; want it to be applied", err)
	}
	write("00001_initial.sql", "create table a (b int);")
	if err := l.checkSchema(); err == nil || !strings.Contains(err.Error(), "00001_initial.sql differs") || !strings.Contains(err.Error(), "make clean") {
		t.Errorf("got %v; want the name of the changed migration and the remedy", err)
	}
}

func TestLargeLogsArePutAside(t *testing.T) {
	t.Parallel()
	l := Layout{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Dir(l.log("x")), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"large": maxLog + 1, "small": 10} {
		if err := os.WriteFile(l.log(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(l.log(name), size); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.rotateLogs(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(l.log("*") + "*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{l.log("large"), l.log("large") + ".1", l.log("small")}, names); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

// A process keeps its log open, so the file must stay the same.
func TestLogOfARunningProcessIsPutAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := Layout{Dir: t.TempDir()}
		if err := os.MkdirAll(filepath.Dir(l.log("x")), 0o700); err != nil {
			t.Fatal(err)
		}
		log, err := os.OpenFile(l.log("x"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.keepLogsSmall(ctx, t.Errorf)
		}()
		write := func(text string) {
			t.Helper()
			if _, err := log.WriteString(text); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * rotateEvery)
			synctest.Wait()
		}
		write(strings.Repeat("old line\n", maxLog/len("old line\n")+1))
		write("new line\n")
		cancel()
		<-ended
		if text, err := os.ReadFile(l.log("x")); err != nil || string(text) != "new line\n" {
			t.Errorf("the log has %d bytes, %v; want the new line only", len(text), err)
		}
		if info, err := os.Stat(l.log("x") + ".1"); err != nil || info.Size() <= maxLog {
			t.Errorf("the old lines are not aside: %v", err)
		}
	})
}

func TestUserSettingsReachTheirPrograms(t *testing.T) {
	t.Parallel()
	known, err := Layout{Root: "../.."}.knownSettings()
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"PATH=/bin", "MGW_LOG_LEVEL=debug", "MGW_DRAIN_TIMEOUT=1s", "MGW_ARCHIVE_USAGE_RETENTION_MONTHS=2", "MGW_NATS_URL=nats://other",
		"MGW_SECRETS_PEPPER=mine", "MGW_DEV_API_PORT=1", "MGW_NOSUCH=1",
	}
	stack := []string{"MGW_NATS_URL=nats://stack", "MGW_SECRETS_PEPPER_FILE=pepper"}
	for binary, want := range map[string][]string{
		"dataplane":    {"MGW_LOG_LEVEL=debug", "MGW_DRAIN_TIMEOUT=1s"},
		"controlplane": {"MGW_LOG_LEVEL=debug", "MGW_ARCHIVE_USAGE_RETENTION_MONTHS=2"},
		"providersim":  nil,
	} {
		own, unknown := userSettings(environ, known, binary, stack)
		if diff := cmp.Diff(want, own); diff != "" {
			t.Errorf("%s (-want +got):\n%s", binary, diff)
		}
		if diff := cmp.Diff([]string{"MGW_NOSUCH"}, unknown); diff != "" {
			t.Errorf("%s: unknown (-want +got):\n%s", binary, diff)
		}
	}
}
