// Command devstack runs the whole product on this machine until Ctrl-C:
//
//	make run
//
// Environment variables change the ports (MGW_DEV_*_PORT, MGW_DEV_PORT_OFFSET), the number
// of planes (MGW_DEV_DATAPLANES, MGW_DEV_CONTROLPLANES), the catalog file (MGW_CATALOG) and
// the directory of the Postgres binaries (MGW_POSTGRES_BIN). Variables of the planes' settings
// (docs/settings.md) reach the planes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"modelgateway/scripts/devstack"
	"modelgateway/scripts/devstack/pginstall"
)

func main() {
	dir := flag.String("dir", ".dev", "directory for the files and data of the stack")
	clean := flag.Bool("clean", false, "remove the files and data of the stack and exit")
	apply := flag.Bool("apply-catalog", false, "apply the catalog file even if it has not changed since the last run")
	flag.Parse()
	if err := run(*dir, *clean, *apply); err != nil {
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(1)
	}
}

func run(dir string, clean, apply bool) error {
	layout, err := devstack.FindLayout(".", dir)
	if err != nil {
		return err
	}

	ctx, kill := signals()
	if clean {
		return devstack.Clean(ctx, layout)
	}

	return devstack.Run(ctx, devstack.Config{
		Layout:   layout,
		Out:      os.Stdout,
		Postgres: pginstall.Console(),
		Kill:     kill,

		ApplyCatalog: apply,
	})
}

// signals returns a context that ends at the first SIGINT or SIGTERM, and a channel that is
// closed at the second one.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	kill := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-received
		cancel()
		<-received
		close(kill)
	}()
	return ctx, kill
}
