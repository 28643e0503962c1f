package spool

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// kind is the kind of a record.
type kind byte

const (
	// kindHeader is the first record of a segment: the state of every session at that point.
	kindHeader kind = 'H'
	// kindSession opens a session.
	kindSession kind = 'O'
	// kindStarted is a request that was admitted, as the event to report if the process dies before the request ends.
	kindStarted kind = 'S'
	// kindProgress is the cost of a running request so far.
	kindProgress kind = 'P'
	// kindFinished is the event of a finished request.
	kindFinished kind = 'F'
	// kindSettled is a watermark.
	kindSettled kind = 'W'
	// kindClosed drops a session that was closed and settled.
	kindClosed kind = 'C'
	// kindProbe has no meaning. It is written to find out whether the disk accepts writes.
	kindProbe kind = 'N'
)

// prefixBytes is the size of the prefix of a record: length of the body and
// checksum of kind and body (each four bytes, little endian), then the kind. The
// body, as JSON, follows.
const prefixBytes = 9

// maxBodyBytes bounds the body of a record that is read. A greater length is
// that of a torn record.
const maxBodyBytes = 1 << 20

type sessionRecord struct {
	Session wire.SessionID `json:"session"`
	BootID  string         `json:"boot_id"`
	// LastSeq is the sequence number of the session's last written event.
	LastSeq   int64 `json:"last_seq,omitempty"`
	Watermark int64 `json:"watermark,omitempty"`
}

type headerRecord struct {
	Sessions []sessionRecord `json:"sessions"`
	// KernelBoot is the id of the machine's boot in which the segment was begun.
	KernelBoot string `json:"kernel_boot,omitempty"`
}

type progressRecord struct {
	RequestID string      `json:"request_id"`
	Usage     price.Usage `json:"usage"`
	Cost      money.Nano  `json:"cost"`
}

// encodeRecord returns a record with a body in JSON.
func encodeRecord(k kind, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("spool: encode record: %w", err)
	}
	return frame(k, data), nil
}

// frame returns a record with the given body.
func frame(k kind, body []byte) []byte {
	record := make([]byte, prefixBytes, prefixBytes+len(body))
	return fillPrefix(k, append(record, body...))
}

// fillPrefix fills in the prefix of a record, for which there is room.
func fillPrefix(k kind, record []byte) []byte {
	binary.LittleEndian.PutUint32(record, uint32(len(record)-prefixBytes))
	record[8] = byte(k)
	binary.LittleEndian.PutUint32(record[4:], crc32.ChecksumIEEE(record[8:]))
	return record
}

// eventBufferBytes is a size that most records of events do not exceed.
const eventBufferBytes = 768

// appendEventRecord returns the record of an event, in the buffer if that is
// large enough.
func appendEventRecord(buffer []byte, k kind, e *event.Usage) []byte {
	return fillPrefix(k, e.AppendJSON(append(buffer[:0], make([]byte, prefixBytes)...)))
}

// appendFrom appends the whole record at a place, after a check of its checksum.
func appendFrom(records []byte, p place) ([]byte, error) {
	start := len(records)
	records = slices.Grow(records, int(p.bytes()))[:start+int(p.bytes())]
	if _, err := p.segment.file.ReadAt(records[start:], p.offset); err != nil {
		return nil, fmt.Errorf("spool: read record: %w", err)
	}
	if _, _, err := readRecord(bytes.NewReader(records[start:])); err != nil {
		return nil, err
	}
	return records, nil
}

// errTorn means that the rest of a segment is not a complete record: the process
// died while it wrote it.
var errTorn = errors.New("spool: torn record")

// readRecord reads the next record. It returns io.EOF at the end of a segment,
// and errTorn if the next record is incomplete or its checksum is wrong.
func readRecord(r io.Reader) (kind, []byte, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, errTorn
		}
		return 0, nil, err
	}

	size := binary.LittleEndian.Uint32(prefix[:])
	if size > maxBodyBytes {
		return 0, nil, errTorn
	}

	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, errTorn
	}

	sum := crc32.Update(crc32.ChecksumIEEE(prefix[8:]), crc32.IEEETable, body)
	if sum != binary.LittleEndian.Uint32(prefix[4:]) {
		return 0, nil, errTorn
	}

	return kind(prefix[8]), body, nil
}

// startedRequest is a request that has started and not finished.
type startedRequest struct {
	// event is the aborted event of a request of an earlier process, nil for a request of this process.
	event *event.Usage
	// started is the place of the started record, progress that of the last progress record, if there is one.
	started, progress place
}

func (r *startedRequest) bytes() int64 { return r.started.bytes() + r.progress.bytes() }

// place is where a record is on disk. The zero value means nowhere.
type place struct {
	segment *segment
	offset  int64
	size    int32 // of the body
}

// bytes returns the size of the record with its prefix.
func (p place) bytes() int64 {
	if p.segment == nil {
		return 0
	}
	return prefixBytes + int64(p.size)
}
