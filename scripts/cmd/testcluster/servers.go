package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"modelgateway/scripts/providersim"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/pgcluster"
)

const (
	natsPort, postgresPort, providerPort = 4222, 5432, 9100
	database                             = "modelgateway"
	startLimit                           = time.Minute
)

// servers are NATS, Postgres and the provider.
type servers struct {
	nats     *natsserver.Server
	postgres *pgcluster.Cluster
	provider *http.Server
	closers  []io.Closer
	// natsPasswords by user; postgresURL is the address for pods.
	natsPasswords map[string]string
	postgresURL   string

	natsOptions    natsserver.Options
	natsUsers      []natsuser.User
	postgresConfig pgcluster.Config
}

func startServers(ctx context.Context, address, dir string) (*servers, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove the old data: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Postgres runs as another user
		return nil, fmt.Errorf("create the directory of the data: %w", err)
	}

	s := &servers{natsPasswords: map[string]string{}}
	for _, step := range []func() error{
		func() error { return s.startNATS(address, filepath.Join(dir, "nats")) },
		func() error { return s.startPostgres(ctx, address, filepath.Join(dir, "postgres")) },
		func() error { return s.startProvider(ctx, address) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}

	return s, nil
}

// startNATS starts NATS with the users of the planes and their permissions.
func (s *servers) startNATS(address, dir string) error {
	s.natsOptions = natsserver.Options{
		ServerName: "node",
		Host:       address,
		Port:       natsPort,
		JetStream:  true,
		StoreDir:   dir,
		NoSigs:     true,
		LogFile:    dir + ".log",
	}
	s.natsUsers = natsuser.Users()
	return s.runNATS()
}

// options returns the options of NATS with the users of now.
func (s *servers) options() *natsserver.Options {
	o := s.natsOptions.Clone()
	for _, u := range s.natsUsers {
		if s.natsPasswords[u.Name] == "" {
			s.natsPasswords[u.Name] = rand.Text()
		}
		o.Users = append(
			o.Users,
			&natsserver.User{Username: u.Name, Password: s.natsPasswords[u.Name], Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Allow: u.Publish}, Subscribe: &natsserver.SubjectPermission{Allow: u.Subscribe},
			}},
		)
	}
	return o
}

// addNextUsers adds the second users; clients stay connected.
func (s *servers) addNextUsers() error {
	s.natsUsers = append(s.natsUsers, natsuser.Next(natsuser.Users())...)
	return s.reloadNATS()
}

// removeFirstUsers removes the users that NATS had at first.
func (s *servers) removeFirstUsers() error {
	s.natsUsers = natsuser.Next(natsuser.Users())
	return s.reloadNATS()
}

func (s *servers) reloadNATS() error {
	if err := s.nats.ReloadOptions(s.options()); err != nil {
		return fmt.Errorf("reload NATS: %w", err)
	}
	return nil
}

func (s *servers) stopNATS() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// runNATS starts NATS with the data that it has.
func (s *servers) runNATS() error {
	server, err := natsserver.NewServer(s.options())
	if err != nil {
		return fmt.Errorf("create the NATS server: %w", err)
	}
	server.ConfigureLogger()
	server.Start()
	s.nats = server
	if !server.ReadyForConnections(startLimit) {
		return errors.New("NATS does not accept connections")
	}
	return nil
}

// startPostgres starts Postgres, which listens on the loopback, and forwards connections of pods to it.
func (s *servers) startPostgres(ctx context.Context, address, dir string) error {
	password := rand.Text()
	s.postgresConfig = pgcluster.Config{
		Dir:      dir,
		Password: password,
		Database: database,
		Fsync:    true,
	}
	cluster, err := pgcluster.Start(ctx, s.postgresConfig)
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}

	s.postgres, s.postgresConfig.Port = cluster, cluster.Port()
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(postgresPort)))
	if err != nil {
		return fmt.Errorf("listen for Postgres: %w", err)
	}

	s.closers = append(s.closers, listener)
	go forward(ctx, listener, net.JoinHostPort("127.0.0.1", strconv.Itoa(cluster.Port())))
	s.postgresURL = fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", password, listener.Addr(), database)
	return nil
}

// restartPostgres stops Postgres and starts it again at the same port.
func (s *servers) restartPostgres(ctx context.Context) error {
	if err := s.postgres.Stop(ctx); err != nil {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	cluster, err := pgcluster.Start(ctx, s.postgresConfig)
	if err != nil {
		return fmt.Errorf("start Postgres again: %w", err)
	}
	s.postgres = cluster
	return nil
}

// forward connects everybody who connects to the listener with an address.
func forward(ctx context.Context, listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // closed
		}

		go func() {
			defer func() { _ = from.Close() }()
			var dialer net.Dialer
			other, err := dialer.DialContext(ctx, "tcp", to)
			if err != nil {
				return // the client sees a closed connection
			}
			defer func() { _ = other.Close() }()
			go func() {
				_, _ = io.Copy(other, from)
				_ = other.Close()
			}()
			_, _ = io.Copy(from, other)
		}()
	}
}

func (s *servers) startProvider(ctx context.Context, address string) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(providerPort)))
	if err != nil {
		return fmt.Errorf("listen for the provider: %w", err)
	}
	sim := providersim.New(providersim.Config{JournalMax: 1})
	s.closers = append(s.closers, closer(sim.Close))
	s.provider = &http.Server{Handler: sim, ReadHeaderTimeout: startLimit}
	go func() { _ = s.provider.Serve(listener) }()
	return nil
}

// closer makes a function without a result an io.Closer.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

func (s *servers) stop() error {
	var all []error
	for _, c := range s.closers {
		all = append(all, c.Close())
	}
	if s.provider != nil {
		all = append(all, s.provider.Close())
	}
	if s.postgres != nil {
		all = append(all, s.postgres.Stop(context.Background()))
	}
	if s.nats != nil {
		s.stopNATS()
	}
	return errors.Join(all...)
}

// dump writes a backup of the database to a file.
func (s *servers) dump(ctx context.Context, file string) error {
	return s.tool(ctx, "pg_dump", "--format=custom", "--file="+file, "--dbname="+s.postgres.URL(database))
}

// restore replaces the database by a backup.
func (s *servers) restore(ctx context.Context, file string) error {
	admin := s.postgres.URL("postgres")
	for _, statement := range []string{"DROP DATABASE " + database + " WITH (FORCE)", "CREATE DATABASE " + database} {
		if err := s.tool(ctx, "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname="+admin, "--command="+statement); err != nil {
			return err
		}
	}
	return s.tool(ctx, "pg_restore", "--exit-on-error", "--dbname="+s.postgres.URL(database), file)
}

// tool runs a program of the Postgres installation.
func (s *servers) tool(ctx context.Context, name string, args ...string) error {
	installed, err := pgcluster.Find()
	if err != nil {
		return fmt.Errorf("find Postgres: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(installed.Dir, name), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
