package diagnosis

import (
	"context"
	"slices"
	"sync"
)

// providers calls each provider from here, where the network is that of the pods.
func (s *Service) providers(ctx context.Context, all []Provider) []Finding {
	urls := make([]string, len(all))
	for i, p := range all {
		urls[i] = p.BaseURL
	}
	errs := reachAll(ctx, s.cfg.ReachFunc, urls)
	add := collect("catalog")
	for i, p := range all {
		add.check(errs[i] != nil, Warning, "egress", p.ID, answer(p.BaseURL, errs[i]),
			"If proxies cannot reach the provider either, requests for its models fail.",
			"Check the address, DNS, firewalls and the network policies (networkPolicy.providersTo and providerPorts of the chart).")
	}
	return add.findings
}

// services calls the addresses that must answer.
func (s *Service) services(ctx context.Context) []Finding {
	add := collect("services")
	errs := reachAll(ctx, s.cfg.ServiceFunc, s.cfg.Services)
	for i, url := range s.cfg.Services {
		add.check(errs[i] != nil, Failure, "answers", url, answer(url, errs[i]),
			"Clients get no answer there.", "Check the Service, the pods behind it and the network policies.")
	}
	return add.findings
}

// reachAll calls addresses at the same time.
func reachAll(ctx context.Context, reach ReachFunc, urls []string) []error {
	errs := make([]error, len(urls))
	var wait sync.WaitGroup
	for i, url := range urls {
		wait.Go(func() { errs[i] = reach(ctx, url) })
	}
	wait.Wait()
	return errs
}

func answer(url string, err error) string {
	if err != nil {
		return url + " does not answer: " + err.Error()
	}
	return url + " answers"
}

// expect makes the findings OK that an installation or upgrade ends itself: it migrates the schema, and a control plane that
// starts creates streams and buckets, restores their settings and serves.
func expect(findings []Finding) {
	ends := map[string][]string{
		"postgres": {"migrations", "control_planes", "recovery_wait", "outbox"}, "nats": {"exists", "settings", "consumer", "usage_lag"},
	}
	for i := range findings {
		f := &findings[i]
		if f.Status != OK && slices.Contains(ends[f.Area], f.Check) {
			f.Status, f.Detail, f.Meaning, f.Advice = OK, f.Detail+" (before the start)", "", ""
		}
	}
}
