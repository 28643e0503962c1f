package changestream_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/changestream"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

var errUnavailable = errors.New("unavailable")

// database has changes; it answers nothing while it is away.
type database struct {
	changes  []wire.KeyChange
	streamed int64
	away     bool
}

func (d *database) ChangesToStream(_ context.Context, after int64, _ int) (streamed int64, found []wire.KeyChange, err error) {
	if d.away {
		return 0, nil, errUnavailable
	}
	for _, c := range d.changes {
		if c.Revision > max(after, d.streamed) {
			found = append(found, c)
		}
	}
	return d.streamed, found, nil
}

func (d *database) RaiseStreamed(_ context.Context, revision int64) error {
	d.streamed = revision
	return nil
}

func (d *database) EndingSessions(context.Context) ([]changestream.EndingSession, int64, error) {
	return nil, 0, nil
}

func (d *database) FenceEnding(context.Context, []wire.SessionID) (int, error) { return 0, nil }

func (d *database) LongestWindow(context.Context) (time.Duration, error) { return 0, nil }

// stream keeps the last change of each subject.
type stream struct {
	last     map[string]wire.StreamChange
	at       map[string]session.Place
	sequence uint64
}

func newStream() *stream {
	return &stream{last: map[string]wire.StreamChange{}, at: map[string]session.Place{}}
}

func (s *stream) KeepChanges(context.Context, time.Duration) error { return nil }

func (s *stream) LastChange(_ context.Context, subject string) (wire.StreamChange, session.Place, uint64, error) {
	return s.last[subject], s.at[subject], s.at[subject].Sequence, nil
}

func (s *stream) AppendChange(_ context.Context, c *wire.StreamChange, behind uint64) (session.Place, error) {
	if s.at[c.Subject()].Sequence != behind {
		return session.Place{}, changestream.ErrOvertaken
	}
	s.sequence++
	s.last[c.Subject()], s.at[c.Subject()] = *c, session.Place{Sequence: s.sequence, ID: c.ID}
	return s.at[c.Subject()], nil
}

func (s *stream) ChangeAt(_ context.Context, at session.Place) (session.Place, error) {
	for _, place := range s.at {
		if place.Sequence == at.Sequence {
			return place, nil
		}
	}
	return session.Place{}, nil
}

func (s *stream) Window(context.Context) (time.Duration, error) { return window, nil }

const window = 20 * time.Second

func appender(d *database, s *stream) *changestream.Appender {
	margin := func(time.Duration) time.Duration { return 0 }
	return changestream.New(d, s, window, margin, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func change(revision int64) wire.KeyChange {
	return wire.KeyChange{
		V:        wire.Version,
		Revision: revision,
		Kind:     wire.KeyRevoked,
		Account:  "acc_1",
		KeyHash:  apikey.Hash{byte(revision)},
	}
}

func TestChangeIsStreamedWhenTheStreamHasHadItForTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := &database{changes: []wire.KeyChange{change(1), change(2)}}, newStream()
		a := appender(d, s)
		for range 2 {
			if err := a.Round(t.Context()); err != nil || len(s.last) != 2 || d.streamed != 0 {
				t.Fatalf("got %v, %d changes in the stream, %d streamed; want 2 that are not confirmed", err, len(s.last), d.streamed)
			}
			time.Sleep(window / 2)
		}
		time.Sleep(time.Second)
		if err := a.Round(t.Context()); err != nil || d.streamed != 2 || s.sequence != 2 {
			t.Errorf("got %v, %d streamed, %d appended; want both, appended once each", err, d.streamed, s.sequence)
		}
	})
}

// Nobody else would append it: a control plane that was away when it was committed does not know it.
func TestChangeThatTheStreamLosesIsAppendedAgainWithoutPostgres(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := &database{changes: []wire.KeyChange{change(1)}}, newStream()
		a := appender(d, s)
		if err := a.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.away = true
		clear(s.last)
		clear(s.at)
		time.Sleep(window + time.Second)
		if err := a.Round(t.Context()); !errors.Is(err, errUnavailable) {
			t.Errorf("got %v; want that Postgres does not answer", err)
		}
		if len(s.last) != 1 {
			t.Error("the stream does not have the change")
		}
	})
}

func TestCommittedChangeIsAppendedWithoutPostgres(t *testing.T) {
	t.Parallel()
	d, s := &database{away: true}, newStream()
	if err := appender(d, s).Append(t.Context(), change(1)); err != nil || len(s.last) != 1 {
		t.Errorf("got %v and %d changes in the stream; want the change", err, len(s.last))
	}
}
