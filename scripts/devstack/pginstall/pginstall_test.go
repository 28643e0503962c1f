package pginstall

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"modelgateway/shared/platform/testkit/pgcluster"
)

func TestEnsureInstallsAfterConsent(t *testing.T) {
	t.Parallel()
	found := pgcluster.Binaries{Dir: "/found", Version: 15}
	installed := pgcluster.Binaries{Dir: "/installed", Version: 16}
	errBroken := errors.New("no network")
	errVariable := errors.New("the variable is wrong")
	tests := []struct {
		name string
		// findErr is the error of Find.
		findErr    error
		canInstall bool
		installErr error
		// answer is the input of the user; empty for no terminal.
		answer  string
		want    pgcluster.Binaries
		wantErr string
		asked   bool
	}{
		{name: "installed", want: found},
		{name: "root", findErr: &pgcluster.NotFoundError{}, canInstall: true, want: installed},
		{name: "yes", findErr: &pgcluster.NotFoundError{}, canInstall: true, answer: "y\n", want: installed, asked: true},
		{name: "enter", findErr: &pgcluster.NotFoundError{}, canInstall: true, answer: "\n", want: installed, asked: true},
		{name: "no", findErr: &pgcluster.NotFoundError{}, canInstall: true, answer: "n\n", wantErr: "apt-get install", asked: true},
		{name: "not allowed", findErr: &pgcluster.NotFoundError{}, wantErr: "apt-get install"},
		{name: "install fails", findErr: &pgcluster.NotFoundError{}, canInstall: true, installErr: errBroken, wantErr: "no network"},
		{name: "wrong variable", findErr: errVariable, canInstall: true, wantErr: "the variable is wrong"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			c := Installer{
				Out: &out,
				Find: func() (pgcluster.Binaries, error) {
					if tt.findErr != nil {
						return pgcluster.Binaries{}, tt.findErr
					}
					return found, nil
				},
				CanInstall: func(context.Context) bool { return tt.canInstall },
				Install: func(context.Context, io.Writer) (pgcluster.Binaries, error) {
					return installed, tt.installErr
				},
			}
			if tt.answer != "" {
				c.In = strings.NewReader(tt.answer)
			}
			got, err := c.Ensure(t.Context())
			if tt.wantErr == "" {
				if err != nil || got != tt.want {
					t.Errorf("got %v, %v; want %v", got, err, tt.want)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("got %v, %v; want an error with %q", got, err, tt.wantErr)
			}
			if asked := strings.Contains(out.String(), "?"); asked != tt.asked {
				t.Errorf("asked: %t; want %t", asked, tt.asked)
			}
		})
	}
}
