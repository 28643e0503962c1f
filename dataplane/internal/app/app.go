// Package app builds the proxy out of its components. The order in which they
// start is in build; they stop in the opposite order.
//
// The order is that of need: the spool is open before the session is, because a registration reports its capacity, and
// the listener for clients comes last. At a stop the process reports not ready first, serves for a moment more so that
// clients connect elsewhere, drains the requests that run, publishes their usage, returns all units and closes the session,
// and then leaves NATS.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"modelgateway/dataplane/api"
	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/httpapi/meter"
	"modelgateway/dataplane/internal/providercheck"
	"modelgateway/dataplane/internal/reporter"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/dataplane/internal/tail"
	"modelgateway/dataplane/internal/upstream"
	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/dataplane/internal/videojob"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/platform/heap"
	"modelgateway/shared/platform/lifecycle"
	"modelgateway/shared/platform/ops"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/platform/settings"
	"modelgateway/shared/pulse"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// Run runs the proxy until ctx ends, then drains and stops it. It writes its
// log and the access log to out. It returns nil after a clean stop.
func Run(ctx context.Context, cfg config.Config, out io.Writer, version string) error {
	o, err := newOutput(out, &cfg, version)
	if err != nil {
		return err
	}
	defer o.close()
	log := o.log
	failed := make(chan error, 1)
	components, err := build(&cfg, o, version, func(err error) {
		select {
		case failed <- err:
		default: // only the first error counts
		}
	})
	if err != nil {
		return err
	}

	// ctx ends with the signal to stop, but the components must run until Stop ends them in order.
	err = components.Start(context.WithoutCancel(ctx))
	if err == nil {
		log.Info("proxy started", slog.String("name", cfg.Name), slog.String("listen", cfg.API.Listen), slog.String("version", version))
		select {
		case <-ctx.Done():
			log.Info("proxy draining", slog.Duration("timeout", cfg.DrainTimeout))
		case err = <-failed:
		}
	}

	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout+shutdownTimeout)
	defer cancel()
	if stopErr := components.Stop(stop); err == nil {
		err = stopErr
	}

	o.closeTraces(context.WithoutCancel(ctx))
	log.Info("proxy stopped")
	return err
}

// build makes every component and adds it with its start and stop functions.
func build(cfg *config.Config, o *output, version string, failed func(error)) (*lifecycle.Components, error) {
	log, reg := o.log, o.reg
	secrets, err := openSecrets(&cfg.Secrets)
	if err != nil {
		return nil, err
	}

	events, err := spool.Open(spool.Config{Dir: cfg.Spool.Dir, MaxEvents: cfg.Spool.MaxEvents, MaxBytes: cfg.Spool.MaxBytes}, log)
	if err != nil {
		return nil, err
	}

	nats, err := connect(cfg, log)
	if err != nil {
		return nil, err
	}

	keys, err := auth.New(auth.Config{
		Hasher:   secrets.hasher,
		Previous: secrets.previous,
		Bucket:   nats,
		MaxKeys:  auth.MaxKeys,
	}, nats, reg)
	if err != nil {
		return nil, err
	}

	models := catalog.New(secrets.fleet...)
	probes := &ops.Probes{}

	var admit *admission.Admission
	picker := route.New(nil)
	sources := credential.New(nil, models.HasCredential, log)

	identity := session.Config{
		Name:     cfg.Name,
		Build:    version,
		Capacity: events.Capacity(),
		Peppers:  secrets.pepperIDs(),
		Stream:   nats,
	}
	keeper := session.New(identity, nats, keys, events, sessionHooks(&admit, probes, refusedCredentials{picker, sources, models}), log, reg)
	admit = admission.New(keeper, keys, spoolCapacity{events}, nats, units(cfg), admission.NewMetrics(reg), log)
	publisher := spool.NewPublisher(events, nats, log, reg)

	providers := upstream.New(upstream.Limits{})
	providers.ProxyFrom(environmentProxy)
	providers.Credentials = sources

	current := state{probes, nats, picker, models, sources}
	registerState(reg, current)
	registerCertificates(reg, cfg, nats)
	measured := meter.New(reg)
	tracker := videojob.New(
		nats,
		providers,
		&videoCharger{sessions: keeper, spool: events, metrics: measured},
		models,
		videos.Dialect{},
		log,
		nil,
	)
	poller := videojob.NewPoller(tracker, nats, log)
	tails, refusals := tail.New(), reporter.NewRefusals()
	bodies := newBudget(&cfg.API, reg)
	api := httpapi.New(listenerConfig(&cfg.API), httpapi.Dependencies{
		Keys:       keys,
		Catalog:    models,
		Admission:  admit,
		Picker:     picker,
		Providers:  providers,
		Balances:   nats,
		Videos:     tracker,
		Dialects:   []format.Dialect{chat.Dialect{}, responses.Dialect{}, messages.Dialect{}, images.Dialect{}},
		Pseudonyms: httpapi.Pseudonyms{Secret: secrets.identity},
		Metrics:    measured,
		Log:        log,
		Access:     o.access,
		Traces:     o.traces,
		Budget:     bodies,
		Answers:    newRooms(cfg, bodies, reg),
		Turns:      newTurns(reg),
		Tails:      tails,
		Refusals:   refusals,
	})

	addChecks(probes, models, keeper, events)

	c := &lifecycle.Components{Log: log}
	addBasics(c, cfg, o, probes, events, failed)

	c.Add("NATS", func(context.Context) error {
		describe := describer(secrets.description(cfg.Name), probes, picker, models)
		return subscribe(nats, events, keeper, admit, tails, api.Explain, checker(providers, models), describe)
	}, func(context.Context) error {
		tails.Close()
		nats.Close()
		keys.Close()
		return nil
	})

	c.AddTask("traffic reports", newReporter(cfg, current, keeper, events, measured, refusals, log).Run)
	c.AddTask("catalog", func(ctx context.Context) { nats.WatchCatalog(ctx, acknowledgedCatalog{models, keeper, picker}) })
	c.Add("usage publisher", func(ctx context.Context) error { publisher.Start(ctx); return nil }, nil)

	c.Add("session", func(ctx context.Context) error { keeper.Start(ctx); return nil }, func(ctx context.Context) error {
		return closeSession(ctx, shutdownTimeout/2, admit, keeper, publisher)
	})

	c.Add("video poller", func(ctx context.Context) error { poller.Start(ctx); return nil }, func(context.Context) error {
		poller.Stop()
		tracker.Stop() // after the public API: creations have ended
		return nil
	})

	c.Add("public API", func(context.Context) error { return api.Start(failed) }, func(ctx context.Context) error {
		probes.SetDraining()
		err := drain(ctx, cfg, api)
		providers.Close()
		return err
	})

	return c, nil
}

