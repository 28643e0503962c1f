package rig

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// An Exchange is a request to the public API and its response.
type Exchange struct {
	Response *http.Response
	// Body is the part of the body that the test has read.
	Body []byte
	// Complete reports that Body is the whole body.
	Complete bool
}

// Observe passes every exchange to a function, once the test has read or closed
// the body. It is called before the first request.
func Observe(observe func(Exchange)) {
	client.Transport = &observer{client.Transport, observe}
}

type observer struct {
	http.RoundTripper
	observe func(Exchange)
}

func (o *observer) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &observedBody{ReadCloser: response.Body, exchange: Exchange{Response: response}, observe: o.observe}
	return response, nil
}

// observedBody records the part of a body that is read.
type observedBody struct {
	io.ReadCloser
	read     bytes.Buffer
	exchange Exchange
	observe  func(Exchange)
	closed   bool
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	if errors.Is(err, io.EOF) {
		b.exchange.Complete = true
	}
	return n, err
}

func (b *observedBody) Close() error {
	if !b.closed {
		b.closed = true
		b.exchange.Body = b.read.Bytes()
		b.observe(b.exchange)
	}
	return b.ReadCloser.Close()
}
