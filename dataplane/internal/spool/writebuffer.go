package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// The records at the end of the last segment are in a write buffer: a file that
// is mapped into memory. What is stored in it survives the death of the process,
// as what write(2) has taken does, but costs no system call. When it is full, and
// some times a second, its records are written to the segment with one call, and
// it starts again.
//
// The buffer is a sequence of chunks, one for each write. A chunk names the segment
// and the offset that its records belong to, and has a checksum. So the rest of a
// torn store or of earlier chunks is never taken for a chunk that continues the
// ones before it, and a chunk that is in its segment already does no harm.
//
// The next process reads the last segment as if the chunks were in it (see
// bufferedFile), and writes them to it before it begins a segment of its own.
//
// Without a buffer, each record is written to its segment: where files cannot be
// mapped, or the file system fails to give room for a page of the buffer.

const (
	bufferFile  = "write-buffer"
	bufferBytes = 64 << 10
	// chunkPrefixBytes is the size of the prefix of a chunk: checksum of the rest of the chunk, length of its records (four
	// bytes each, little endian), number of the segment, offset in the segment (eight bytes each). The records follow.
	chunkPrefixBytes = 24
)

// chunkTable is that of the checksum for which processors have an instruction.
var chunkTable = crc32.MakeTable(crc32.Castagnoli)

// writeBuffer has the end of a segment that is not in the segment's file yet.
type writeBuffer struct {
	path   string
	disk   disk
	log    *slog.Logger
	mapped mapping     // nil while records are written to the segment at once
	info   os.FileInfo // identifies the mapped file
	used   int64       // size of the chunks in the mapped file
	prefix [chunkPrefixBytes]byte
	// number and file are those of the segment, and offset is where data begins in it. file is nil if there is no segment.
	number int64
	file   file
	offset int64
	// data has the records of the chunks. The mapped file is never read.
	data []byte
	// refused means that the segment's file has refused the data. The buffer takes no more until it is written.
	refused bool
	// unmappable means that the last attempt to map a file has failed.
	unmappable bool
}

// bufferedFile is the file of a segment with what the write buffer has of the
// segment.
type bufferedFile struct {
	file
	number int64
	buffer *writeBuffer
}

func newWriteBuffer(dir string, d disk, log *slog.Logger) *writeBuffer {
	return &writeBuffer{path: filepath.Join(dir, bufferFile), disk: d, log: log}
}

// load reads the buffer of an earlier process. attachRecovered finds its segment.
func (b *writeBuffer) load() error {
	data, err := os.ReadFile(b.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: read write buffer: %w", err)
	}
	b.number, b.offset, b.data = readChunks(data)
	return nil
}

// readChunks returns the records of consecutive chunks, and the number and the
// offset of the segment to which they belong.
func readChunks(chunks []byte) (number, offset int64, records []byte) {
	for len(chunks) >= chunkPrefixBytes {
		size := int64(binary.LittleEndian.Uint32(chunks[4:]))
		if size == 0 || size > int64(len(chunks)-chunkPrefixBytes) {
			break
		}

		chunk := chunks[:chunkPrefixBytes+size]
		n, at := int64(binary.LittleEndian.Uint64(chunk[8:])), int64(binary.LittleEndian.Uint64(chunk[16:]))
		if binary.LittleEndian.Uint32(chunk) != crc32.Checksum(chunk[4:], chunkTable) || at < 0 {
			break
		}
		if len(records) == 0 {
			number, offset = n, at
		}
		if n != number || at != offset+int64(len(records)) {
			break
		}

		records = append(records, chunk[chunkPrefixBytes:]...)
		chunks = chunks[len(chunk):]
	}
	return number, offset, records
}

// attachRecovered lets a segment of an earlier process end with the records that
// were read from the buffer, if they are the segment's.
func (b *writeBuffer) attachRecovered(seg *segment) {
	if len(b.data) == 0 || b.number != seg.number {
		return
	}
	if seg.info.Size() < b.offset { // not after the death of a process alone
		b.log.Warn("spool segment ends before the records of the write buffer, which are left out",
			slog.Int64("segment", seg.number), slog.Int64("offset", seg.info.Size()), slog.Int64("buffer_offset", b.offset))
		return
	}
	b.file = seg.file
	seg.file = bufferedFile{b.file, seg.number, b}
}

// detachIfUnused forgets the records that were read from the buffer if their segment
// is not there any more.
func (b *writeBuffer) detachIfUnused() {
	if b.file == nil {
		b.detach()
	}
}

// attach makes a new segment the one that the buffer is for. The buffer must be
// empty.
func (b *writeBuffer) attach(seg *segment) {
	if b.mapped == nil {
		b.mapNew()
	}
	b.number, b.file = seg.number, seg.file
	seg.file = bufferedFile{b.file, seg.number, b}
}

