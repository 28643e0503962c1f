package main

import (
	"testing"

	"modelgateway/shared/platform/testkit/pgcluster"
)

func TestExitCodeIsThatOfTheCommand(t *testing.T) {
	t.Setenv(variable, "postgres://127.0.0.1:1/given")
	tests := []struct {
		name string
		args []string
		want int
	}{
		{"no command", nil, 2},
		{"success", []string{"true"}, 0},
		{"failure", []string{"sh", "-c", "exit 7"}, 7},
		{"no such program", []string{"/nowhere/program"}, 1},
		{"killed", []string{"sh", "-c", "kill -9 $$"}, 1},
		{"the given server is kept", []string{"sh", "-c", `test "$` + variable + `" = postgres://127.0.0.1:1/given`}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(tt.args); got != tt.want {
				t.Errorf("got %d; want %d", got, tt.want)
			}
		})
	}
}

func TestCommandGetsTheURLOfAServer(t *testing.T) {
	if _, err := pgcluster.Find(); err != nil {
		t.Skip(err)
	}
	t.Setenv(variable, "")
	if got := run([]string{"sh", "-c", `case "$` + variable + `" in postgres://*) exit 5; esac`}); got != 5 {
		t.Errorf("got %d; want 5, with the URL of a server", got)
	}
}
