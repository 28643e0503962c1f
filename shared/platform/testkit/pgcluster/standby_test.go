package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestStandbyFollowsItsPrimaryUntilItIsPromoted(t *testing.T) {
	needServer(t)
	primary := mustStart(t, Config{Password: "secret"})
	if err := CanReplicate(primary.cfg.Binaries); err != nil {
		t.Skip(err)
	}
	standby, err := StartStandby(t.Context(), primary.URL(""), Config{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, standby) })
	if systemID(t, standby) != systemID(t, primary) {
		t.Error("the standby is not a copy of the primary")
	}
	follows := filepath.Join(standby.Dir(), "standby.signal")
	if _, err := os.Stat(follows); err != nil {
		t.Errorf("the standby does not follow: %v", err)
	}
	stop(t, primary)
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(follows); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the promotion: %v; want no file that makes it follow", err)
	}
	stop(t, standby)
	if _, err := os.Stat(filepath.Dir(standby.Dir())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Stop: %v; want no directory", err)
	}
}
