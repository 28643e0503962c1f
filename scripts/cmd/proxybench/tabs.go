package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"modelgateway/scripts/devstack"
	"modelgateway/scripts/proxybench"
)

// measureTabs measures the CPU time of the control plane, of Postgres and of NATS while people have the overview of the console
// open in tabs, and for as long without a tab.
func measureTabs(ctx context.Context, tabs int, each time.Duration, out io.Writer) error {
	provider, err := start(ctx, "provider")
	if err != nil {
		return err
	}
	defer provider.end()
	stack, clean, err := startStack(ctx, provider.url, provider.url, 2, nil)
	if err != nil {
		return err
	}
	defer clean()
	state := stack.State()
	renew, all, err := openTabs(ctx, &state, tabs)
	if err != nil {
		return err
	}
	for _, n := range []int{0, tabs} {
		before, err := partTimes(&state)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := renewTabs(ctx, all[:n], renew, each); err != nil {
			return err
		}
		after, err := partTimes(&state)
		if err != nil {
			return err
		}
		took := time.Since(began)
		for i, part := range parts(&state) {
			fmt.Fprintf(out, "| %s, %d tabs, each renewed every %s for %s | %.2f %% of a core |\n",
				part.Name, n, renew, each, 100*float64(after[i]-before[i])/float64(took))
		}
	}
	return nil
}

// partTimes returns the CPU times of the parts.
func partTimes(state *devstack.State) (times []time.Duration, err error) {
	for _, part := range parts(state) {
		own, err := proxybench.CPUTime([]proxybench.Part{part})
		if err != nil {
			return nil, err
		}
		times = append(times, own)
	}
	return times, nil
}

// renewal is the attribute of the part of a page that a script renews, with the number of seconds.
var renewal = regexp.MustCompile(`data-refresh="(\d+)"`)

// A tab is a person who has signed in.
type tab struct {
	client *http.Client
	base   string
}

// openTabs signs in for each tab and opens the overview. It returns how often the page renews its figures.
func openTabs(ctx context.Context, state *devstack.State, n int) (renew time.Duration, all []*tab, err error) {
	for range n {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return 0, nil, fmt.Errorf("make cookies: %w", err)
		}
		t := &tab{&http.Client{Jar: jar}, state.AdminURL}
		form := strings.NewReader(url.Values{"token": {state.AdminToken}}.Encode())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+"/console/sign-in", form)
		if err != nil {
			return 0, nil, fmt.Errorf("make request: %w", err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		page, err := t.do(r)
		if err != nil {
			return 0, nil, err
		}
		found := renewal.FindStringSubmatch(page)
		if found == nil {
			return 0, nil, errors.New("the overview does not say how often it is renewed")
		}
		if renew, err = time.ParseDuration(found[1] + "s"); err != nil {
			return 0, nil, fmt.Errorf("how often the overview is renewed: %w", err)
		}
		all = append(all, t)
	}
	return renew, all, nil
}

func (t *tab) do(r *http.Request) (page string, err error) {
	answer, err := t.client.Do(r)
	if err != nil {
		return "", fmt.Errorf("ask for the overview: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: got %s", r.URL.Path, answer.Status)
	}
	return string(text), err
}

// renewTabs asks for the figures of every tab as its script does, for a time. The tabs are opened one after the other.
func renewTabs(ctx context.Context, all []*tab, renew, each time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	var asking sync.WaitGroup
	faults := make([]error, len(all))
	for i, t := range all {
		asking.Go(func() {
			if !wait(ctx, renew*time.Duration(i)/time.Duration(len(all))) {
				return
			}
			for {
				r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, t.base+"/console/?charts=none", http.NoBody)
				if err == nil {
					_, err = t.do(r)
				}
				if err != nil {
					faults[i] = err
					return
				}
				if !wait(ctx, renew) {
					return
				}
			}
		})
	}
	<-ctx.Done()
	asking.Wait()
	return errors.Join(faults...)
}
