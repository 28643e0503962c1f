package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"modelgateway/shared/event"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/wire"
)

// The file of the checkpoint, and its name while it is written.
const (
	checkpointFile    = "checkpoint.json"
	newCheckpointFile = "checkpoint.new"
)

// Mark returns the end of the log.
func (s *Spool) Mark() checkpoint.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segments) == 0 {
		return checkpoint.Mark{}
	}
	last := s.segments[len(s.segments)-1]
	return checkpoint.Mark{Segment: last.number, Offset: last.size, Inode: last.inode()}
}

// checkpointRecord is the content of the file: a checkpoint, and the checksum of its
// text.
type checkpointRecord struct {
	Sum        uint32          `json:"sum"`
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// encodeCheckpoint returns the content of the file.
func encodeCheckpoint(c *checkpoint.Checkpoint) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("spool: encode checkpoint: %w", err)
	}
	data, err := json.Marshal(checkpointRecord{crc32.ChecksumIEEE(text), text})
	if err != nil {
		return nil, fmt.Errorf("spool: encode checkpoint: %w", err)
	}
	return data, nil
}

// decodeCheckpoint returns the checkpoint in the content of the file.
func decodeCheckpoint(data []byte) (*checkpoint.Checkpoint, error) {
	var record checkpointRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("spool: decode checkpoint: %w", err)
	}
	if crc32.ChecksumIEEE(record.Checkpoint) != record.Sum {
		return nil, errors.New("spool: decode checkpoint: its checksum is wrong")
	}
	c := &checkpoint.Checkpoint{}
	if err := json.Unmarshal(record.Checkpoint, c); err != nil {
		return nil, fmt.Errorf("spool: decode checkpoint: %w", err)
	}
	return c, nil
}

// SaveCheckpoint keeps a checkpoint for the next process. It replaces the one
// before. Like the records, it is written without fsync.
func (s *Spool) SaveCheckpoint(c *checkpoint.Checkpoint) error {
	c.KernelBoot = s.cfg.KernelBoot
	data, err := encodeCheckpoint(c)
	if err != nil {
		return err
	}
	name := filepath.Join(s.cfg.Dir, newCheckpointFile)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return fmt.Errorf("spool: write checkpoint: %w", err)
	}
	if err := os.Rename(name, filepath.Join(s.cfg.Dir, checkpointFile)); err != nil {
		return fmt.Errorf("spool: write checkpoint: %w", err)
	}
	return nil
}

// RemoveCheckpoint removes the checkpoint, if there is one.
func (s *Spool) RemoveCheckpoint() error {
	if err := os.Remove(filepath.Join(s.cfg.Dir, checkpointFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: remove checkpoint: %w", err)
	}
	return nil
}

// Checkpoint returns the checkpoint of the earlier process, with the idle units
// that are left, or nil if there is none that may be used.
func (s *Spool) Checkpoint() *checkpoint.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.earlier.checkpoint == nil {
		return nil
	}
	c := *s.earlier.checkpoint
	c.Idle = c.Left(s.earlier.used)
	return &c
}

// earlier is the checkpoint of the earlier process, and what was consumed since.
type earlier struct {
	checkpoint *checkpoint.Checkpoint
	used       checkpoint.Consumption
}

// readCheckpoint reads the checkpoint before the records are. It is no error if it
// cannot be used: the proxy then waits for a control plane.
func (s *Spool) readCheckpoint() {
	data, err := os.ReadFile(filepath.Join(s.cfg.Dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}

	c := &checkpoint.Checkpoint{}
	if err == nil {
		c, err = decodeCheckpoint(data)
	}

	if err != nil {
		s.log.Warn("checkpoint cannot be read: the session of the earlier process is not continued", slog.Any("error", err))
		return
	}

	if c.KernelBoot == "" || c.KernelBoot != s.cfg.KernelBoot {
		return // the end of the log may be missing
	}

	s.earlier = earlier{c, checkpoint.Consumption{}}
}

// checkCheckpoint drops a checkpoint if the log may lack something that was consumed
// since, or if its session is closed. It is called when all records are read, and the
// skip count: the disk may have refused events that were published all the same.
func (s *Spool) checkCheckpoint() {
	c := s.earlier.checkpoint
	if c != nil && (s.usage.Session(c.Session) == nil || s.skipCount > 0 || !s.hasAllSince(c.Mark)) {
		s.earlier = earlier{}
	}
}

// hasAllSince reports whether the log has every record that was written behind a mark.
func (s *Spool) hasAllSince(m checkpoint.Mark) bool {
	i := slices.IndexFunc(s.segments, func(seg *segment) bool { return seg.number == m.Segment })
	if i < 0 || s.segments[i].size < m.Offset || s.segments[i].inode() != m.Inode {
		return false
	}
	return !slices.ContainsFunc(s.segments[i:], func(seg *segment) bool { return seg.torn })
}

// isBehind reports whether a record is behind a mark.
func isBehind(m checkpoint.Mark, segment, offset int64) bool {
	return segment > m.Segment || segment == m.Segment && offset >= m.Offset
}

// countConsumed counts an event that is behind the mark of the checkpoint. started is
// where its started record is; nowhere if it was removed.
func (s *Spool) countConsumed(e *event.Usage, started place) {
	c := s.earlier.checkpoint
	if c == nil || wire.SessionID(e.Session) != c.Session {
		return
	}
	since := started.segment == nil || isBehind(c.Mark, started.segment.number, started.offset)
	s.earlier.used.Add(e.AccountID, int64(e.Cost), int64(e.Reservation), since)
}
