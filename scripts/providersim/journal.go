package providersim

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// The values of Entry.Outcome.
const (
	OutcomeFinished   = "finished"    // the whole answer was written, error answers included
	OutcomeClientGone = "client_gone" // the client closed the connection first
	OutcomeCut        = "cut"         // a directive closed the connection
	OutcomeFailed     = "failed"      // a stream ended with an error event
	OutcomeReleased   = "released"    // Close or Reset ended the request
)

// Entry is one request in the journal. It is added when the request was received, and
// updated when its body was parsed and when the request is Done.
type Entry struct {
	Seq        int64               `json:"seq"` // from 1, in order of receipt
	Time       time.Time           `json:"time"`
	DurationMS int64               `json:"duration_ms"`
	Method     string              `json:"method"`
	Path       string              `json:"path"`
	Query      string              `json:"query"`
	Headers    map[string][]string `json:"headers"` // names in lower case
	Body       string              `json:"body"`
	BodyBase64 bool                `json:"body_base64"` // Body was not UTF-8
	BodyBytes  int64               `json:"body_bytes"`
	APIKey     string              `json:"api_key"`
	Format     Format              `json:"format"`
	Model      string              `json:"model"`      // as requested
	Directives string              `json:"directives"` // of the model name, then of the rule
	Rule       string              `json:"rule"`       // id of the rule that matched

	Done        bool            `json:"done"` // false while the request runs
	Outcome     string          `json:"outcome"`
	Status      int             `json:"status"` // 0: no answer
	ErrorCode   string          `json:"error_code"`
	Stream      bool            `json:"stream"`
	EventsSent  int64           `json:"events_sent"` // without comments
	BytesSent   int64           `json:"bytes_sent"`
	Finished    bool            `json:"finished"` // the whole answer was written
	ClientGone  bool            `json:"client_gone"`
	RequestID   string          `json:"request_id"` // in the answer's headers
	AnswerID    string          `json:"answer_id"`  // of the completion, message or video
	Usage       json.RawMessage `json:"usage"`      // the last one in the answer, null without one
	Counts      *Counts         `json:"counts"`     // Usage, normalised
	PromptCount int64           `json:"prompt_count"`
	Delivered   int64           `json:"delivered"` // output tokens whose text was written
}

// journal keeps the newest entries, within limits of their number and the size of their
// bodies, and writes each to a writer when it is done.
type journal struct {
	mu         sync.Mutex
	entries    []Entry // consecutive Seq
	next       int64
	bodyBytes  int64
	dropped    int64
	writeFails int64
	maxEntries int
	maxBytes   int64
	out        io.Writer // nil: memory only
}

func (j *journal) begin(e *Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = j.next
	j.next++
	j.entries = append(j.entries, *e)
	j.bodyBytes += int64(len(e.Body))
	for len(j.entries) > j.maxEntries || j.bodyBytes > j.maxBytes && len(j.entries) > 1 {
		j.bodyBytes -= int64(len(j.entries[0].Body))
		j.entries[0] = Entry{} // release the body before append moves the slice
		j.entries = j.entries[1:]
		j.dropped++
	}
}

// update updates the entry of a running request.
func (j *journal) update(e *Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i, ok := j.index(e.Seq); ok {
		j.entries[i] = *e
	}
}

func (j *journal) end(e *Entry) {
	j.update(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out == nil {
		return
	}
	if _, err := j.out.Write(append(mustJSON(e), '\n')); err != nil {
		j.writeFails++
	}
}

func (j *journal) index(seq int64) (int, bool) {
	if len(j.entries) == 0 || seq < j.entries[0].Seq {
		return 0, false
	}
	i := int(seq - j.entries[0].Seq)
	return i, i < len(j.entries)
}

// since returns the entries with a Seq above seq: those of one model, or all if model is empty.
func (j *journal) since(seq int64, model string) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := []Entry{}
	for _, e := range j.entries {
		if e.Seq > seq && (model == "" || model == e.Model || model == baseModel(e.Model)) {
			found = append(found, e)
		}
	}
	return found
}

// clear removes all entries, including those of running requests, which are written to the
// writer when they end but not kept in memory. Sequence numbers continue.
func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.bodyBytes, j.dropped = nil, 0, 0
}

func (j *journal) sizes() (entries int, dropped, writeFails int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries), j.dropped, j.writeFails
}

func ndjson(entries []Entry) []byte {
	var b bytes.Buffer
	for i := range entries {
		b.Write(mustJSON(&entries[i]))
		b.WriteByte('\n')
	}
	return b.Bytes()
}