// mapNew replaces the file of the buffer, whose records have been written to their
// segment, by an empty one.
func (b *writeBuffer) mapNew() {
	_ = os.Remove(b.path) // should this fail, mapNew does, too
	mapped, err := b.disk.mapNew(b.path)
	if err == nil {
		b.info, err = mapped.Stat()
	}
	switch {
	case err == nil:
		b.mapped, b.used = mapped, 0
	case !b.unmappable:
		b.log.Warn("spool has no write buffer; each record is written to its segment at once", slog.Any("error", err))
	}
	b.unmappable = err != nil
}

// unmap leaves the file of the buffer as it is.
func (b *writeBuffer) unmap() {
	if b.mapped != nil {
		_ = b.mapped.Close() // its content does not depend on it
	}
	b.mapped, b.info = nil, nil
}

// detach forgets the segment and its records.
func (b *writeBuffer) detach() {
	b.file, b.data, b.used, b.refused = nil, b.data[:0], 0, false
}

// close flushes the buffer and removes its file, so that all records are in the
// segments. If they cannot be written, the file stays for the next process.
func (b *writeBuffer) close() error {
	err := b.flush()
	if err == nil {
		b.remove()
	}
	b.unmap()
	return err
}

// remove removes the file of the buffer, whose records are in their segment or not
// needed.
func (b *writeBuffer) remove() {
	if b.info != nil && sameFile(b.path, b.info) == nil {
		_ = os.Remove(b.path) // see flush
	}
	b.unmap()
}

// flush writes the records to the segment's file, and starts the buffer again.
// After a failed write the records stay in the buffer, and the file may have the
// first ones of them.
func (b *writeBuffer) flush() error {
	if len(b.data) == 0 {
		return nil
	}
	if b.file == nil {
		return errors.New("spool: the segment of the write buffer is not open")
	}
	if _, err := b.file.WriteAt(b.data, b.offset); err != nil {
		b.refused = true
		return fmt.Errorf("spool: write to segment: %w", err)
	}
	if b.mapped == nil {
		_ = os.Remove(b.path) // should it stay, it does no harm: what it has is in the segment
	}
	b.data, b.used, b.refused = b.data[:0], 0, false
	return nil
}

// add adds records. It returns false if there is no room for them, or if the mapped
// file cannot be written to; it is not used any more then.
func (b *writeBuffer) add(records []byte, offset int64) bool {
	if b.mapped == nil || b.used+chunkPrefixBytes+int64(len(records)) > b.mapped.Size() {
		return false
	}
	if len(b.data) == 0 {
		b.offset = offset
	}

	binary.LittleEndian.PutUint32(b.prefix[4:], uint32(len(records)))
	binary.LittleEndian.PutUint64(b.prefix[8:], uint64(b.number))
	binary.LittleEndian.PutUint64(b.prefix[16:], uint64(offset))
	sum := crc32.Update(crc32.Checksum(b.prefix[4:], chunkTable), chunkTable, records)
	binary.LittleEndian.PutUint32(b.prefix[:], sum)
	_, err := b.mapped.WriteAt(records, b.used+chunkPrefixBytes)
	if err == nil {
		_, err = b.mapped.WriteAt(b.prefix[:], b.used)
	}

	if err != nil {
		if len(b.data) > 0 {
			b.unmap() // flush removes the file
		} else {
			b.remove()
		}
		b.log.Error(
			"write buffer of the spool failed; until the next segment, each record is written to its segment at once",
			slog.Any("error", err),
		)
		return false
	}

	b.data = append(b.data, records...)
	b.used += chunkPrefixBytes + int64(len(records))
	return true
}

// WriteAt appends records. After an error none of them is in the buffer.
func (f bufferedFile) WriteAt(records []byte, offset int64) (int, error) {
	b := f.buffer
	if !b.refused && b.add(records, offset) {
		return len(records), nil
	}
	if err := b.flush(); err != nil {
		return 0, err
	}
	if b.add(records, offset) {
		return len(records), nil
	}
	return f.file.WriteAt(records, offset) //nolint:wrapcheck // segment.append wraps it
}

// ReadAt reads from the file, and what the buffer has from there.
func (f bufferedFile) ReadAt(p []byte, offset int64) (int, error) {
	b := f.buffer
	begin := max(b.offset, offset)
	end := min(b.offset+int64(len(b.data)), offset+int64(len(p)))
	if b.number != f.number || begin >= end {
		return f.file.ReadAt(p, offset) //nolint:wrapcheck // readers compare it with io.EOF
	}
	if n := end - begin; n == int64(len(p)) {
		return copy(p, b.data[begin-b.offset:]), nil
	}

	n, err := f.file.ReadAt(p, offset)
	if int64(n) < begin-offset {
		return n, err //nolint:wrapcheck // as above
	}

	copy(p[begin-offset:], b.data[begin-b.offset:end-b.offset])
	if n = max(n, int(end-offset)); n == len(p) {
		err = nil
	}

	return n, err
}

// unbuffered returns the file alone. What the buffer has of the segment is not needed any more.
func (f bufferedFile) unbuffered() file {
	if f.buffer.number == f.number {
		f.buffer.detach()
	}
	return f.file
}

// Close closes the file.
func (f bufferedFile) Close() error { return f.unbuffered().Close() }
