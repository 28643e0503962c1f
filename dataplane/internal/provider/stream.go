package provider

import (
	"errors"
	"io"
	"strings"

	"modelgateway/dataplane/internal/sse"
)

// maxPeeked is how much of an answer is read to tell what it is, in bytes.
const maxPeeked = 512

// IsStream reports whether the answer is an event stream: by its media type or, if that is another or none, by its first
// bytes, because some servers send streams without a type or with a wrong one.
func (a *Answer) IsStream() (bool, error) {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
		return true, nil
	}

	head := make([]byte, 0, maxPeeked)
	for {
		n, err := a.Body.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		is, enough := sse.Begins(head)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return false, err
		}
		if enough || ended || len(head) == cap(head) {
			a.Body = &peekedBody{a.Body, head}
			return is, nil
		}
	}
}

// peekedBody is a body of which the head has been read.
type peekedBody struct {
	AnswerBody
	head []byte
}

func (p *peekedBody) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.AnswerBody.Read(b)
	}
	n := copy(b, p.head)
	p.head = p.head[n:]
	return n, nil
}

func (p *peekedBody) Await() error {
	if len(p.head) > 0 {
		return nil
	}
	return p.AnswerBody.Await()
}
