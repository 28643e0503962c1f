package proxybench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParsePeer returns the target of "name=URL,KEY,PID", a gateway that a person has started. It answers URL/v1/chat/completions
// for the key and the model bench, by calls of the bench's provider. All children of the process belong to it.
func ParsePeer(text string) (Target, error) {
	name, rest, _ := strings.Cut(text, "=")
	fields := strings.Split(rest, ",")
	if name == "" || len(fields) != 3 {
		return Target{}, fmt.Errorf("%q is not of the form name=URL,KEY,PID", text)
	}

	base, err := url.Parse(fields[0])
	if err != nil {
		return Target{}, fmt.Errorf("URL of %s: %w", name, err)
	}
	if ip := net.ParseIP(base.Hostname()); base.Scheme != "http" || ip == nil || !ip.IsLoopback() {
		return Target{}, fmt.Errorf("URL of %s: %s does not begin with http:// and a loopback address", name, base)
	}

	pid, err := strconv.Atoi(fields[2])
	if err != nil || pid <= 0 {
		return Target{}, fmt.Errorf("process id of %s: %q is not a positive number", name, fields[2])
	}

	return Target{
		Name:     name,
		BaseURL:  strings.TrimSuffix(fields[0], "/"),
		Key:      fields[1],
		PID:      pid,
		Children: true,
		Peer:     true,
	}, nil
}

// MeasureFunc measures a target once.
type MeasureFunc func(Target) (Result, error)

// Compare measures the targets alternately, in rounds. A peer that fails has no results, and log gets the reason; the failure
// of another target is returned.
func Compare(s Scenario, targets []Target, rounds int, log io.Writer, measure MeasureFunc) ([][]Result, error) {
	results := make([][]Result, len(targets))
	failed := make([]bool, len(targets))
	for range rounds {
		for i, t := range targets {
			if failed[i] {
				continue
			}

			r, err := measure(t)
			if err == nil && !s.Memory {
				err = r.check()
			}
			switch {
			case err == nil:
				results[i] = append(results[i], r)
			case t.Peer:
				fmt.Fprintf(log, "failed: %s, %s: %v\n", s.Name, t.Name, err)
				results[i], failed[i] = nil, true
			default:
				return nil, fmt.Errorf("%s, %s: %w", s.Name, t.Name, err)
			}
		}
	}
	return results, nil
}

// restLook is the time over which Rest looks at a target, and restShare the part of it that an idle one uses at most.
const (
	restLook  = 100 * time.Millisecond
	restShare = 10 * time.Millisecond
)

// Rest waits until a target is idle, at most for the limit: what a peer does after its answers disturbs the next target.
func Rest(ctx context.Context, t Target, limit time.Duration) {
	part := []Part{{PID: t.PID, Children: t.Children}}
	before, err := CPUTime(part)
	for end := time.Now().Add(limit); err == nil && ctx.Err() == nil && time.Now().Before(end); {
		pause(ctx, restLook)
		var now time.Duration
		if now, err = CPUTime(part); now-before <= restShare {
			return
		}
		before = now
	}
}

// check returns an error if an answer was not complete, or there was none.
func (r *Result) check() error {
	if r.Err == nil && r.Requests > 0 {
		return nil
	}
	return fmt.Errorf("%d answers are complete, %d are not: %w", r.Requests, r.Failures, cmp.Or(r.Err, errNoAnswer))
}

var errNoAnswer = errors.New("no answer")
