package devstack

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStepPrintsProgress(t *testing.T) {
	t.Parallel()
	errStep := errors.New("no space")
	tests := []struct {
		name string
		took time.Duration
		err  error
		want string
	}{
		{"quick", 100 * time.Millisecond, nil, "building ...\n"},
		{"some time", 1500 * time.Millisecond, nil, "building ...\n  done in 1.5s\n"},
		{"long", 25 * time.Second, nil, "building ...\n  still building (10s)\n  still building (20s)\n  done in 25s\n"},
		{"failed", 2 * time.Second, errStep, "building ...\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := &progress{out: &out}
				err := p.step("building", func() error {
					time.Sleep(tt.took)
					return tt.err
				})
				if !errors.Is(err, tt.err) || out.String() != tt.want {
					t.Errorf("got %v and\n%s\nwant %v and\n%s", err, out.String(), tt.err, tt.want)
				}
			})
		})
	}
}
