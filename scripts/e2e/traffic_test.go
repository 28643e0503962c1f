package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

func TestEveryControlPlaneHearsEveryProxy(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	for _, admin := range r.Admins(t) {
		rig.Await(t, "reports of every proxy", func(ctx context.Context) error {
			got, err := admin.GetTraffic(ctx)
			if err != nil {
				return err
			}
			if got.Value.Heard != len(r.Proxies) || got.Value.Silent != 0 || got.Value.Current == nil {
				return fmt.Errorf("%d heard, %d silent", got.Value.Heard, got.Value.Silent)
			}
			return nil
		})
	}
}

// tail returns the lines of an account's requests as they end. It returns when every proxy sends them.
func (a *api) tail(t *testing.T, account *rig.Account) <-chan adminclient.RequestLine {
	t.Helper()
	stream, err := a.Admin.TailRequests(t.Context(), &adminclient.TailRequestsParams{AccountID: &account.ID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Body.Close() })
	found := make(chan adminclient.RequestLine, 1000)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			var e adminclient.TailEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Error(err)
			} else if e.Request != nil {
				found <- *e.Request
			}
		}
	}()
	const probe = "/v1/models"
	heard := map[string]int{}
	rig.Await(t, "the lines of every proxy", func(context.Context) error {
		for i := range a.Proxies {
			if heard[rig.DataPlane(i)] == 0 {
				a.Do(t, rig.Request{Proxy: i, Path: probe, Key: account.Key})
			}
		}
		for {
			select {
			case line := <-found:
				heard[line.Proxy]++
				continue
			default:
			}
			break
		}
		if len(heard) < len(a.Proxies) {
			return fmt.Errorf("lines of %v", heard)
		}
		return nil
	})
	rest := make(chan adminclient.RequestLine, 1000)
	go func() {
		defer close(rest)
		for line := range found {
			if line.Endpoint == nil || *line.Endpoint != probe {
				rest <- line
			}
		}
	}()
	return rest
}

func TestTailShowsWhatWasShort(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{})
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	lines := a.tail(t, poor)
	post := func(proxy int, key string) *rig.Answer {
		return a.Do(t, rig.Request{Proxy: proxy, Path: chat.path, Key: key, Body: chat.body(model)})
	}
	for i := range a.Proxies {
		if answer := post(i, poor.Key); answer.Status != http.StatusPaymentRequired {
			t.Fatalf("got %s", answer)
		}
	}
	seen := map[string]bool{}
	for range a.Proxies {
		line := <-lines
		seen[line.Proxy] = true
		if line.Status != http.StatusPaymentRequired || *line.Code != "insufficient_quota" || *line.KeyID != poor.KeyID || line.Short == nil ||
			line.Short.Pool != adminclient.ShortPoolBalance || line.Short.Available != "0.00" || line.Short.Wanted == "0.00" {
			t.Errorf("line %+v", line)
		}
	}
	if len(seen) != len(a.Proxies) {
		t.Errorf("lines of %v; want each proxy", seen)
	}
	poor.Credit(t, "10")
	served := post(0, poor.Key)
	if line := <-lines; line.RequestID != served.RequestID() || line.Status != http.StatusOK || line.Cost == nil || line.RouteID == nil {
		t.Errorf("line %+v; want that of %s", line, served)
	}
}

// Refusals are stored when their minute has ended.
func TestRefusalsShowWhatWasShort(t *testing.T) {
	rig.Long(t)
	a := newAPI(t)
	model := a.Model(t, rig.Model{})
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	refused := map[string]bool{} // by the ids of the requests
	for i := range a.Proxies {
		answer := a.Do(t, rig.Request{Proxy: i, Path: chat.path, Key: poor.Key, Body: chat.body(model)})
		if answer.Status != http.StatusPaymentRequired {
			t.Fatalf("got %s", answer)
		}
		refused[answer.RequestID()] = true
	}
	rig.Await(t, "the refusals of the account", func(ctx context.Context) error {
		got, err := a.Admin.ListRefusals(ctx, &adminclient.ListRefusalsParams{AccountID: &poor.ID})
		if err != nil {
			return err
		}
		count, short := int64(0), false
		// An hour may have ended meanwhile. Proxies report ages, so which of two requests of one moment was the last is open.
		for _, row := range got.Value.Data {
			count += row.Count
			short = short || (row.Short != nil && refused[row.RequestID])
		}
		if count != int64(len(a.Proxies)) || !short {
			return fmt.Errorf("got %s; want %d refusals", got.Body, len(a.Proxies))
		}
		return nil
	})
}

func TestOpenBreakerIsShownAndReset(t *testing.T) {
	a := newAPI(t)
	upstream := "down-" + rig.Unique()
	model := a.Model(t, rig.Model{Routes: []rig.Route{{UpstreamModel: upstream + "@status=502"}}})
	post := func() { a.post(t, chat.path, chat.body(model)) }
	breaker := func(ctx context.Context) (route string, state adminclient.BreakerState, err error) {
		got, err := a.Admin.GetRoutesHealth(ctx)
		if err != nil {
			return "", "", err
		}
		for _, r := range got.Value.Data {
			for _, b := range r.Breakers {
				if r.Model == model && b.Proxy == rig.DataPlane(0) {
					return r.RouteID, b.State, nil
				}
			}
		}
		return "", "", fmt.Errorf("no breaker of %s", model)
	}
	route := ""
	rig.Await(t, "an open breaker", func(ctx context.Context) error {
		post()
		id, state, err := breaker(ctx)
		if route = id; err == nil && state != adminclient.BreakerStateOpen {
			err = fmt.Errorf("it is %s", state)
		}
		return err
	})
	calls := func() int { return a.routed(t, upstream)[0] }
	wait := adminclient.WaitForApplied
	before := calls()
	reset, err := a.Admin.ResetRoute(t.Context(), route, &adminclient.ResetRouteParams{Wait: &wait})
	if err != nil || reset.Header.Get("Applied") != "true" {
		t.Fatalf("reset: %v, %v", reset, err)
	}
	for range 5 { // a breaker that is half-open lets one request pass
		post()
	}
	if got := calls() - before; got < 5 {
		t.Errorf("%d of 5 requests reached the provider after the reset", got)
	}
}
