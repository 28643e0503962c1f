package rig

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// links are the TCP proxies between data planes and NATS, by part.
type links struct {
	byPart map[string]*toxiproxy.Proxy
	// postgres is the link between control planes and Postgres, replication that between Postgres and its standby; nil without a standby.
	postgres, replication *toxiproxy.Proxy
}

// open starts a link to an address for each data plane.
func (l *links) open(dataPlanes int, address string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.byPart = map[string]*toxiproxy.Proxy{}
	for i := range dataPlanes {
		link := toxiproxy.NewProxy(server, DataPlane(i), "127.0.0.1:0", address)
		if err := link.Start(); err != nil {
			return fmt.Errorf("link of %s: %w", DataPlane(i), err)
		}
		l.byPart[DataPlane(i)] = link
	}
	return nil
}

func (l *links) close() {
	for _, link := range l.byPart {
		link.Stop()
	}
	for _, link := range []*toxiproxy.Proxy{l.postgres, l.replication} {
		if link != nil {
			link.Stop()
		}
	}
	*l = links{}
}

// settings returns the settings that make a part use its link, if it has one.
func (l *links) settings(part string) []string {
	if link := l.byPart[part]; link != nil {
		return []string{"MGW_NATS_URL=nats://" + link.Listen}
	}
	return nil
}

// Cut drops all data between a data plane and NATS without closing the connection, like a
// network that loses packets. Mend or the end of the test restores it.
func (r *Rig) Cut(t *testing.T, part string) (mend func()) {
	t.Helper()
	link := r.links.byPart[part]
	if link == nil {
		t.Fatalf("%s has no link that can be cut", part)
	}

	var names []string
	for _, stream := range []string{"upstream", "downstream"} {
		toxic, err := link.Toxics.AddToxicJson(strings.NewReader(`{"type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`))
		if err != nil {
			t.Fatalf("cut %s off: %v", part, err)
		}
		names = append(names, toxic.Name)
	}

	var once sync.Once
	mend = func() {
		once.Do(func() {
			for _, name := range names {
				if err := link.Toxics.RemoveToxic(context.Background(), name); err != nil {
					t.Errorf("mend the link of %s: %v", part, err)
				}
			}
		})
	}
	t.Cleanup(mend)

	return mend
}
