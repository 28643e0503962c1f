package proxybench

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// start starts the provider and the plain proxy in this process.
func start(t *testing.T) Target {
	t.Helper()
	provider := httptest.NewServer(http.HandlerFunc(Provider))
	t.Cleanup(provider.Close)
	to, err := url.Parse(provider.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(Plain(to, "key"))
	t.Cleanup(proxy.Close)
	return Target{Name: "plain", BaseURL: proxy.URL, Key: "key", PID: os.Getpid()}
}

func TestMeasureCountsRequests(t *testing.T) {
	t.Parallel()
	target := start(t)
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Conns = min(s.Conns, 32)
			r, err := Measure(t.Context(), s, target, 50*time.Millisecond)
			if err != nil || r.Requests == 0 || r.Failures != 0 || r.CPU <= 0 != s.Memory || r.Peak <= 0 {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func TestIncompleteAnswersAreFailures(t *testing.T) {
	t.Parallel()
	target := start(t)
	target.Key = "another"
	r, err := Measure(t.Context(), JSON(), target, 10*time.Millisecond)
	if err != nil || r.Requests != 0 || r.Failures == 0 || !strings.Contains(r.Err.Error(), "status 401") {
		t.Errorf("got %+v, %v", r, err)
	}
	incomplete := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answerEvent) }))
	defer incomplete.Close()
	target.BaseURL = incomplete.URL
	if r, err := Measure(t.Context(), Scenarios()[4], target, 10*time.Millisecond); err != nil || r.Requests != 0 || r.Err == nil {
		t.Errorf("an incomplete stream: got %+v, %v", r, err)
	}
	target.PID = -1
	if _, err := Measure(context.Background(), JSON(), target, time.Millisecond); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

func TestCPUTimeOfAPartIncludesItsChildren(t *testing.T) {
	t.Parallel()
	pid := os.Getpid()
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read line")
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil { // its work is done
		t.Fatal(err)
	}
	childTime, err := cpuTime(child.Process.Pid)
	if err != nil || childTime <= 0 {
		t.Fatal(childTime, err)
	}
	ofChildren := func() time.Duration {
		t.Helper()
		own, err := cpuTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		all, err := familyTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		return all - own // and this process's own time between the two readings
	}
	if got := ofChildren(); got < childTime {
		t.Errorf("children that run have used %v; want at least %v", got, childTime)
	}
	if err := errors.Join(input.Close(), child.Wait()); err != nil && child.ProcessState == nil {
		t.Fatal(err)
	}
	if got := ofChildren(); got < childTime-2*tick {
		t.Errorf("ended children have used %v; want at least %v", got, childTime)
	}
	if _, err := familyTime(-1); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

func TestAgeIsTheTimeSinceAProcessBegan(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	young, err := Age(child.Process.Pid)
	if limit := time.Since(begin) + 2*tick; err != nil || young < 0 || young > limit {
		t.Errorf("got %v, %v; want at most %v", young, err, limit)
	}
	if old, err := Age(os.Getpid()); err != nil || old+tick < young {
		t.Errorf("this process has run for %v, its child for %v: %v", old, young, err)
	}
	if err := errors.Join(input.Close(), child.Wait()); err != nil {
		t.Fatal(err)
	}
	if _, err := Age(-1); err == nil {
		t.Error("no error for a process that does not exist")
	}
}

func TestTableWritesMediansAndRatio(t *testing.T) {
	t.Parallel()
	table := NewTable("plain", "gateway")
	results := func(us ...int64) (all []Result) {
		for _, n := range us {
			all = append(all, Result{CPU: time.Duration(n) * time.Microsecond})
		}
		return all
	}
	table.Add(Scenario{Name: "JSON", Unit: "request"}, [][]Result{results(10, 90, 20), results(25, 24, 23)})
	withParts := Result{CPU: 30 * time.Microsecond, Parts: []PartCPU{{"Postgres", 4 * time.Microsecond}, {"NATS", 1500 * time.Nanosecond}}}
	table.Add(Scenario{Name: "system", Unit: "request"}, [][]Result{results(20), {withParts}})
	table.Add(Scenario{Name: "streams", Memory: true}, [][]Result{{{Peak: 40 << 20}}, {{Peak: 70 << 20}}})
	each := Result{CPU: time.Microsecond, P99: time.Millisecond, Peak: 1 << 20}
	later := each
	later.P99 += time.Millisecond / 2
	table.Add(Scenario{Name: "all", Unit: "request", Rate: 1, Peak: true}, [][]Result{{each}, {later}})
	var out strings.Builder
	table.Write(&out)
	const want = "| CPU time or memory | plain | gateway | × |\n| --- | --- | --- | --- |\n| JSON, per request | 20.0 µs | 24.0 µs | 1.20 |\n" +
		"| system, per request | 20.0 µs | 30.0 µs | 1.50 |\n| system, Postgres, per request | | 4.0 µs | |\n" +
		"| system, NATS, per request | | 1.5 µs | |\n| system, all other parts, per request | | 5.5 µs | |\n" +
		"| streams, peak memory | 40.0 MiB | 70.0 MiB | 1.75 |\n" +
		"| all, per request | 1.0 µs | 1.0 µs | 1.00 |\n| all, p99 | 1.0 ms | 1.5 ms | 1.50, +0.5 ms |\n" +
		"| all, peak memory | 1.0 MiB | 1.0 MiB | 1.00 |\n"
	if out.String() != want {
		t.Errorf("got\n%s; want\n%s", &out, want)
	}
}
