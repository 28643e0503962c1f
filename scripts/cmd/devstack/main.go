// Command devstack runs the whole product on this machine until Ctrl-C:
//
//	make run
//
// The environment moves ports (MGW_DEV_*_PORT, MGW_DEV_PORT_OFFSET), names
// another catalog (MGW_CATALOG) and where Postgres is (MGW_POSTGRES_BIN).
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
	dir := flag.String("dir", ".dev", "directory for everything that the stack writes")
	clean := flag.Bool("clean", false, "remove what the stack wrote, and do nothing else")
	flag.Parse()
	if err := run(*dir, *clean); err != nil {
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(1)
	}
}

func run(dir string, clean bool) error {
	layout, err := devstack.FindLayout(".", dir)
	if err != nil {
		return err
	}
	ctx, hurry := signals()
	if clean {
		return devstack.Clean(ctx, layout)
	}
	return devstack.Run(ctx, devstack.Config{
		Layout:   layout,
		Out:      os.Stdout,
		Postgres: pginstall.Console(),
		Hurry:    hurry,
	})
}

// signals returns a context that the first signal to stop ends, and a channel
// that the second one closes.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	hurry := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-received
		cancel()
		<-received
		close(hurry)
	}()
	return ctx, hurry
}
