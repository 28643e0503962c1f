package config

import (
	"encoding/base64"
	"flag"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"modelgateway/shared/platform/settings"
	"modelgateway/shared/platform/settings/settingstest"
)

var update = flag.Bool("update", false, "rewrite the settings reference")

func TestSettingsReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	settingstest.CheckReference(t, "../../../docs/settings.md", "dataplane", Default(), *update)
}

func TestEverySettingHasAFlagAndAUsage(t *testing.T) {
	settingstest.CheckFlags(t, Default(), func(flags *pflag.FlagSet) error {
		cfg, err := Load(flags)
		if diff := cmp.Diff(Default(), cfg); diff != "" {
			t.Errorf("(-default +loaded):\n%s", diff)
		}
		return err
	})
}

func TestSettingsAreLoadedFromFlags(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--spool.dir=elsewhere", "--drain_timeout=9s", "--ops.pprof"}); err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Spool.Dir, want.DrainTimeout, want.Ops.Pprof = "elsewhere", 9*time.Second, true
	if got, err := Load(flags); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// valid returns a configuration that passes validation.
func valid() Config {
	cfg := Default()
	cfg.NATS.URL = "nats://127.0.0.1:4222"
	cfg.Secrets.Pepper = "sixteen bytes are enough"
	cfg.Secrets.FleetKey = settings.Secret(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	return cfg
}

func TestNameDefaultsToTheHostName(t *testing.T) {
	t.Parallel()
	cfg := valid()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil || cfg.Name != host {
		t.Errorf("got %v, name %q; want no error and %q", err, cfg.Name, host)
	}
}

func TestValidateRejectsEachInvalidSetting(t *testing.T) {
	t.Parallel()
	tests := []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.NATS.URL = "" }, "nats.url"},
		{func(c *Config) { c.Secrets.Pepper = "fifteen bytes  " }, "secrets.pepper"},
		{func(c *Config) { c.Secrets.PreviousPeppers = "a good old pepper\nshort" }, "line 2 of secrets.previous_peppers"},
		{func(c *Config) { c.Secrets.PreviousPeppers = c.Secrets.Pepper }, "line 1 of secrets.previous_peppers"},
		{func(c *Config) { c.Secrets.FleetKey = "" }, "secrets.fleet_key: is not set"},
		{func(c *Config) { c.Secrets.FleetKey = "c2hvcnQ=" }, "secrets.fleet_key: is not 32 bytes"},
		{func(c *Config) { c.Spool.Dir = "" }, "spool.dir"},
		{func(c *Config) { c.Spool.MaxEvents = 99 }, "spool.max_events"},
		{func(c *Config) { c.Spool.MaxBytes = 1<<20 - 1 }, "spool.max_bytes"},
		{func(c *Config) { c.Lease.OutageTarget = -1 }, "lease.outage_target"},
		{func(c *Config) { c.Lease.OutageTarget = 24*time.Hour + 1 }, "lease.outage_target"},
		{func(c *Config) { c.API.BodyTimeout = 0 }, "api.body_timeout"},
		{func(c *Config) { c.API.MinRate = 0 }, "api.min_rate"},
		{func(c *Config) { c.API.MaxConnections = 0 }, "api.max_connections"},
		{func(c *Config) { c.API.BodyBudget = 1 << 20 }, "api.body_budget"},
		{func(c *Config) { c.DrainTimeout = -1 }, "drain_timeout"},
		{func(c *Config) { c.Tracing.SampleRatio = 1.1 }, "tracing.sample_ratio"},
		{func(c *Config) { c.Tracing.SampleRatio = math.NaN() }, "tracing.sample_ratio"},
		{func(c *Config) { c.Tracing.Endpoint = "collector:4318" }, "tracing.endpoint"},
		{func(c *Config) { c.Tracing.Endpoint = "grpc://collector" }, "tracing.endpoint"},
	}
	for _, tt := range tests {
		cfg := valid()
		tt.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v; want one error that names %s", err, tt.want)
		}
	}
}

func TestValidateReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	var none Config
	if got := strings.Count(none.Validate().Error(), "\n") + 1; got != 9 {
		t.Errorf("%d errors for an empty configuration; want 9:\n%v", got, none.Validate())
	}
}
