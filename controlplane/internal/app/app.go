// Package app builds and runs all components of the control plane. Dependencies, start order and
// stop order are defined here and nowhere else.
//
// Start order: database, probes, leasing, NATS with settlement, outbox, jobs, admin API. To stop,
// the control plane reports not ready and then stops the components in reverse order, so that no
// component is stopped before one that uses it; probes are answered until the end.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/certfile"
	"modelgateway/shared/ident"
	"modelgateway/shared/platform/heap"
	"modelgateway/shared/platform/lifecycle"
	"modelgateway/shared/platform/logbuffer"
	"modelgateway/shared/platform/ops"
)

// Run runs the control plane until the context ends, then stops it within the configured time. It
// returns nil after a clean stop.
func Run(ctx context.Context, cfg config.Config, out io.Writer, version string) error {
	level := new(slog.LevelVar)
	level.Set(cfg.Log.Level)
	lines := logbuffer.New(out)
	defer lines.Close()
	log := slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level}))
	a := &app{
		cfg:      cfg,
		log:      log,
		level:    level,
		version:  version,
		registry: newRegistry(version),
		failed:   make(chan error, 1),
		stopping: make(chan struct{}),
		traffic:  traffic.NewLive(nil),
	}
	a.components.Log = log
	defer a.close()
	if err := a.build(ctx); err != nil {
		return err
	}

	err := a.components.Start(ctx)
	if err == nil {
		a.started.Store(true)
		log.InfoContext(ctx, "control plane started", "version", version, "admin", a.adminAddr, "ops", a.opsAddr)
		select {
		case <-ctx.Done():
		case err = <-a.failed:
		}
	}

	a.probes.SetDraining()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(err, a.components.Stop(stopping))
}

// shutdownTimeout bounds a graceful stop. The chart counts on it.
const shutdownTimeout = 10 * time.Second

// app holds the components.
type app struct {
	cfg      config.Config
	log      *slog.Logger
	level    *slog.LevelVar
	version  string
	registry *prometheus.Registry
	probes   ops.Probes
	// db has the connections for leases, sessions, settlement and video jobs, adminDB those for everything else.
	db, adminDB *postgres.DB
	// replica is the name of this process in the membership of control planes.
	replica string
	bus     *bus.Bus
	epochs  *recovery.Monitor
	leasing *leasing.Service
	// waiting are the accounts that get no units before an expiry is booked.
	waiting    <-chan ident.UUID
	changes    *changestream.Appender
	components lifecycle.Components
	// started is set when all components have started.
	started atomic.Bool
	// failed receives the error of a component that cannot continue.
	failed chan error
	// stopping is closed when the admin listener stops.
	stopping chan struct{}
	// traffic has what the proxies report.
	traffic *traffic.Live
	// closers are called last, in reverse order.
	closers            []func()
	adminAddr, opsAddr string
}

// build connects to the servers and adds every component in start order.
func (a *app) build(ctx context.Context) error {
	a.components.AddTask("memory", heap.Trim)
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
	a.replica = recovery.NewID()
	cfg := postgres.Config{
		URL:            string(a.cfg.Postgres.URL),
		MaxConnections: a.cfg.Postgres.MaxConnections,
		Name:           postgres.ApplicationName(a.replica),
	}
	var err error
	if a.db, err = postgres.Open(ctx, cfg); err != nil {
		return err
	}

	a.closers = append(a.closers, a.db.Close)
	cfg.MaxConnections, cfg.StatementTimeout = a.cfg.Postgres.AdminMaxConnections, a.cfg.Postgres.StatementTimeout
	if a.adminDB, err = postgres.Open(ctx, cfg); err != nil {
		return err
	}

	a.closers = append(a.closers, a.adminDB.Close)
	a.registry.MustRegister(pools{"proxies": a.db, "admin": a.adminDB})
	a.log.InfoContext(ctx, "connected to postgres", "application_name", cfg.Name)
	a.probes.Add("postgres", a.db.Ping)
	a.probes.Add("schema", a.db.Migrated)
	if err := a.db.Migrated(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}

	// Today's usage needs a partition even if no control plane has run for a long time.
	a.components.Add("usage partitions", usagestore.NewUsage(a.adminDB).EnsurePartitions, nil)
	a.components.Add("traffic partitions", usagestore.NewTraffic(a.adminDB).KeepPartitions, nil)
	return nil
}

func (a *app) buildOps(ctx context.Context) error {
	a.probes.Add("startup", func(context.Context) error {
		if !a.started.Load() {
			return errors.New("not all components have started")
		}
		return nil
	})
	registerProbes(a.registry, &a.probes)
	handler := ops.Handler(&a.probes, a.registry, a.log, ops.Options{Level: a.level, Pprof: a.cfg.Ops.Pprof})
	addr, err := a.listen(ctx, "ops", a.cfg.Ops.Listen, certfile.Files{}, handler)
	a.opsAddr = addr
	return err
}

// adminListener is the name of the listener whose streams end when it stops.
const adminListener = "admin"

// listen opens the address immediately, so that an address in use is reported before anything
// starts, and adds the server as a component.
func (a *app) listen(ctx context.Context, name, addr string, files certfile.Files, handler http.Handler) (string, error) {
	var lc net.ListenConfig
	plain, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}

	a.closers = append(a.closers, func() { _ = plain.Close() }) // already closed if the server ran
	l, err := certfile.Listen(
		plain,
		files,
		func(err error) { a.log.Warn("reading the new certificate failed", "listener", name, "error", err) },
	)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}

	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	if name == adminListener {
		server.RegisterOnShutdown(func() { close(a.stopping) })
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
				_ = server.Close() // aborts requests that do not end in time
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
