package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/money"
)

// scenario is one run.
type scenario struct {
	options
	servers *servers
	began   time.Time

	keys    map[string]string // of the Secret
	always  []string          // values of every upgrade from now on
	admin   *adminclient.Client
	account string
	load    *load
	// price of a request by model.
	price map[string]money.Nano
}

// step is a part of the scenario.
type step struct {
	name   string
	loaded bool // under load
	play   func(context.Context) error
	// refuses is true if answers of 503 are right: something is unavailable that requests need.
	refuses bool
}

func (s *scenario) play(ctx context.Context) error {
	failures := 0
	upgrade := func(set ...string) func(context.Context) error {
		return func(ctx context.Context) error { return s.helm(ctx, s.next, set...) }
	}

	for _, step := range []step{
		{name: "install " + s.previous + " until ready", play: s.install},
		{name: "catalog, account, first receipts", play: s.seed},
		{name: "upgrade " + s.previous + " to " + s.next, loaded: true, play: upgrade()},
		{name: "rollback to " + s.previous, loaded: true, play: s.rollback},
		{name: "upgrade again", loaded: true, play: upgrade()},
		{name: "evict each data plane replica", loaded: true, play: s.evictAll},
		{name: "scale out from 2 to 3", loaded: true, play: upgrade("dataplane.replicas=3")},
		{name: "scale in from 3 to 2", loaded: true, play: upgrade()},
		{name: "lose the volume of a replica", loaded: true, play: s.loseVolume},
		{name: "other size of the spool volumes", loaded: true, play: s.resizeVolumes},
		{name: "rotate the fleet key", loaded: true, play: s.rotateFleetKey},
		{name: "rotate the bootstrap token", loaded: true, play: s.rotateBootstrapToken},
		{name: "rotate the pepper", loaded: true, play: s.rotatePepper},
		{name: "rotate the master key", loaded: true, play: s.rotateMasterKey},
		{name: "rotate the passwords of NATS", loaded: true, play: s.rotateNATSPasswords},
		{name: "no control plane for 10 s", loaded: true, refuses: true, play: s.stopControlPlanes},
		{name: "no NATS for 5 s", loaded: true, refuses: true, play: s.stopNATS},
		{name: "Postgres restarts", loaded: true, refuses: true, play: s.restartPostgres},
		{name: "restore a backup", loaded: true, refuses: true, play: s.restoreBackup},
		{name: "helm test", play: s.helmTest},
	} {
		if s.load != nil && !s.steps.MatchString(step.name) {
			continue
		}
		f, err := s.playStep(ctx, step)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		failures += f.failures(step.refuses)
	}

	if err := s.verify(ctx); err != nil {
		return err
	}
	if failures > 0 {
		return fmt.Errorf("%d requests failed", failures)
	}

	return nil
}

// playStep plays a step, under load from a second before it to a second after it, and prints its figures.
func (s *scenario) playStep(ctx context.Context, step step) (figures, error) {
	var before figures
	const margin = time.Second
	if step.loaded {
		before = s.load.snapshot()
		s.load.start(ctx, s.options)
		defer s.load.stop() // unless it has been stopped below
		time.Sleep(margin)
	}

	began := time.Now()
	err := step.play(ctx)
	took := time.Since(began)
	if err != nil || !step.loaded {
		s.say("%-32s %6.1f s", step.name, took.Seconds())
		return figures{}, err
	}

	time.Sleep(margin)
	s.load.stop()
	f := s.load.snapshot().since(before)
	s.say("%-32s %6.1f s %s", step.name, took.Seconds(), f)

	return f, nil
}

func (s *scenario) say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "%7.1f  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func randomKey() string {
	const size = 32
	key := make([]byte, size)
	_, _ = rand.Read(key) // it never fails
	return base64.StdEncoding.EncodeToString(key)
}

func (s *scenario) install(ctx context.Context) error {
	const volumes = 4 // three replicas, and one for a volume that is lost
	if err := prepare(ctx, s.dir, volumes); err != nil {
		return err
	}
	s.keys = map[string]string{
		"postgres-url":               s.servers.postgresURL,
		"pepper":                     rand.Text(),
		"fleet-key":                  randomKey(),
		"master-key":                 randomKey(),
		"bootstrap-token":            rand.Text(),
		"controlplane-nats-password": s.servers.natsPasswords["controlplane"],
		"dataplane-nats-password":    s.servers.natsPasswords["dataplane"],
	}
	if err := secret(ctx, s.keys); err != nil {
		return err
	}
	return s.helm(ctx, s.previous)
}

// helm installs or upgrades the release and waits until it is ready.
func (s *scenario) helm(ctx context.Context, version string, set ...string) error {
	values, err := json.Marshal(map[string]any{
		"image": map[string]any{"registry": "localhost"},
		"nats": map[string]any{
			"url":      "nats://" + net.JoinHostPort(s.address, strconv.Itoa(natsPort)),
			"replicas": 1,
			"tls":      map[string]any{"enabled": false},
		},
		"postgres": map[string]any{"sslMode": "disable"},
		"controlplane": map[string]any{
			"image": map[string]any{"tag": version}, "config": map[string]any{"catalog": map[string]any{"require_https": false}},
		},
		"dataplane": map[string]any{
			"replicas": 2, "image": map[string]any{"tag": version}, "drainTimeoutSeconds": 60, "spool": map[string]any{"size": "512Mi"},
		},
		"preflight": map[string]any{"enabled": version == s.next}, // the program of the earlier version may not have it
	})
	if err != nil {
		return fmt.Errorf("encode the values: %w", err)
	}

	args := []string{"upgrade", "--install", releaseName, s.chart, "--namespace", namespace, "--values", "-", "--wait", "--timeout", "10m"}
	for _, value := range append(slices.Clone(s.always), set...) {
		args = append(args, "--set", value)
	}

	if _, err := command(ctx, string(values), "helm", args...); err != nil {
		return err
	}

	return ready(ctx)
}

