// Package app builds the proxy from its parts. The order in which they start,
// and the opposite order in which they stop, stand in this one file.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"modelgateway/dataplane/internal/accesslog"
	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	messagesformat "modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/format/videos"
	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/ops"
	"modelgateway/dataplane/internal/route"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/dataplane/internal/upstream"
	"modelgateway/dataplane/internal/video"
	"modelgateway/shared/apikey"
	"modelgateway/shared/seal"
	"modelgateway/shared/wire"
)

// Run serves until ctx ends, then drains and stops.
// Its log goes to out.
func Run(ctx context.Context, cfg config.Config, out io.Writer, version string) error {
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: cfg.Log.Level}))
	access := accesslog.New(out, cfg.Log.Level)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	failed := make(chan error, 1)
	p, err := build(&cfg, log, access, reg, version, func(err error) {
		select {
		case failed <- err:
		default:
		}
	})
	if err != nil {
		return err
	}
	// Parts outlive the signal to stop: they end when stop says so.
	err = p.start(context.WithoutCancel(ctx))
	if err == nil {
		log.Info("serving", slog.String("name", cfg.Name), slog.String("listen", cfg.API.Listen), slog.String("version", version))
		select {
		case <-ctx.Done():
			log.Info("draining", slog.Duration("timeout", cfg.DrainTimeout))
		case err = <-failed:
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout+cfg.ShutdownTimeout)
	defer cancel()
	if stopErr := p.stop(stop); err == nil {
		err = stopErr
	}
	log.Info("stopped")
	return err
}

// build makes every part and says how each starts and stops.
func build(cfg *config.Config, log *slog.Logger, access *accesslog.Log, reg *prometheus.Registry, version string, failed func(error)) (*parts, error) {
	secrets, err := openSecrets(&cfg.Secrets)
	if err != nil {
		return nil, err
	}
	usage, err := spool.Open(spool.Config{Dir: cfg.Spool.Dir, MaxEvents: cfg.Spool.MaxEvents, MaxBytes: cfg.Spool.MaxBytes}, log)
	if err != nil {
		return nil, err
	}
	messages, err := connect(cfg, log)
	if err != nil {
		return nil, err
	}
	keys, err := auth.New(secrets.hasher, messages, secrets.old...)
	if err != nil {
		return nil, err
	}
	models := catalog.New(secrets.fleet)
	probes := &ops.Probes{}

	var admit *admission.Admission
	picker := route.New(nil)
	keeper := session.New(session.Config{Name: cfg.Name, Build: version, Capacity: usage.Capacity()}, messages, keys, usage, session.Hooks{
		OnSession: func(s *session.Session) { admit.OnSession(s) },
		OnLoss:    func() { admit.OnLoss() },
		OnChange:  func(c wire.KeyChange) { admit.OnChange(c) },
		State: func() session.Report {
			return session.Report{
				CatalogRev: models.Rev(), Running: admit.Running(), Draining: probes.Stopped(), Refused: picker.RefusedCredentials(models.HasCredential),
			}
		},
	}, log, reg)
	admit = admission.New(keeper, keys, places{usage}, messages, admission.NewMetrics(reg), log)
	publisher := spool.NewPublisher(usage, messages, log, reg)
	providers := upstream.New(upstream.Limits{
		Connect: cfg.Upstream.ConnectTimeout, FirstByte: cfg.Upstream.FirstByteTimeout,
		Idle: cfg.Upstream.IdleTimeout, Total: cfg.Upstream.TotalTimeout,
	})
	reg.MustRegister(picker)
	tracker := video.New(messages, providers, &biller{sessions: keeper, spool: usage}, models, videos.Dialect{}, log, nil)
	poller := video.NewPoller(tracker, messages, log)
	api := httpapi.New(httpapi.Config{Listen: cfg.API.Listen, BodyTimeout: cfg.API.BodyTimeout}, httpapi.Parts{
		Keys: keys, Catalog: models, Admission: admit, Picker: picker, Providers: providers, Balances: messages, Videos: tracker,
		Dialects: []format.Dialect{chat.Dialect{}, responses.Dialect{}, messagesformat.Dialect{}, images.Dialect{}}, Identity: httpapi.Identity{Secret: secrets.identity},
		Metrics: httpapi.NewMetrics(reg), Log: log, Access: access,
	})
	probes.Add("catalog", func(context.Context) error { return models.Ready() })
	probes.Add("session", keeper.Ready)
	probes.Add("spool", func(context.Context) error { return usage.Ready() })
	gauges(reg, models)

	p := &parts{log: log}
	p.add("ops", func(ctx context.Context) error { return serveOps(ctx, cfg, probes, reg, log, failed) }, nil)
	p.add("access log", func(context.Context) error { access.Start(); return nil }, func(context.Context) error { access.Stop(); return nil })
	p.add("spool", nil, func(context.Context) error { return usage.Close() })
	p.add("bus", func(context.Context) error {
		return listen(messages, usage, keeper, admit, secrets.description(cfg.Name))
	}, func(context.Context) error {
		messages.Close()
		keys.Close()
		return nil
	})
	p.addTask("catalog", func(ctx context.Context) { messages.WatchCatalog(ctx, reported{models, keeper}) })
	p.add("usage", func(ctx context.Context) error { publisher.Start(ctx); return nil }, nil)
	p.add("session", func(ctx context.Context) error { keeper.Start(ctx); return nil }, func(ctx context.Context) error {
		return leave(ctx, cfg.ShutdownTimeout/2, admit, keeper, publisher)
	})
	p.add("video jobs", func(ctx context.Context) error { poller.Start(ctx); return nil }, func(context.Context) error { poller.Stop(); return nil })
	p.add("api", func(context.Context) error { return api.Start(failed) }, func(ctx context.Context) error {
		probes.Stopping()
		drain, cancel := context.WithTimeout(ctx, cfg.DrainTimeout)
		defer cancel()
		err := api.Stop(drain)
		providers.Close()
		return err
	})
	return p, nil
}

