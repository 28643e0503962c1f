// Command proxybench compares the cost of the data plane with that of a minimal proxy, on a
// dev stack that it starts:
//
//	make bench/proxy
//
// With -provider and -peer it measures other gateways, too; scripts/peers.sh starts some.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"modelgateway/scripts/devstack"
	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/scripts/proxybench"
)

type options struct {
	rounds int
	each   time.Duration
	child  string
	// only is a part of the names of the scenarios that are measured.
	only string
	// hold keeps the proxies running for other programs, instead of a measurement.
	hold bool
	// provider is the address of the provider, which peers call.
	provider string
	peers    []proxybench.Target
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "number of measurements of each proxy in each scenario")
	flag.DurationVar(&o.each, "each", 3*time.Second, "duration of one measurement")
	flag.StringVar(&o.child, "child", "", "internal: run a child process: \"provider=ADDRESS\", \"load\" or \"plain=URL\" of the provider")
	flag.StringVar(&o.provider, "provider", anyPort, "address of the provider, for peers that call it")
	flag.Func("peer", "measure another gateway, too, with the model bench: `name=URL,KEY,PID` (repeatable)", func(text string) error {
		peer, err := proxybench.ParsePeer(text)
		o.peers = append(o.peers, peer)
		return err
	})
	flag.StringVar(&o.only, "only", "", "measure only the scenarios whose names contain this")
	flag.BoolVar(
		&o.hold,
		"hold",
		false,
		"print name, URL, key and process id of both proxies and keep them running until interrupted, instead of measuring",
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxybench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.child != "" {
		if o.child == loader {
			return measureForParent(ctx)
		}
		return serve(ctx, o.child)
	}

	if !o.hold {
		fmt.Fprintln(os.Stdout, proxybench.Environment(ctx, ".", time.Now()))
	}

	provider, err := start(ctx, providerChild+o.provider)
	if err != nil {
		return err
	}
	defer provider.end()
	plain, err := start(ctx, "plain="+provider.url)
	if err != nil {
		return err
	}
	defer plain.end()
	stack, clean, err := startStack(ctx, provider.url)
	if err != nil {
		return err
	}
	defer clean()
	state := stack.State()
	if err := raiseConcurrencyLimit(ctx, &state); err != nil {
		return err
	}

	targets := []proxybench.Target{
		{Name: "plain proxy", BaseURL: plain.url, Key: plainKey, PID: plain.cmd.Process.Pid},
		{Name: "gateway", BaseURL: state.BaseURL, Key: state.APIKey, PID: state.PIDs[devstack.DataPlaneName(0)], Parts: parts(&state)},
	}
	if o.hold {
		for _, t := range targets {
			fmt.Fprintln(os.Stdout, t.Name, t.BaseURL, t.Key, t.PID)
		}
		<-ctx.Done()
		return nil
	}

	return measure(
		ctx,
		o,
		append(targets, o.peers...),
		slices.DeleteFunc(proxybench.Scenarios(), func(s proxybench.Scenario) bool { return !strings.Contains(s.Name, o.only) }),
	)
}

func measure(ctx context.Context, o options, targets []proxybench.Target, scenarios []proxybench.Scenario) error {
	var names []string
	for _, t := range targets {
		names = append(names, t.Name)
	}
	table := proxybench.NewTable(names...)
	if err := addIdle(ctx, table, targets, "fresh", 0); err != nil {
		return err
	}

	for _, t := range targets {
		if _, err := measureApart(ctx, proxybench.JSON(), t, warmUpTime); err != nil && !t.Peer {
			return err
		}
	}

	for _, s := range scenarios {
		once := func(t proxybench.Target) (proxybench.Result, error) {
			if t.Peer {
				defer proxybench.Rest(ctx, t, peerRest)
			}
			return measureApart(ctx, s, t, o.each)
		}
		results, err := proxybench.Compare(s, targets, o.rounds, os.Stderr, once)
		if err != nil {
			return err
		}
		table.Add(s, results)
	}

	if o.only == "" {
		if err := addIdle(ctx, table, targets, "a minute after the last load", time.Minute); err != nil {
			return err
		}
	}
	table.Write(os.Stdout)
	return nil
}

// addIdle adds a row with the memory of the targets after a time without load.
func addIdle(ctx context.Context, table *proxybench.Table, targets []proxybench.Target, name string, after time.Duration) error {
	s := proxybench.IdleMemory("idle, " + name)
	results, err := proxybench.Compare(s, targets, 1, os.Stderr, func(t proxybench.Target) (proxybench.Result, error) {
		r, err := proxybench.MeasureIdle(ctx, t, after)
		after = 0 // the others have waited, too
		return r, err
	})
	if err != nil {
		return err
	}
	table.Add(s, results)
	return nil
}

