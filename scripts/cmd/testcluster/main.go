// Command testcluster installs the chart with the images of two versions in the cluster of
// scripts/cluster/kube.sh and operates it under load: install, upgrade, rollback, eviction of
// replicas, scaling, rotation of secrets, restore of a backup. It prints the figures of each
// step and fails if a request failed, or was not billed exactly once.
//
// NATS, Postgres and the provider simulator run in this process or as its children, on the
// address of the node. Run it with kube.sh run; make test/cluster does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testcluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("testcluster", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.address, "address", "10.200.0.1", "address of the node")
	flags.StringVar(&o.dir, "dir", "", "directory of the data, which is removed first, and of the logs of the pods")
	flags.StringVar(&o.chart, "chart", "deploy/helm/modelgateway", "chart to install")
	flags.StringVar(&o.previous, "previous", "", "version to begin with")
	flags.StringVar(&o.next, "next", "", "version to upgrade to")
	only := flags.String("steps", ".", "regular expression for the names of the steps to play, beside the install")
	flags.IntVar(&o.clients, "clients", 8, "clients that send one JSON request after the other over a connection")
	flags.IntVar(&o.streams, "streams", 4, "clients that read one stream of six seconds after the other")
	flags.DurationVar(&o.pause, "pause", 40*time.Millisecond, "pause of a client between two JSON requests")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // the flag package has printed it
	}
	if o.dir == "" || o.previous == "" || o.next == "" {
		return errors.New("-dir, -previous and -next are required")
	}
	if o.steps, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-steps: %w", err)
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return fmt.Errorf("directory of the data: %w", err)
	}

	servers, err := startServers(ctx, o.address, o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	if err := keepLogs(ctx, filepath.Join(o.dir, "logs")); err != nil {
		return err
	}

	s := scenario{options: o, servers: servers, began: time.Now()}
	return s.play(ctx)
}

// options are the settings of a run.
type options struct {
	address, dir, chart, previous, next string
	clients, streams                    int
	pause                               time.Duration
	steps                               *regexp.Regexp
}