// sessionHooks returns the hooks of the keeper, which exists before the admission.
func sessionHooks(admit **admission.Admission, probes *ops.Probes, refused refusedCredentials) session.Hooks {
	return session.Hooks{
		OnSession: func(s *session.Session) { (*admit).OnSession(s) },
		OnResume:  func(s *session.Session, idle map[string][]checkpoint.IdleUnits) { (*admit).OnResume(s, idle) },
		Idle:      func() map[string][]checkpoint.IdleUnits { return (*admit).IdleUnits() },
		OnLoss:    func() { (*admit).OnLoss() },
		OnChange:  func(c wire.KeyChange) { (*admit).OnChange(c) },
		State: func() session.Report {
			return session.Report{
				CatalogRev: refused.models.Rev(),
				Running:    (*admit).Running(),
				Draining:   probes.Draining(),
				Refused:    refused.list(),
			}
		},
	}
}

// addBasics adds the components that all others need.
func addBasics(c *lifecycle.Components, cfg *config.Config, o *output, probes *ops.Probes, events *spool.Spool, failed func(error)) {
	c.AddTask("memory", heap.Trim)
	c.Add("ops listener", func(ctx context.Context) error { return serveOps(ctx, cfg, probes, o, failed) }, nil)
	c.Add(
		"access log",
		func(context.Context) error { o.access.Start(); return nil },
		func(context.Context) error { o.access.Stop(); return nil },
	)
	c.Add("spool", nil, func(context.Context) error { return events.Close() })
}

// addChecks adds the readiness checks.
func addChecks(probes *ops.Probes, models *catalog.Store, keeper *session.Keeper, events *spool.Spool) {
	probes.Add("catalog", func(context.Context) error { return models.Ready() })
	probes.Add("session", func(ctx context.Context) error {
		if err := keeper.Ready(ctx); err != nil || !keeper.Alone() {
			return err
		}
		return &ops.DegradedError{
			Reason: "no control plane answers: requests are served as long as NATS has a quorum and the units of this proxy last",
		}
	})
	probes.Add("spool", func(context.Context) error { return events.Ready() })
}

// describer returns a function that adds the current state to the description of the process.
func describer(self wire.DescribeResponse, probes *ops.Probes, picker *route.Picker, models *catalog.Store) func() wire.DescribeResponse {
	return func() wire.DescribeResponse {
		self := self
		self.NotReady, self.FailingRoutes = notReady(probes), picker.Failing()
		if snapshot := models.Snapshot(); snapshot != nil {
			self.FailingModels = snapshot.Unserved(self.FailingRoutes)
		}
		return self
	}
}