// warmUpTime is the duration of the load before the measurements. The pools of a new
// account are in central mode, and switch to escrow mode only after some seconds.
const warmUpTime = 8 * time.Second

// peerRest is how long the next measurement waits at most for a peer that still works.
const peerRest = 5 * time.Second

const plainKey = "the-key-of-the-bench"

const (
	// anyPort is an address with a port that nobody listens on.
	anyPort = "127.0.0.1:0"
	// providerChild and the address of the provider are a child process.
	providerChild = "provider="
)

// serve runs a child process: it starts a server and prints its URL.
func serve(ctx context.Context, what string) error {
	handler := http.Handler(http.HandlerFunc(proxybench.Provider))
	address, isProvider := strings.CutPrefix(what, providerChild)
	if target, ok := strings.CutPrefix(what, "plain="); ok {
		to, err := url.Parse(target)
		if err != nil {
			return fmt.Errorf("address of the provider: %w", err)
		}
		handler = proxybench.Plain(to, plainKey)
	}

	var lc net.ListenConfig
	if !isProvider {
		address = anyPort
	}
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}

	return nil
}

// child is a child process that runs this program.
type child struct {
	cmd *exec.Cmd
	out io.Reader
	url string
}

func start(ctx context.Context, what string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}

	cmd := exec.CommandContext(ctx, self, "-child", what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}

	c := &child{cmd: cmd, out: out}
	if _, err := fmt.Fscanln(out, &c.url); err != nil {
		c.end()
		return nil, fmt.Errorf("start %s: it printed no URL: %w", what, err)
	}

	return c, nil
}

func (c *child) end() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// raiseConcurrencyLimit raises the account's limit of concurrent requests. With a low limit
// the slots stay in central mode, and every request would ask the control plane.
func raiseConcurrencyLimit(ctx context.Context, state *devstack.State) error {
	body := strings.NewReader(`{"max_concurrent_requests":10000}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, state.AdminURL+"/admin/v1/accounts/"+state.AccountID, body)
	if err != nil {
		return fmt.Errorf("change the account: %w", err)
	}

	r.Header.Set("Authorization", "Bearer "+state.AdminToken)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("change the account: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("change the account: status %d", answer.StatusCode)
	}

	return nil
}

const catalog = `currency: USD
providers:
  - {id: bench, name: Bench, base_url: "%s", auth: bearer, credentials: [{name: main, secret: any}]}
models:
  - id: bench
    type: text
    display_name: Bench
    owned_by: bench
    context_window: 1000000
    max_output_tokens: 4096
    price: {input: "0.01", output: "0.02"}
    routes: [{provider: bench, upstream_model: bench, formats: [chat]}]
`

// freePorts returns ports that nobody listens on. They are below the range of ephemeral ports.
func freePorts(ctx context.Context, planes devstack.Planes) (devstack.Ports, error) {
	const lowest, highest, step = 20000, 32000, 100
	for i := range (highest - lowest) / step {
		ports := devstack.PortsFrom(lowest+(os.Getpid()+i)*step%(highest-lowest), planes)
		if ports.CheckFree(ctx) == nil {
			return ports, nil
		}
	}
	return devstack.Ports{}, errors.New("no free ports")
}

// startStack starts a stack in a directory of its own, with the model bench of a provider.
func startStack(ctx context.Context, provider string) (*devstack.Stack, func(), error) {
	layout, err := devstack.FindLayout(".", filepath.Join(".dev", fmt.Sprintf("bench-%d", os.Getpid())))
	if err != nil {
		return nil, nil, err
	}

	layout.Bin = filepath.Join(layout.Root, ".dev", "bench-bin") // runs share it
	if err := os.MkdirAll(layout.Dir, 0o755); err != nil {       //nolint:gosec // G301: as the stack makes it
		return nil, nil, fmt.Errorf("make directory: %w", err)
	}

	file := filepath.Join(layout.Dir, "catalog.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, catalog, provider), 0o600); err != nil {
		return nil, nil, fmt.Errorf("write catalog: %w", err)
	}
	if err := os.Setenv(devstack.CatalogVariable, file); err != nil {
		return nil, nil, fmt.Errorf("name catalog: %w", err)
	}

	ports, err := freePorts(ctx, devstack.Planes{Data: 1, Control: 1})
	if err != nil {
		return nil, nil, err
	}

	stack, err := devstack.Start(ctx, devstack.Config{
		Layout:   layout,
		Out:      os.Stderr,
		Postgres: pginstall.Console(),
		Ports:    ports,
	})
	if err != nil {
		return nil, nil, err
	}

	return stack, func() {
		if err := errors.Join(stack.Stop(context.WithoutCancel(ctx)), devstack.Clean(context.WithoutCancel(ctx), layout)); err != nil {
			fmt.Fprintln(os.Stderr, "proxybench: stop:", err)
		}
	}, nil
}
