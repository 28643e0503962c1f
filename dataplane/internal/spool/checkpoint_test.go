package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"modelgateway/shared/lease/checkpoint"
)

// idleNote is a checkpoint of session 1 in which the account of the test's events has 1000 units.
func idleNote(m checkpoint.Mark) *checkpoint.Checkpoint {
	return &checkpoint.Checkpoint{Mark: m, Session: 1, Idle: map[string][]checkpoint.IdleUnits{usage(1, "").AccountID: {{Pool: 7, Units: 1000}, {Pool: 8, Units: 3, Slots: true}}}}
}

func TestCheckpointLeavesOutWhatWasConsumedSince(t *testing.T) {
	t.Parallel()
	s, d, cfg := setup(t)
	cfg.KernelBoot = "boot of the machine"
	s.cfg.KernelBoot = cfg.KernelBoot
	finish(start(t, s, 1, "before"), 1, "before", 500)
	running := start(t, s, 1, "running") // its reservation is 0
	if err := s.SaveCheckpoint(idleNote(s.Mark())); err != nil {
		t.Fatal(err)
	}
	finish(running, 1, "running", 30)
	finish(start(t, s, 1, "since"), 1, "since", 100)
	aborted := start(t, s, 1, "aborted")
	aborted.AppendProgress(usage(1, "").Usage, 7)
	c := mustOpen(t, cfg, d).Checkpoint()
	if c == nil {
		t.Fatal("no checkpoint")
	}
	left := c.Idle[usage(1, "").AccountID]
	if len(left) != 2 || left[0].Units != 1000-30-100-7 || left[1].Units != 3 {
		t.Errorf("idle units: %+v; want 863 and 3 slots", left)
	}
}

func TestCheckpointIsNotUsedIfRecordsMayBeMissing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, s *Spool, d *fakeDisk, cfg *Config){
		"nothing has happened":        func(*testing.T, *Spool, *fakeDisk, *Config) {},
		"another boot of the machine": func(_ *testing.T, _ *Spool, _ *fakeDisk, cfg *Config) { cfg.KernelBoot = "another" },
		"its segment was removed": func(t *testing.T, s *Spool, _ *fakeDisk, _ *Config) {
			t.Helper()
			if err := s.SaveCheckpoint(idleNote(checkpoint.Mark{})); err != nil {
				t.Fatal(err)
			}
		},
		"it was removed": func(t *testing.T, s *Spool, _ *fakeDisk, _ *Config) {
			t.Helper()
			if err := s.RemoveCheckpoint(); err != nil {
				t.Fatal(err)
			}
		},
		"its session is closed": func(_ *testing.T, s *Spool, _ *fakeDisk, _ *Config) {
			settle(s, 1, 1)
			s.FinishedSessions()
			s.MarkClosed(1)
		},
		"the disk has refused an event, which may be published": func(t *testing.T, s *Spool, d *fakeDisk, _ *Config) {
			t.Helper()
			u := start(t, s, 1, "refused")
			d.full = true
			finish(u, 1, "refused", 10)
			d.full = false
		},
		"the log ends before its mark": func(t *testing.T, s *Spool, _ *fakeDisk, _ *Config) {
			t.Helper()
			mark := s.Mark()
			mark.Offset++
			if err := s.SaveCheckpoint(idleNote(mark)); err != nil {
				t.Fatal(err)
			}
		},
		"a record behind its mark is damaged": func(t *testing.T, s *Spool, _ *fakeDisk, cfg *Config) {
			t.Helper()
			finish(start(t, s, 1, "since"), 1, "since", 100)
			if err := os.Truncate(segmentFiles(t, cfg.Dir)[0], s.segments[0].size-1); err != nil {
				t.Fatal(err)
			}
		},
		"one digit is another": func(t *testing.T, _ *Spool, _ *fakeDisk, cfg *Config) {
			replaceInCheckpoint(t, cfg, `"units":1000`, `"units":9000`)
		},
		"it is torn": func(t *testing.T, _ *Spool, _ *fakeDisk, cfg *Config) { replaceInCheckpoint(t, cfg, `}`, ``) },
		"the directory was copied": func(t *testing.T, _ *Spool, _ *fakeDisk, cfg *Config) {
			t.Helper()
			original := cfg.Dir
			cfg.Dir = filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(cfg.Dir, os.DirFS(original)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d, cfg := setup(t)
			cfg.KernelBoot = "boot of the machine"
			s.cfg.KernelBoot = cfg.KernelBoot
			finish(start(t, s, 1, "unsettled"), 1, "unsettled", 5) // it keeps the segment
			if err := s.SaveCheckpoint(idleNote(s.Mark())); err != nil {
				t.Fatal(err)
			}
			change(t, s, d, &cfg)
			if c := mustOpen(t, cfg, d).Checkpoint(); (c == nil) == (name == "nothing has happened") {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// replaceInCheckpoint replaces a text in the file of the checkpoint.
func replaceInCheckpoint(t *testing.T, cfg *Config, text, by string) {
	t.Helper()
	name := filepath.Join(cfg.Dir, checkpointFile)
	data, err := os.ReadFile(name)
	if err != nil || !bytes.Contains(data, []byte(text)) {
		t.Fatalf("checkpoint %s, %v; want %s in it", data, err, text)
	}
	if err := os.WriteFile(name, bytes.ReplaceAll(data, []byte(text), []byte(by)), 0o600); err != nil {
		t.Fatal(err)
	}
}
