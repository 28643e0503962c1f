// Package app builds every part of the control plane by hand and runs them:
// what depends on what, and in which order things start and stop, stands here
// and nowhere else.
//
// Start: database, probes, leasing, bus with settlement, outbox, jobs, then the
// admin API. Stop: not ready, then the same order backwards, so that nothing is
// taken away that something else still uses, and probes are answered to the end.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/platform/lifecycle"
	"modelgateway/shared/platform/ops"
)

// Run runs the control plane until the context ends, then stops it within the
// configured time. It returns nil after a clean stop.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger, version string) error {
	a := &app{cfg: cfg, log: log, version: version, registry: newRegistry(version), failed: make(chan error, 1)}
	a.components.Log = log
	defer a.close()
	if err := a.build(ctx); err != nil {
		return err
	}
	err := a.components.Start(ctx)
	if err == nil {
		a.started.Store(true)
		log.InfoContext(ctx, "control plane runs", "version", version, "admin", a.adminAddr, "ops", a.opsAddr)
		select {
		case <-ctx.Done():
		case err = <-a.failed:
		}
	}
	a.probes.SetDraining()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.components.Stop(stopping))
}

// app is everything that runs, once built.
type app struct {
	cfg        config.Config
	log        *slog.Logger
	version    string
	registry   *prometheus.Registry
	probes     ops.Probes
	db         *postgres.DB
	bus        *bus.Bus
	epochs     *recovery.Monitor
	leasing    *leasing.Service
	components lifecycle.Components
	// started is set when every part runs.
	started atomic.Bool
	// failed takes the error of a part that cannot go on.
	failed chan error
	// closers are called last, the newest first.
	closers            []func()
	adminAddr, opsAddr string
}

func newRegistry(version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mgw_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return reg
}

// build connects and adds every part in starting order.
func (a *app) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.buildDatabase, a.buildOps, a.buildProxySide, a.buildAdminSide,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) buildDatabase(ctx context.Context) error {
	db, err := postgres.Open(ctx, postgres.Config{
		URL: string(a.cfg.Postgres.URL), MaxConnections: a.cfg.Postgres.MaxConnections,
	})
	if err != nil {
		return err
	}
	a.db = db
	a.closers = append(a.closers, db.Close)
	a.probes.Add("postgres", db.Ping)
	a.probes.Add("schema", db.Migrated)
	if err := db.Migrated(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	// Usage of today must have somewhere to go, however long nothing has run.
	a.components.Add("usage partitions", usagestore.New(db).EnsurePartitions, nil)
	return nil
}

func (a *app) buildOps(ctx context.Context) error {
	a.probes.Add("startup", func(context.Context) error {
		if !a.started.Load() {
			return errors.New("not everything runs yet")
		}
		return nil
	})
	handler := ops.Handler(&a.probes, a.registry, a.log, a.cfg.Ops.Pprof)
	addr, err := a.listen(ctx, "ops", a.cfg.Ops.Listen, handler)
	a.opsAddr = addr
	return err
}

// listen takes an address at once, so that one in use is known before anything
// starts, and adds the server as a part.
func (a *app) listen(ctx context.Context, name, addr string, handler http.Handler) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	a.closers = append(a.closers, func() { _ = l.Close() }) // closed already if the server ran
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	served := make(chan struct{})
	a.components.Add(name,
		func(context.Context) error {
			go func() {
				defer close(served)
				if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
					a.fail(fmt.Errorf("%s: %w", name, err))
				}
			}()
			return nil
		},
		func(ctx context.Context) error {
			defer func() { <-served }()
			if err := server.Shutdown(ctx); err != nil {
				_ = server.Close() // requests that do not end in time are cut
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	return l.Addr().String(), nil
}

// fail ends Run; only the first error counts.
func (a *app) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

func (a *app) close() {
	for _, closer := range slices.Backward(a.closers) {
		closer()
	}
}
