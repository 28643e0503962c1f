package guard

import (
	"log/slog"
	"testing"

	"modelgateway/shared/lease/checkpoint"
)

// disk is a Store in memory.
type disk struct{ kept *checkpoint.Checkpoint }

func (d *disk) Checkpoint() *checkpoint.Checkpoint { return d.kept }
func (d *disk) Mark() checkpoint.Mark              { return checkpoint.Mark{} }
func (d *disk) SaveCheckpoint(c *checkpoint.Checkpoint) error {
	d.kept = c
	return nil
}

func (d *disk) RemoveCheckpoint() error {
	d.kept = nil
	return nil
}

func collect() *checkpoint.Checkpoint { return &checkpoint.Checkpoint{Session: 1} }

func TestCheckpointIsRemovedBeforeTheProxyActs(t *testing.T) {
	t.Parallel()
	d := &disk{kept: collect()} // of the earlier process
	g := New(d, slog.New(slog.DiscardHandler))
	g.Act(func() {
		if d.kept != nil {
			t.Error("the proxy acts while the checkpoint of the earlier process is there")
		}
	})
	if saved, err := g.Save(collect); !saved || err != nil || d.kept == nil {
		t.Fatalf("saved %v, error %v; want a checkpoint", saved, err)
	}
	g.Act(func() {
		if d.kept != nil {
			t.Error("the proxy acts while its checkpoint is there")
		}
	})
}

func TestNoCheckpointIsWrittenWhileTheProxyActs(t *testing.T) {
	t.Parallel()
	d := &disk{}
	g := New(d, slog.New(slog.DiscardHandler))
	g.Act(func() {
		if saved, _ := g.Save(collect); saved || d.kept != nil {
			t.Error("a checkpoint is written during an action")
		}
	})
	saved, _ := g.Save(func() *checkpoint.Checkpoint {
		c := collect()
		g.Act(func() {}) // after it, the collected checkpoint is out of date
		return c
	})
	if saved || d.kept != nil {
		t.Error("a checkpoint from before an action is written")
	}
	if saved, _ := g.Save(func() *checkpoint.Checkpoint { return nil }); saved || d.kept != nil {
		t.Error("a checkpoint is written although there is nothing to keep")
	}
}
