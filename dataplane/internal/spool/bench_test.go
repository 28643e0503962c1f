package spool

import (
	"log/slog"
	"testing"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/money"
)

// BenchmarkRequest measures the records of one request, from the reservation to the settlement of its event.
func BenchmarkRequest(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), MaxEvents: 1 << 40, MaxBytes: 1 << 40}, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.OpenSession(1, "boot")
	}
	if err != nil {
		b.Fatal(err)
	}
	e := &event.Usage{
		V: event.Version, RequestID: "req_0198c5f2a3b47c1d9e6f", Session: 1, AccountID: "acc_0198c5f2a3b47c1d9e6f", KeyID: "key_0198c5f2a3b47c1d9e6f",
		Model: "fast", Format: "chat", Provider: "provider", Route: "route", ProviderRequestID: "chatcmpl-0198c5f2a3b47c1d9e6f", Status: event.Completed,
		HTTPStatus: 200, StartedMS: time.Now().UnixMilli(), FinishedMS: time.Now().UnixMilli(), FirstByteMS: 120, Rule: event.RuleReported, PriceVersion: 3,
		Cost: 1200 * money.Unit / 1000, Reservation: 5 * money.Unit, MaxInput: 1000, MaxOutput: 500,
	}
	e.Usage.Input, e.Usage.Output = 250, 40
	b.ReportAllocs()
	for n := int64(1); b.Loop(); n++ {
		u, err := s.Reserve()
		if err == nil {
			err = u.AppendStarted(e)
		}
		if err != nil {
			b.Fatal(err)
		}
		u.AppendFinished(e)
		if n%500 == 0 {
			s.NextBatch(500, time.Now())
			settle(s, 1, n)
		}
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}
