// Command cabinet runs the example backend of a customer cabinet against the dev stack (`make run`):
//
//	make cabinet
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/cabinet"
)

func main() {
	stack := flag.String("stack", ".dev/stack.json", "state file of the running dev stack")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *stack)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cabinet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stack string) error {
	text, err := os.ReadFile(stack)
	if err != nil {
		return fmt.Errorf("%w (is `make run` running?)", err)
	}

	var state struct {
		BaseURL    string `json:"base_url"`
		AdminURL   string `json:"admin_url"`
		AdminToken string `json:"admin_token"`
	}

	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("%s: %w", stack, err)
	}

	api, err := adminclient.New(state.AdminURL, state.AdminToken)
	if err != nil {
		return err
	}

	model, err := cabinet.ChatModel(ctx, state.BaseURL)
	if err != nil {
		return err
	}

	c := cabinet.Cabinet{
		API:      api,
		Gateway:  state.BaseURL,
		Model:    model,
		TimeZone: "Europe/Berlin",
		Warnings: make(chan *adminclient.Event, 16),
		Out:      os.Stdout,
	}
	stop, err := c.Listen(ctx)
	if err != nil {
		return err
	}

	id := rand.Text()
	err = c.Run(ctx, cabinet.Customer{
		ID:      "customer-" + id,
		Name:    "Example Ltd",
		Payment: "payment-" + id,
		Amount:  "25.00",
		Limit:   "5.00",
	})
	return errors.Join(err, stop())
}