const (
	// drainNotice is the part of the drain, at its start, in which new requests are still served and each answer asks its client
	// to close the connection, so that no reused connection is cut.
	drainNotice = 2 * time.Second
	// shutdownTimeout is the time after draining for returning leases and publishing usage. The chart counts on it.
	shutdownTimeout = 10 * time.Second
	// leastIdle is the least time for which the idle units of an account without requests are kept.
	leastIdle = 15 * time.Minute
)

// units returns how long units are kept. Idle ones are kept as long as an outage lasts for which they are to serve.
func units(cfg *config.Config) admission.Units {
	return admission.Units{IdleTimeout: max(leastIdle, cfg.Lease.OutageTarget), OutageTarget: cfg.Lease.OutageTarget}
}

// drain tells clients to connect elsewhere, then lets the requests finish.
func drain(ctx context.Context, cfg *config.Config, api *httpapi.Server) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.DrainTimeout)
	defer cancel()
	api.Drain()
	retry.Sleep(ctx, drainNotice)
	return api.Stop(ctx)
}

// closeSession returns all leases, publishes the remaining usage and closes the session. All requests must have ended. If no
// control plane responds, it keeps the session for the next process instead.
// Returning leases takes no longer than returnTimeout.
func closeSession(
	ctx context.Context,
	returnTimeout time.Duration,
	admit *admission.Admission,
	keeper *session.Keeper,
	publisher *spool.Publisher,
) error {
	if keeper.KeepSession() {
		publisher.Stop()
		return nil
	}
	returns, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	admit.Stop(returns)
	keeper.Stop()
	err := keeper.Leave(ctx)
	publisher.Stop()
	return err
}

func connect(cfg *config.Config, log *slog.Logger) (*bus.Bus, error) {
	return bus.Connect(bus.Config{
		URL:      cfg.NATS.URL,
		User:     cfg.NATS.User,
		Password: string(cfg.NATS.Password),
		CAFile:   cfg.NATS.CAFile,
		CertFile: cfg.NATS.CertFile,
		KeyFile:  cfg.NATS.KeyFile,
		Name:     cfg.Name,
	}, log)
}

// secrets holds the decoded secrets of the settings.
type secrets struct {
	hasher *apikey.Hasher
	// previous holds the hashers of previous peppers.
	previous []*apikey.Hasher
	fleet    seal.Keys
	identity []byte
	// The fingerprints let operators compare the secrets of the planes.
	pepperFingerprints           []string
	fleetKeyFingerprint          string
	previousFleetKeyFingerprints []string
}

// pepperIDs returns the ids of all peppers.
func (s *secrets) pepperIDs() []string {
	ids := []string{s.hasher.ID()}
	for _, previous := range s.previous {
		ids = append(ids, previous.ID())
	}
	return ids
}

// notReady returns the reasons for which the proxy is not ready, by the name of the check; nil if it is ready.
func notReady(probes *ops.Probes) map[string]string {
	ready, results := probes.Run(context.Background())
	if ready {
		return nil
	}
	maps.DeleteFunc(results, func(_, result string) bool { return result == "ok" })
	return results
}

// description returns the part of the answer to a describe request that does not change.
func (s *secrets) description(name string) wire.DescribeResponse {
	return wire.DescribeResponse{
		V:                 wire.Version,
		Name:              name,
		Peppers:           s.pepperFingerprints,
		FleetKey:          s.fleetKeyFingerprint,
		PreviousFleetKeys: s.previousFleetKeyFingerprints,
	}
}

func openSecrets(cfg *config.Secrets) (*secrets, error) {
	hasher, err := apikey.NewHasher([]byte(cfg.Pepper))
	if err != nil {
		return nil, err
	}

	s := &secrets{hasher: hasher, pepperFingerprints: []string{seal.Fingerprint([]byte(cfg.Pepper))}}
	for _, pepper := range cfg.PreviousPeppers.Lines() {
		previous, err := apikey.NewHasher([]byte(pepper))
		if err != nil {
			return nil, fmt.Errorf("app: previous peppers: %w", err)
		}
		s.previous = append(s.previous, previous)
		s.pepperFingerprints = append(s.pepperFingerprints, seal.Fingerprint([]byte(pepper)))
	}

	fleetKey, err := cfg.FleetKey.Key()
	if err != nil {
		return nil, fmt.Errorf("app: fleet key: %w", err)
	}

	s.fleetKeyFingerprint = seal.Fingerprint(fleetKey)
	fleet, err := seal.NewKey(fleetKey)
	if err != nil {
		return nil, err
	}

	s.fleet = seal.Keys{fleet}
	for _, line := range cfg.PreviousFleetKeys.Lines() {
		text, err := settings.Secret(line).Key()
		if err != nil {
			return nil, fmt.Errorf("app: previous fleet keys: %w", err)
		}
		previous, err := seal.NewKey(text)
		if err != nil {
			return nil, fmt.Errorf("app: previous fleet keys: %w", err)
		}
		s.fleet = append(s.fleet, previous)
		s.previousFleetKeyFingerprints = append(s.previousFleetKeyFingerprints, seal.Fingerprint(text))
	}

	if s.identity, err = seal.Derive(fleetKey, "identity"); err != nil {
		return nil, err
	}

	return s, nil
}