// leave ends the session when every request has ended: what is held goes back,
// within a time, and what was used is handed over.
func leave(ctx context.Context, within time.Duration, admit *admission.Admission, keeper *session.Keeper, publisher *spool.Publisher) error {
	returns, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	admit.Stop(returns)
	keeper.Stop()
	err := keeper.Leave(ctx)
	publisher.Stop()
	return err
}

func connect(cfg *config.Config, log *slog.Logger) (*bus.Bus, error) {
	return bus.Connect(bus.Config{
		URL: cfg.NATS.URL, User: cfg.NATS.User, Password: string(cfg.NATS.Password),
		CAFile: cfg.NATS.CAFile, CertFile: cfg.NATS.CertFile, KeyFile: cfg.NATS.KeyFile, Name: "dataplane " + cfg.Name,
	}, log)
}

// secrets are what the fleet shares, ready for use.
type secrets struct {
	hasher   *apikey.Hasher
	old      []*apikey.Hasher
	fleet    *seal.Key
	identity []byte
	// peppers and fleetKey are their fingerprints.
	peppers  []string
	fleetKey string
}

// description is what this proxy says about itself, but for its session and
// the time.
func (s *secrets) description(name string) wire.DescribeResponse {
	return wire.DescribeResponse{V: wire.Version, Name: name, Peppers: s.peppers, FleetKey: s.fleetKey}
}

func openSecrets(cfg *config.Secrets) (*secrets, error) {
	hasher, err := apikey.NewHasher([]byte(cfg.Pepper))
	if err != nil {
		return nil, err
	}
	var old []*apikey.Hasher
	peppers := []string{seal.Fingerprint([]byte(cfg.Pepper))}
	for _, pepper := range cfg.OldPeppers.Lines() {
		h, err := apikey.NewHasher([]byte(pepper))
		if err != nil {
			return nil, fmt.Errorf("app: old peppers: %w", err)
		}
		old = append(old, h)
		peppers = append(peppers, seal.Fingerprint([]byte(pepper)))
	}
	master, err := cfg.FleetKey.Key()
	if err != nil {
		return nil, fmt.Errorf("app: fleet key: %w", err)
	}
	fleet, err := seal.NewKey(master)
	if err != nil {
		return nil, err
	}
	identity, err := seal.Derive(master, "identity")
	if err != nil {
		return nil, err
	}
	return &secrets{hasher, old, fleet, identity, peppers, seal.Fingerprint(master)}, nil
}

// listen takes in what is pushed, for this process and for those before it
// whose usage is not settled yet.
func listen(b *bus.Bus, usage *spool.Spool, keeper *session.Keeper, admit *admission.Admission, self wire.DescribeResponse) error {
	handlers := bus.Handlers{Change: keeper.Pushed, Recall: admit.OnRecall, Settled: usage.Settled}
	handlers.Held = func(q wire.ReservedRequest) (wire.ReservedResponse, bool) {
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
		said := self
		said.Session, said.ClockMS = s.ID, time.Now().UnixMilli()
		return said, true
	}
	err := b.Handle(handlers)
	if err != nil {
		return err
	}
	for _, earlier := range usage.Ended(0) {
		if err := b.WatchSettled(earlier.Session); err != nil {
			return err
		}
	}
	return nil
}

// serveOps serves probes and metrics for as long as the process lives, so that
// draining can be watched.
func serveOps(ctx context.Context, cfg *config.Config, probes *ops.Probes, reg *prometheus.Registry, log *slog.Logger, failed func(error)) error {
	server := &http.Server{Addr: cfg.Ops.Listen, Handler: ops.Handler(probes, reg, log, cfg.Ops.Pprof), ReadHeaderTimeout: 5 * time.Second}
	listener, err := listenTCP(ctx, cfg.Ops.Listen)
	if err != nil {
		return err
	}
	go func() { failed(fmt.Errorf("serve ops: %w", server.Serve(listener))) }()
	return nil
}

func gauges(reg prometheus.Registerer, models *catalog.Store) {
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mgw_config_revision", Help: "Revision of the catalog in use."},
			func() float64 { return float64(models.Rev()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mgw_config_age_seconds", Help: "Time since the catalog in use was applied."},
			func() float64 { return time.Since(models.AppliedAt()).Seconds() }),
	)
}

// reported is the catalog, with what is applied of it reported at once: a
// change may be waited for.
type reported struct {
	*catalog.Store
	keeper *session.Keeper
}

// Apply implements bus.Catalog.
func (r reported) Apply() error {
	err := r.Store.Apply()
	r.keeper.Hurry()
	return err
}
