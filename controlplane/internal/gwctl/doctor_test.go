package gwctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/gwctl"
)

// diagnosed returns a response of the API with one finding of a status and two that are ok.
func diagnosed(status string, at time.Time) string {
	return fmt.Sprintf(`{"status":%q,"at":%q,"build":"v1","findings":[
		{"status":"ok","area":"nats","check":"exists","subject":"S","detail":"exists"},
		{"status":"ok","area":"nats","check":"consumer","subject":"S","detail":"c exists"},
		{"status":%q,"area":"postgres","check":"fsync","detail":"fsync = off","meaning":"Bad.","advice":"Set it."}]}`,
		status, at.UTC().Format(time.RFC3339), status)
}

func TestDoctorPrintsProblemsWithAdvice(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"ok": gwctl.ExitOK, "warning": gwctl.ExitOK, "failure": gwctl.ExitFailure} {
		b := setup(t, answerJSON(200, diagnosed(status, time.Now())))
		code, out, errs := b.run("doctor")
		shown := fmt.Sprintf("%-7s  postgres fsync: fsync = off\n         Bad.\n         → Set it.\nok       nats: 2 checks passed\n", status)
		if status == "ok" {
			shown = "ok       nats: 2 checks passed\nok       postgres: 1 check passed\n"
		}
		if code != want || out != shown || errs != "" {
			t.Errorf("%s: exit %d, %q, %q; want %d, %q", status, code, out, errs, want, shown)
		}
		if all := b.okOr(want, "doctor", "--all"); !strings.Contains(all, "ok       nats consumer S: c exists\n") {
			t.Errorf("all: %s", all)
		}
		strict := want
		if status == "warning" {
			strict = gwctl.ExitFailure
		}
		b.okOr(strict, "doctor", "--strict")
		var report struct{ Status string }
		if err := json.Unmarshal([]byte(b.okOr(want, "doctor", "-o", "json")), &report); err != nil || report.Status != status {
			t.Errorf("json: %+v, %v", report, err)
		}
	}
}

// okOr runs a command, checks its exit code and returns its output.
func (b *fixture) okOr(want int, args ...string) string {
	b.t.Helper()
	code, out, errs := b.run(args...)
	if code != want {
		b.t.Fatalf("%v: exit %d; want %d\n%s", args, code, want, errs)
	}
	return out
}

func TestDoctorComparesTheLocalClock(t *testing.T) {
	t.Parallel()
	b := setup(t, answerJSON(200, diagnosed("ok", time.Now().Add(-time.Hour))))
	if out := b.ok("doctor"); !strings.Contains(out, "warning  here clock: the clocks of this machine and the control plane differ by 1h0m") {
		t.Errorf("got %s", out)
	}
}

func TestDoctorWithoutAControlPlane(t *testing.T) {
	t.Parallel()
	var asked gwctl.Direct
	var out, errs bytes.Buffer
	code := gwctl.Run(t.Context(), gwctl.Config{
		Out: &out, Err: &errs, EnvFunc: func(string) string { return "" }, Document: document(t),
		DiagnoseFunc: func(_ context.Context, d gwctl.Direct) *diagnosis.Report {
			asked = d
			return &diagnosis.Report{Findings: []diagnosis.Finding{{Area: "nats", Check: "exists", Status: diagnosis.Failure, Detail: "d", Meaning: "m", Advice: "a"}}}
		},
	}, []string{"doctor", "--postgres-url=p", "--nats-url=n", "--nats-replicas=3"})
	if want := (gwctl.Direct{PostgresURL: "p", NATSURL: "n", Replicas: 3}); asked != want || code != gwctl.ExitFailure || !strings.HasPrefix(out.String(), "failure  nats exists: d\n") {
		t.Errorf("asked %+v, exit %d, %s%s", asked, code, &out, &errs)
	}
}
