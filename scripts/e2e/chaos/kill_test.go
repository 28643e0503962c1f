package chaos

import (
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

const credit = 100 * money.Unit

// clients is how many requests run at once.
const clients = 12

func TestDataplaneIsKilledUnderLoad(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for range 2 {
		restarted := l.r.Kill(t, rig.DataPlane1)
		l.await(t, 10, on(1)) // the other goes on meanwhile
		restarted()
		l.await(t, 20, on(0))
	}
	asked := l.finish()
	for _, q := range asked {
		if q.proxy == 1 && !answered(q) {
			t.Errorf("the proxy that lived: %v", q)
		}
		if q.proxy == 0 && q.status != 0 && q.status != 200 && q.status != 503 {
			t.Errorf("a wrong refusal: %v", q)
		}
	}
	checkBills(t, l, asked, credit)
}

func TestControlPlaneIsKilledUnderLoad(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for range 2 {
		restarted := l.r.Kill(t, rig.ControlPlane)
		restarted()
		l.await(t, 20, on(0))
		l.await(t, 20, on(1))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

func TestControlPlaneIsSilent(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	resume := l.r.Pause(t, rig.ControlPlane)
	l.await(t, 2*clients, func(q request) bool { return q.status == 503 })
	resume()
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

func TestPostgresIsKilledUnderLoad(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	restarted := l.r.Kill(t, rig.Postgres)
	restarted()
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

func TestNATSIsRestartedUnderLoad(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	for range 2 {
		l.r.RestartNATS(t)
		l.await(t, 20, on(0))
		l.await(t, 20, on(1))
	}
	asked := l.finish()
	checkOnlyUnavailable(t, asked)
	checkBills(t, l, asked, credit)
}

func TestEverythingIsKilledAtOnce(t *testing.T) {
	l := startLoad(t, clients)
	l.await(t, 60, answered)
	var restarted []func()
	for _, part := range []string{rig.DataPlane1, rig.ControlPlane, rig.Postgres, rig.DataPlane2} {
		restarted = append(restarted, l.r.Kill(t, part))
	}
	for _, wait := range restarted {
		wait()
	}
	l.await(t, 20, on(0))
	l.await(t, 20, on(1))
	asked := l.finish()
	for _, q := range asked {
		if q.status != 0 && q.status != 200 && q.status != 503 {
			t.Errorf("a wrong refusal: %v", q)
		}
	}
	checkBills(t, l, asked, credit)
}

// checkOnlyUnavailable checks that every request was answered, or refused
// because the service was not available: never for a reason that is not true.
func checkOnlyUnavailable(t *testing.T, asked []request) {
	t.Helper()
	refused := 0
	for _, q := range asked {
		switch {
		case answered(q):
		case q.status == 503 && q.code == "service_unavailable" && q.retryAfter != "" && q.whole:
			refused++
		default:
			t.Errorf("a wrong refusal: %v", q)
		}
	}
	t.Logf("%d requests were told to come back", refused)
}
