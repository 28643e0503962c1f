package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
	"modelgateway/shared/apikey"
)

// size is the size of an installation.
type size struct{ keys, used, accounts, models, proxies int }

// installation is a running stack of a size.
type installation struct {
	size
	out     io.Writer
	stack   *devstack.Stack
	state   devstack.State
	admin   *adminclient.Client
	hasher  *apikey.Hasher
	catalog string
	// accountIDs are those of all accounts; secrets are the keys that are used, in random order, and keyIDs their ids.
	accountIDs, secrets, keyIDs []string
}

// measureScale starts an installation, fills it and prints what it costs.
func measureScale(ctx context.Context, s size, out io.Writer) error {
	provider, err := start(ctx, "provider")
	if err != nil {
		return err
	}
	defer provider.end()
	in := &installation{size: s, out: out, catalog: scaleCatalog(provider.url, s.models)}
	stack, clean, err := startStackWith(ctx, in.catalog, s.proxies, nil)
	if err != nil {
		return err
	}
	defer clean()
	if err := in.connect(stack); err != nil {
		return err
	}
	in.row("size", "%d keys, %d of them used, %d accounts, %d models, %d proxies", s.keys, s.used, s.accounts, s.models, s.proxies)
	for _, step := range []func(context.Context) error{in.fill, in.measureStorage, in.measureRequests, in.measureRevocations, in.measureCatalog, in.measureStart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (in *installation) row(name, format string, args ...any) {
	fmt.Fprintf(in.out, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
}

// scaleCatalog returns a catalog with a number of models, bench-0 and so on.
func scaleCatalog(provider string, models int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "currency: USD\nproviders:\n  - {id: bench, name: Bench, base_url: %q, auth: bearer, credentials: [{name: main, secret: any}]}\nmodels:\n", provider)
	for i := range models {
		b.WriteString(scaleModel(i))
	}
	return b.String()
}

func scaleModel(i int) string {
	return fmt.Sprintf(`  - {id: bench-%d, type: text, display_name: Bench %d, owned_by: bench, context_window: 1000000, max_output_tokens: 4096,
     price: {input: "0.01", output: "0.02"}, routes: [{provider: bench, upstream_model: bench, formats: [chat]}]}
`, i, i)
}

func (in *installation) connect(stack *devstack.Stack) (err error) {
	in.stack, in.state = stack, stack.State()
	pepper, err := os.ReadFile(filepath.Join(stack.Layout.Dir, "secrets", "pepper"))
	if err != nil {
		return fmt.Errorf("read pepper: %w", err)
	}
	if in.hasher, err = apikey.NewHasher(bytes.TrimSpace(pepper)); err != nil {
		return fmt.Errorf("pepper: %w", err)
	}
	if in.admin, err = adminclient.New(in.state.AdminURL, in.state.AdminToken); err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	return nil
}

// concurrently calls do for 0 to n-1 on several goroutines until one call fails.
func concurrently(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					stop(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// fill creates accounts with credit, and keys. The keys that are used are spread over the accounts.
func (in *installation) fill(ctx context.Context) error {
	const workers, keysAtOnce = 4, 1000
	begin := time.Now()
	in.accountIDs = make([]string, in.accounts)
	err := concurrently(ctx, workers, in.accounts, func(ctx context.Context, i int) error {
		slots := 100
		answer, err := in.admin.CreateAccount(ctx, nil, adminclient.AccountCreate{Name: fmt.Sprintf("Customer %d", i), MaxConcurrentRequests: &slots})
		if err != nil {
			return fmt.Errorf("create account: %w", err)
		}
		in.accountIDs[i] = answer.Value.ID
		credit := adminclient.CreditCreate{Amount: "100", Kind: adminclient.CreditKindTopUp, Reference: answer.Value.ID}
		if _, err := in.admin.CreateCredit(ctx, answer.Value.ID, nil, credit); err != nil {
			return fmt.Errorf("top up: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	in.row("creating an account with credit", "%.1f ms of %d requests at the same time", milliseconds(time.Since(begin))/float64(in.accounts), workers)
	pepper, err := in.admin.GetPepper(ctx)
	if err != nil {
		return fmt.Errorf("read the pepper's id: %w", err)
	}
	begin = time.Now()
	imports := (in.keys + keysAtOnce - 1) / keysAtOnce
	in.secrets, in.keyIDs = make([]string, in.used), make([]string, in.used)
	err = concurrently(ctx, workers, imports, func(ctx context.Context, batch int) error {
		return in.importKeys(ctx, pepper.Value.Current, batch*keysAtOnce, min((batch+1)*keysAtOnce, in.keys))
	})
	if err != nil {
		return err
	}
	in.row("importing keys", "%.0f keys/s", float64(in.keys)/time.Since(begin).Seconds())
	rand.Shuffle(in.used, func(i, j int) {
		in.secrets[i], in.secrets[j] = in.secrets[j], in.secrets[i]
		in.keyIDs[i], in.keyIDs[j] = in.keyIDs[j], in.keyIDs[i]
	})
	return nil
}

// importKeys imports the keys from one number up to another one.
func (in *installation) importKeys(ctx context.Context, pepper string, from, to int) error {
	var body adminclient.KeyImport
	for i := from; i < to; i++ {
		secret := in.hasher.Generate()
		if i < in.used {
			in.secrets[i] = secret
		}
		body.Keys = append(body.Keys, adminclient.ImportedKey{
			AccountID: in.accountIDs[i%in.accounts], Name: "key", Hash: in.hasher.Hash(secret).String(), Pepper: &pepper,
		})
	}
	answer, err := in.admin.ImportKeys(ctx, nil, body)
	if err != nil {
		return fmt.Errorf("import keys: %w", err)
	}
	for i, key := range answer.Value.Data {
		if from+i < in.used {
			in.keyIDs[from+i] = key.ID
		}
	}
	return nil
}

// measureStorage prints the size of keys and pools in Postgres.
func (in *installation) measureStorage(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, in.state.PostgresURL)
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var total int64
	if err := conn.QueryRow(ctx, "select pg_total_relation_size('api_keys') + pg_total_relation_size('pools')").Scan(&total); err != nil {
		return fmt.Errorf("read sizes: %w", err)
	}
	in.row("Postgres, size of a key with its pool", "%.0f bytes", float64(total)/float64(in.keys))
	return nil
}

// planes returns the data planes, the control plane and Postgres.
func (in *installation) planes() map[string][]proxybench.Part {
	var proxies []proxybench.Part
	for i := range in.proxies {
		proxies = append(proxies, proxybench.Part{PID: in.state.PIDs[devstack.DataPlaneName(i)]})
	}
	all := parts(&in.state)
	return map[string][]proxybench.Part{"proxies": proxies, "control plane": all[:1], "Postgres": all[1:2]}
}

func (in *installation) cpuTimes() (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for name, processes := range in.planes() {
		t, err := proxybench.CPUTime(processes)
		if err != nil {
			return nil, err
		}
		times[name] = t
	}
	return times, nil
}

// residentOfProxies returns the memory of all proxies in bytes.
func (in *installation) residentOfProxies() (total int64, err error) {
	for _, process := range in.planes()["proxies"] {
		n, err := proxybench.Resident(process.PID)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// settleTime is longer than usage events wait in proxies and control plane.
const settleTime = 2 * time.Second

// measureRequests prints the cost of requests and the memory of key records.
func (in *installation) measureRequests(ctx context.Context) error {
	one := slices.Repeat(in.secrets[:1], in.used)
	if err := in.measureLoad(ctx, "one key, first requests", one); err != nil {
		return err
	}
	if err := in.measureLoad(ctx, "one key", one); err != nil {
		return err
	}
	before, err := in.residentOfProxies()
	if err != nil {
		return err
	}
	if err := in.measureLoad(ctx, "each with another key, for the first time", in.secrets); err != nil {
		return err
	}
	after, err := in.residentOfProxies()
	if err != nil {
		return err
	}
	if err := in.measureLoad(ctx, "each with another key, known to the proxy", in.secrets); err != nil {
		return err
	}
	in.row("proxies, growth of their memory for each new key, with its account", "%.0f bytes", float64(after-before)/float64(in.used))
	in.row("a proxy, memory", "%.0f MiB", float64(after)/float64(in.proxies)/(1<<20))
	control, err := proxybench.Resident(in.state.PIDs[devstack.ControlPlaneName(0)])
	in.row("control plane, memory", "%.0f MiB", float64(control)/(1<<20))
	return err
}

// measureLoad sends a request with each key, to the proxies in turn, and prints the cost of a request.
func (in *installation) measureLoad(ctx context.Context, name string, secrets []string) error {
	const connections = 16
	leases, err := in.leaseMessages(ctx)
	if err != nil {
		return err
	}
	before, err := in.cpuTimes()
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	text := strings.Repeat("word ", 200)
	var unavailable atomic.Int64
	err = concurrently(ctx, connections, len(secrets), func(ctx context.Context, i int) error {
		body := fmt.Sprintf(`{"model":"bench-%d","messages":[{"role":"user","content":%q}]}`, i%in.models, text)
		status, answer, err := call(ctx, client, http.MethodPost, in.state.BaseURLs[i%in.proxies]+"/v1/chat/completions", secrets[i], "application/json", body)
		switch {
		case err == nil && status == http.StatusServiceUnavailable: // the machine is overloaded
			unavailable.Add(1)
		case err == nil && status != http.StatusOK:
			err = fmt.Errorf("a request got status %d: %.200s", status, answer)
		}
		return err
	})
	if err != nil {
		return err
	}
	wait(ctx, settleTime)
	after, err := in.cpuTimes()
	if err != nil {
		return err
	}
	leasesAfter, err := in.leaseMessages(ctx)
	each := func(name string) float64 {
		return float64((after[name] - before[name]).Microseconds()) / float64(len(secrets))
	}
	in.row("request, "+name, "proxies %.0f µs, control plane %.0f µs, Postgres %.0f µs, %.3f lease messages, %d answers 503", each("proxies"), each("control plane"),
		each("Postgres"), (leasesAfter-leases)/float64(len(secrets)), unavailable.Load())
	return err
}

// leaseMessages returns how many lease messages the control plane has handled.
func (in *installation) leaseMessages(ctx context.Context) (n float64, err error) {
	_, metrics, err := call(ctx, http.DefaultClient, http.MethodGet, in.state.OpsURLs[devstack.ControlPlaneName(0)]+"/metrics", "", "", "")
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "mgw_lease_batch_size_sum "); ok {
			_, err = fmt.Sscan(value, &n)
			return n, err //nolint:wrapcheck // a number of our own
		}
	}
	return 0, errors.Join(err, errors.New("the control plane does not count lease messages"))
}

// measureRevocations prints how long a revocation takes until all proxies have confirmed it.
func (in *installation) measureRevocations(ctx context.Context) error {
	var times []time.Duration
	for _, key := range in.keyIDs[:min(50, in.used/2)] {
		begin := time.Now()
		answer, err := in.admin.RevokeKey(ctx, key, nil)
		if err != nil {
			return fmt.Errorf("revoke key: %w", err)
		}
		if !answer.Value.Effective || len(answer.Value.ConfirmedBy) != in.proxies {
			return fmt.Errorf("a revocation is effective: %t, confirmed by %d proxies", answer.Value.Effective, len(answer.Value.ConfirmedBy))
		}
		times = append(times, time.Since(begin))
	}
	in.times("revocation until all proxies have confirmed it", times)
	return nil
}

func (in *installation) times(name string, times []time.Duration) {
	slices.Sort(times)
	in.row(name, "%.1f ms median, %.1f ms at most", milliseconds(times[len(times)/2]), milliseconds(times[len(times)-1]))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measureCatalog prints how long a new model takes until all proxies have it.
func (in *installation) measureCatalog(ctx context.Context) error {
	var times []time.Duration
	for i := range 5 {
		added := in.models + i
		in.catalog += scaleModel(added)
		begin := time.Now()
		status, answer, err := call(ctx, http.DefaultClient, http.MethodPut, in.state.AdminURL+"/admin/v1/catalog", in.state.AdminToken, "application/yaml", in.catalog)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("change the catalog: status %d: %.200s: %w", status, answer, err)
		}
		for proxy := range in.proxies {
			for found := false; !found; {
				if !wait(ctx, time.Millisecond) {
					return context.Cause(ctx)
				}
				status, models, err := call(ctx, http.DefaultClient, http.MethodGet, in.state.BaseURLs[proxy]+"/v1/models", in.secrets[in.used-1], "", "")
				if err != nil || status != http.StatusOK {
					return fmt.Errorf("list models: status %d: %w", status, err)
				}
				found = strings.Contains(models, fmt.Sprintf(`"bench-%d"`, added))
			}
		}
		times = append(times, time.Since(begin))
	}
	in.times("new model until all proxies serve it", times)
	return nil
}

// measureStart kills a proxy and prints how long its successor takes to be ready.
func (in *installation) measureStart(ctx context.Context) error {
	name := devstack.DataPlaneName(0)
	before := in.state.PIDs[name]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	for in.stack.State().PIDs[name] == before {
		if !wait(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	for status := 0; status != http.StatusOK; {
		if !wait(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
		status, _, _ = call(ctx, http.DefaultClient, http.MethodGet, in.state.OpsURLs[name]+"/readyz", "", "", "") // it does not listen yet
	}
	age, err := proxybench.Age(in.stack.State().PIDs[name])
	in.row("start of a proxy after a kill, from its process to ready", "%.0f ms", milliseconds(age))
	return err
}

// wait pauses and reports whether ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// call sends a request and returns status and body of its answer.
func call(ctx context.Context, client *http.Client, method, url, token, mediaType, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", fmt.Errorf("send request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return answer.StatusCode, string(text), nil
}