func (s *scenario) rollback(ctx context.Context) error {
	if _, err := command(ctx, "", "helm", "rollback", releaseName, "--namespace", namespace, "--wait", "--timeout", "10m"); err != nil {
		return err
	}
	return ready(ctx)
}

// catalogText has one model for the JSON requests and one for streams of six seconds.
const catalogText = `{"currency": "USD",
"providers": [{"id": "sim", "name": "Simulator", "base_url": "http://%s:%d", "auth": "bearer",
 "credentials": [{"name": "main", "secret": "made-up"}]}],
"models": [
{"id": "chat", "type": "text", "display_name": "Chat", "owned_by": "sim", "context_window": 128000,
 "max_output_tokens": 1000, "reserve_output_tokens": 100,
 "price": {"input": "1.00", "output": "2.00"},
 "routes": [{"provider": "sim", "upstream_model": "sim-chat@delay=20ms", "formats": ["chat"]}]},
{"id": "stream", "type": "text", "display_name": "Stream", "owned_by": "sim", "context_window": 128000,
 "max_output_tokens": 1000, "reserve_output_tokens": 100,
 "price": {"input": "1.00", "output": "2.00"},
 "routes": [{"provider": "sim", "upstream_model": "sim-chat@out=60,chunk=100ms", "formats": ["chat"]}]}]}`

// seed applies a catalog, creates an account with money and a key, and sends a request to each model for its price.
func (s *scenario) seed(ctx context.Context) error {
	if err := s.signIn(ctx); err != nil {
		return err
	}

	var document adminclient.CatalogDocument
	if err := json.Unmarshal(fmt.Appendf(nil, catalogText, s.address, providerPort), &document); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}

	// kube-proxy learns of ready pods a moment after helm.
	_, err := s.admin.ApplyCatalog(ctx, nil, document)
	for deadline := time.Now().Add(startLimit); err != nil && time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Second) {
		_, err = s.admin.ApplyCatalog(ctx, nil, document)
	}

	if err != nil {
		return fmt.Errorf("apply the catalog: %w", err)
	}

	slots := 1000
	account, err := s.admin.CreateAccount(ctx, nil, adminclient.AccountCreate{Name: "Load", MaxConcurrentRequests: &slots})
	if err != nil {
		return fmt.Errorf("create the account: %w", err)
	}

	s.account = account.Value.ID
	credit := adminclient.CreditCreate{Amount: "1000", Kind: adminclient.CreditKindPayment, Reference: "load"}
	if _, err := s.admin.CreateCredit(ctx, s.account, nil, credit); err != nil {
		return fmt.Errorf("create the credit: %w", err)
	}

	key, err := s.admin.CreateKey(ctx, s.account, nil, adminclient.KeyCreate{Name: "Load"})
	if err != nil {
		return fmt.Errorf("create the key: %w", err)
	}

	ip, err := clusterIP(ctx, dataPlane)
	if err != nil {
		return err
	}

	s.load = newLoad(net.JoinHostPort(ip, "80"), key.Value.Secret)
	s.price = map[string]money.Nano{}
	for _, model := range []string{"chat", "stream"} {
		if err := s.measurePrice(ctx, model); err != nil {
			return err
		}
	}

	return nil
}

// signIn creates the client of the admin API with the bootstrap token of now.
func (s *scenario) signIn(ctx context.Context) error {
	ip, err := clusterIP(ctx, controlPlane)
	if err != nil {
		return err
	}
	s.admin, err = adminclient.New("http://"+ip, strings.Fields(s.keys["bootstrap-token"])[0])
	if err != nil {
		return fmt.Errorf("client of the admin API: %w", err)
	}
	return nil
}

// measurePrice sends requests until the catalog has reached the proxy, and reads the price of the first answered one.
func (s *scenario) measurePrice(ctx context.Context, model string) error {
	before := s.load.snapshot()
	for ctx.Err() == nil {
		s.load.send(ctx, &connection{address: s.load.address}, model)
		if f := s.load.snapshot().since(before); f.requests+f.streams == 1 {
			break
		}
	}
	totals, err := s.awaitTotals(ctx)
	if err != nil {
		return err
	}
	s.price[model] = totals[model].cost
	s.say("a request to %s costs %s USD", model, totals[model].cost)
	return nil
}

// evictAll evicts the replicas of the data plane one after the other, each when the one before is ready again.
func (s *scenario) evictAll(ctx context.Context) error {
	for i := range 2 {
		if err := evict(ctx, fmt.Sprintf("%s-%d", dataPlane, i)); err != nil {
			return err
		}
		if err := ready(ctx); err != nil {
			return err
		}
	}
	return nil
}
