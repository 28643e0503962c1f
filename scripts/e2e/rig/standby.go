package rig

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"modelgateway/scripts/devstack/pginstall"
	"modelgateway/shared/platform/testkit/pgcluster"
)

// openPostgres starts the links of a Postgres with a standby.
func (l *links) openPostgres(address string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.postgres = toxiproxy.NewProxy(server, Postgres, "127.0.0.1:0", address)
	l.replication = toxiproxy.NewProxy(server, "replication", "127.0.0.1:0", address)
	for _, link := range []*toxiproxy.Proxy{l.postgres, l.replication} {
		if err := link.Start(); err != nil {
			return fmt.Errorf("link of %s: %w", link.Name, err)
		}
	}
	return nil
}

// postgresSettings returns the settings that make a control plane use its link to Postgres, if there is one. The address of a
// promoted standby stays the same for them, as behind a virtual address.
func (r *Rig) postgresSettings() []string {
	if r.links.postgres == nil {
		return nil
	}

	file := filepath.Join(r.dir, "secrets", "postgres_link_url")
	if _, err := os.Stat(file); err != nil {
		text, err := os.ReadFile(filepath.Join(r.dir, "secrets", "postgres_url"))
		if err == nil {
			text, err = through(r.links.postgres, string(text))
		}
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			return []string{"MGW_POSTGRES_URL_FILE=" + err.Error()} // the control plane does not start, and shows it
		}
	}

	return []string{"MGW_POSTGRES_URL_FILE=" + file}
}

// through returns a URL of Postgres with the address of a link.
func through(link *toxiproxy.Proxy, text string) ([]byte, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	u.Host = link.Listen
	return []byte(u.String()), nil
}

// postgresURL returns the URL of the Postgres that is the primary.
func (r *Rig) postgresURL() string {
	text := r.stack.State().PostgresURL
	if r.links.postgres == nil {
		return text
	}
	linked, err := through(r.links.postgres, text)
	if err != nil {
		return text
	}
	return string(linked)
}

// A Standby follows the Postgres of a stack with Options.Standby.
type Standby struct {
	rig     *Rig
	cluster *pgcluster.Cluster
}

// StartStandby starts a standby, which ends after the other parts. It skips the test if the programs for that are missing.
func (r *Rig) StartStandby(t *testing.T) *Standby {
	t.Helper()
	binaries, err := pginstall.Console().Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgcluster.CanReplicate(binaries); err != nil {
		t.Skip(err)
	}

	primary, err := through(r.links.replication, r.stack.State().PostgresURL)
	if err != nil {
		t.Fatal(err)
	}

	c, err := pgcluster.StartStandby(t.Context(), string(primary), pgcluster.Config{Binaries: binaries, Fsync: true})
	if err != nil {
		t.Fatalf("start a standby: %v", err)
	}

	r.standby = c
	return &Standby{r, c}
}

// Cut ends the replication: the standby lacks every commit from now on.
func (s *Standby) Cut() { s.rig.links.replication.Stop() }

// Promote makes the standby the primary, and leads the control planes to it.
func (s *Standby) Promote(t *testing.T) {
	t.Helper()
	if err := s.cluster.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	link := s.rig.links.postgres
	address := fmt.Sprintf("127.0.0.1:%d", s.cluster.Port())
	if err := link.Update(&toxiproxy.Proxy{
		Name:     link.Name,
		Listen:   link.Listen,
		Upstream: address,
		Enabled:  true,
	}); err != nil {
		t.Fatalf("lead the control planes to the standby: %v", err)
	}
}
