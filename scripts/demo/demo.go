// Package demo fills a running dev stack, so that every page of the console has something to show. It uses the doors of the
// product only: the admin API, the public API, and for the past the messages of a proxy (past.go). So every balance,
// receipt and total holds, and the ledger check stays green.
//
// What it makes follows from a fixed seed. It can run again: accounts, keys and catalog objects that exist are kept, and
// the past is added once.
package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/devstack"
)

// seed makes two demos equal but for ids and times.
const seed = 14

// Config configures a demo.
type Config struct {
	// State is that of the running stack.
	State devstack.State
	// Days and PerDay are the length of the past and the number of its requests per day; 14 and 400 if zero.
	Days, PerDay int
	// Out gets one line for each step.
	Out io.Writer
}

// Demo fills one stack.
type Demo struct {
	cfg       Config
	api       *adminclient.Client
	customers []*customer
	http      *http.Client
}

// New returns a Demo of a running stack.
func New(cfg Config) (*Demo, error) {
	if cfg.Days == 0 {
		cfg.Days = 14
	}
	if cfg.PerDay == 0 {
		cfg.PerDay = 400
	}
	api, err := adminclient.New(cfg.State.AdminURL, cfg.State.AdminToken)
	if err != nil {
		return nil, err
	}
	return &Demo{cfg: cfg, api: api, http: &http.Client{Timeout: time.Minute}}, nil
}

// Fill adds the catalog, the customers with their keys and money, the past and what needs an operator.
func (d *Demo) Fill(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"providers and models", d.fillCatalog},
		{"accounts and keys", d.fillCustomers},
		{fmt.Sprintf("%d days of past usage", d.cfg.Days), d.fillPast},
		{"work for operators", d.fillOperations},
	}

	for _, step := range steps {
		d.printf("%s ...", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("demo: %s: %w", step.name, err)
		}
	}

	return nil
}

func (d *Demo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.cfg.Out, format+"\n", args...)
}

func random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream))
}
