package pgcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// needServer skips the test on a machine without Postgres.
func needServer(t *testing.T) {
	t.Helper()
	if _, err := Find(); err != nil {
		t.Skip(err)
	}
}

// openDir returns a directory that the server's user can enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(temporaryRoot(owner{switched: true}), "pgcluster-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustStart(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// answer opens a session with version 3 of the protocol and returns the first message of
// the server: "R0" accepts the session, "R10" asks for a password, "E" is an error.
func answer(t *testing.T, c *Cluster, database string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := binary.BigEndian.AppendUint32(nil, 3<<16)
	body = append(body, "user\x00postgres\x00database\x00"+database+"\x00\x00"...)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	if head[0] != 'R' {
		return string(head[:1])
	}
	code := binary.BigEndian.Uint32(head[5:])
	if code != 0 {
		return fmt.Sprintf("R%d", code)
	}
	// The server reports a missing database only after the password.
	rest := make([]byte, 1)
	if _, err := io.ReadFull(conn, rest); err != nil {
		t.Fatal(err)
	}
	if rest[0] == 'E' {
		return "E"
	}
	return "R0"
}

func TestTemporaryClusterIsRemovedWithItsServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	c := mustStart(t, Config{})
	if got := answer(t, c, "postgres"); got != "R0" {
		t.Errorf("got answer %s; want R0", got)
	}
	if want := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.Port()); c.URL("") != want {
		t.Errorf("got %s; want %s", c.URL(""), want)
	}
	stop(t, c)
	if _, err := os.Stat(filepath.Dir(c.Dir())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Stop: %v; want no directory", err)
	}
	stop(t, c)
}

func TestPasswordAndDatabase(t *testing.T) {
	t.Parallel()
	needServer(t)
	locked := mustStart(t, Config{Password: "a/b:c", Database: "gateway"})
	if got := answer(t, locked, "gateway"); got != "R10" {
		t.Errorf("got answer %s; want R10, a request for the password", got)
	}
	u, err := url.Parse(locked.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	if password, _ := u.User.Password(); password != "a/b:c" || u.Path != "/gateway" {
		t.Errorf("got %v; want a URL with the password and the database", u)
	}
	open := mustStart(t, Config{Database: "gateway"})
	if got := answer(t, open, "gateway"); got != "R0" {
		t.Errorf("got answer %s for the database of the configuration; want R0", got)
	}
	if got := answer(t, open, "other"); got != "E" {
		t.Errorf("got answer %s for an unknown database; want E", got)
	}
	if _, err := Start(t.Context(), Config{Database: `x"; drop`}); err == nil {
		t.Error("a database name with a quote was accepted")
	}
}

func TestDataOutlivesTheServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	cfg := Config{Dir: filepath.Join(openDir(t), "postgres"), Fsync: true}
	first := mustStart(t, cfg)
	stop(t, first)
	id := systemID(t, first)
	second := mustStart(t, cfg)
	if got := systemID(t, second); got != id {
		t.Errorf("the second start made a new cluster")
	}
	stop(t, second)
	if err := Remove(t.Context(), cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v; want no directory", err)
	}
}

// systemID returns the number that initdb gave to the cluster: the first eight
// bytes of its control file.
func systemID(t *testing.T, c *Cluster) string {
	t.Helper()
	control, err := os.ReadFile(filepath.Join(c.Dir(), "global", "pg_control"))
	if err != nil {
		t.Fatal(err)
	}
	return string(control[:8])
}

func TestStartAfterKill(t *testing.T) {
	t.Parallel()
	needServer(t)
	cfg := Config{Dir: filepath.Join(openDir(t), "postgres")}
	first := mustStart(t, cfg)
	if err := syscall.Kill(first.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	second := mustStart(t, cfg)
	if got := answer(t, second, "postgres"); got != "R0" {
		t.Errorf("got answer %s; want R0", got)
	}
	stop(t, second)
	// The pid file contains the number of another running process.
	if err := os.WriteFile(pidFile(second.Dir()), fmt.Appendf(nil, "%d\n", os.Getppid()), 0o600); err != nil {
		t.Fatal(err)
	}
	third := mustStart(t, cfg)
	if got := answer(t, third, "postgres"); got != "R0" {
		t.Errorf("got answer %s; want R0", got)
	}
}

// dirVariable is the variable with the directory in which the test binary starts a server,
// instead of running tests, and waits to be killed.
const dirVariable = "PGCLUSTER_TEST_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := Start(context.Background(), Config{Dir: dir}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {}
}

func TestStartAfterKillOfTheParent(t *testing.T) {
	t.Parallel()
	needServer(t)
	cfg := Config{Dir: filepath.Join(openDir(t), "postgres")}
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), dirVariable+"="+cfg.Dir)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for buf := make([]byte, 64); !strings.Contains(seen.String(), "started"); {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("the helper printed only %q: %v", seen.String(), err)
		}
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // it was killed
	if got := answer(t, mustStart(t, cfg), "postgres"); got != "R0" {
		t.Errorf("got answer %s; want R0", got)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	needServer(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Config{Port: port})
	if !errors.Is(err, ErrPortInUse) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("got %v; want an error about port %d", err, port)
	}
}

func TestErrorContainsTheLogOfTheServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	_, err := Start(t.Context(), Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v; want the message of the server", err)
	}
}

func TestStopIsImmediateWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	needServer(t)
	c := mustStart(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	<-c.Done()
}

func TestJanitorEndsAnAbandonedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := exec.Command("sleep", "1000000")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- server.Wait() }()
	j, err := startJanitor(server.Process.Pid, dir, owner{})
	if err != nil {
		t.Fatal(err)
	}
	j.abandon()
	err = <-ended
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the server ended with %v; want an interrupt", err)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v; want no directory", err)
	}
}
