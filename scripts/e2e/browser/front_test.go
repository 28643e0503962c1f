package browser

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// front is the load balancer before both control planes: it sends a request to the first one that accepts connections.
var front struct {
	url     string
	mu      sync.Mutex
	targets []string
}

// startFront starts it, so that its address is known before the control planes start.
func startFront() *httptest.Server {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		front.mu.Lock()
		targets := front.targets
		front.mu.Unlock()
		var faults []error
		for _, target := range targets {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, target)
			if err == nil {
				return conn, nil
			}
			faults = append(faults, err)
		}
		return nil, errors.Join(faults...)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "controlplanes"})
			r.Out.Host = r.In.Host
		},
		Transport:     &http.Transport{DialContext: dial},
		FlushInterval: -1, // streams of events
	})
	front.url = server.URL
	return server
}

// setTargets sets the control planes.
func setTargets(urls []string) {
	front.mu.Lock()
	defer front.mu.Unlock()
	front.targets = nil
	for _, u := range urls {
		front.targets = append(front.targets, strings.TrimPrefix(u, "http://"))
	}
}
