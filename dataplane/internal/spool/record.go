package spool

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// kind is the first byte of a record.
type kind byte

const (
	// kindHeader begins a segment: what is known of the sessions at that point.
	kindHeader kind = 'H'
	// kindSession opens a session.
	kindSession kind = 'O'
	// kindStarted notes an admitted request, as the event that it would be if the process died now.
	kindStarted kind = 'S'
	// kindProgress notes what a running request has cost so far.
	kindProgress kind = 'P'
	// kindFinished holds the event of a finished request.
	kindFinished kind = 'F'
	// kindSettled holds a watermark.
	kindSettled kind = 'W'
	// kindClosed forgets a session.
	kindClosed kind = 'C'
	// kindNothing says nothing: it finds out whether the disk takes writes.
	kindProbe kind = 'N'
)

// headSize is what precedes the body of a record: its length and checksum
// (each four bytes, little endian) and its kind.
const prefixSize = 9

// maxRecord bounds the body of a record that is believed when read.
const maxBodyBytes = 1 << 20

type sessionRecord struct {
	Session int64  `json:"session"`
	BootID  string `json:"boot"`
	// Last is the number of the session's last event, Watermark the last of its settled ones without a gap.
	LastNumber int64 `json:"last,omitempty"`
	Watermark  int64 `json:"watermark,omitempty"`
}

type headerRecord struct {
	Sessions []sessionRecord `json:"sessions"`
}

type progressRecord struct {
	RequestID string      `json:"request_id"`
	Usage     price.Usage `json:"usage"`
	Cost      money.Nano  `json:"cost"`
}

// encode returns a whole record.
func encodeRecord(k kind, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("spool: encode record: %w", err)
	}
	return frame(k, data), nil
}

func frame(k kind, data []byte) []byte {
	record := make([]byte, prefixSize, prefixSize+len(data))
	return fillPrefix(k, append(record, data...))
}

// stamp fills in the head of a record.
func fillPrefix(k kind, record []byte) []byte {
	binary.LittleEndian.PutUint32(record, uint32(len(record)-prefixSize))
	record[8] = byte(k)
	binary.LittleEndian.PutUint32(record[4:], crc32.ChecksumIEEE(record[8:]))
	return record
}

// usualEvent is the size of a record that most events fit into.
const eventBufferBytes = 768

// appendEvent makes the record of an event in a buffer.
func appendEventRecord(buffer []byte, k kind, e *event.Usage) []byte {
	return fillPrefix(k, e.AppendJSON(append(buffer[:0], make([]byte, prefixSize)...)))
}

// errTorn ends a segment: the process died while it wrote the rest.
var errTorn = errors.New("spool: torn record")

// readRecord reads the next record: io.EOF at a clean end, errTorn where the
// rest makes no sense.
func readRecord(r io.Reader) (kind, []byte, error) {
	var head [prefixSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, errTorn
		}
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxBodyBytes {
		return 0, nil, errTorn
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, errTorn
	}
	sum := crc32.Update(crc32.ChecksumIEEE(head[8:]), crc32.IEEETable, data)
	if sum != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, errTorn
	}
	return kind(head[8]), data, nil
}

// running is a started request, as the spool remembers it.
type startedRequest struct {
	// event is what it becomes if the process is dead: known of the requests of an earlier process only.
	event   *event.Usage
	segment *segment
}