// checker returns a function that checks a provider.
func checker(providers *upstream.Client, models *catalog.Store) func(*checkwire.Request) checkwire.Response {
	return func(q *checkwire.Request) checkwire.Response {
		answer := checkwire.Response{V: wire.Version}
		if snapshot := models.Snapshot(); snapshot != nil {
			answer.CatalogRevision = snapshot.Rev
			answer.Calls = providercheck.Run(context.Background(), providers, snapshot, q.Provider)
		}
		return answer
	}
}

// environmentProxy returns the forward proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY state for an address; nil for none.
func environmentProxy(address *url.URL) (*url.URL, error) {
	forward, err := http.ProxyFromEnvironment(&http.Request{URL: address})
	if err != nil {
		return nil, fmt.Errorf("read the forward proxy of the environment: %w", err)
	}
	return forward, nil
}

// subscribe subscribes to the messages that the control plane sends: those for this process, and the watermarks of
// earlier sessions whose usage is not settled.
func subscribe(
	nats *bus.Bus, events *spool.Spool, keeper *session.Keeper, admit *admission.Admission, tails *tail.Tails,
	explain func(*wire.ExplainRequest) wire.ExplainResponse, check func(*checkwire.Request) checkwire.Response,
	describe func() wire.DescribeResponse,
) error {
	handlers := bus.Handlers{KeyChange: keeper.Pushed, Settled: events.Acknowledge}
	handlers.Recall = func(r wire.Recall) {
		if !keeper.EndResumed() {
			admit.OnRecall(r)
		}
	}

	handlers.Explain = func(q *wire.ExplainRequest) (wire.ExplainResponse, bool) {
		s := keeper.Current()
		if s == nil {
			return wire.ExplainResponse{}, false
		}
		explained := explain(q)
		explained.Session, explained.Name = s.ID, nats.Name()
		return explained, true
	}
	handlers.Check = func(q *checkwire.Request) (checkwire.Response, bool) {
		s := keeper.Current()
		if s == nil || q.Proxy != nats.Name() {
			return checkwire.Response{}, false
		}
		checked := check(q)
		checked.Session, checked.Name = s.ID, nats.Name()
		return checked, true
	}
	handlers.Tail = func(q pulse.Tail, send func(pulse.Lines)) { tails.Follow(q, send) }
	handlers.Reserved = func(q wire.ReservedRequest) (wire.ReservedResponse, bool) {
		s := keeper.Current()
		if s == nil {
			return wire.ReservedResponse{}, false
		}
		return wire.ReservedResponse{V: wire.Version, Session: s.ID, Reserved: admit.Held(q.Account)}, true
	}

	handlers.Describe = func() (wire.DescribeResponse, bool) {
		s := keeper.Current()
		if s == nil {
			return wire.DescribeResponse{}, false
		}
		description := describe()
		description.Session, description.ClockMS = s.ID, time.Now().UnixMilli()
		return description, true
	}
	if err := nats.Subscribe(handlers); err != nil {
		return err
	}

	for _, earlier := range events.Sessions() {
		if err := nats.SubscribeSettled(earlier); err != nil {
			return err
		}
	}

	return nil
}

// serveOps serves probes, metrics and the API document until the process exits,
// so that draining can be observed.
func serveOps(ctx context.Context, cfg *config.Config, probes *ops.Probes, o *output, failed func(error)) error {
	mux := http.NewServeMux()
	mux.Handle("/", ops.Handler(probes, o.reg, o.log, ops.Options{Level: o.level, Pprof: cfg.Ops.Pprof}))
	api.Register(mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Ops.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	go func() { failed(fmt.Errorf("serve ops: %w", server.Serve(listener))) }()
	return nil
}

// acknowledgedCatalog is the catalog store that resets routes after each new snapshot, and then sends a heartbeat, because
// the admin API may be waiting until proxies report its revision.
type acknowledgedCatalog struct {
	*catalog.Store
	keeper *session.Keeper
	picker *route.Picker
}

func (c acknowledgedCatalog) Apply() error {
	err := c.Store.Apply()
	if snapshot := c.Snapshot(); snapshot != nil {
		c.picker.FollowResets(snapshot.Resets())
	}
	c.keeper.HeartbeatNow()
	return err
}
