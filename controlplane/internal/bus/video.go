package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/video"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
)

var _ video.Queue = (*Bus)(nil)

// ServeVideos answers what proxies ask about video jobs.
func (b *Bus) ServeVideos(s *video.Service) error {
	unavailable := event.VideoReply{V: event.Version, Status: event.VideoUnavailable}
	return b.subscribe(map[string]nats.MsgHandler{
		subject.VideoCreate: answer(b, s.Create, unavailable),
		subject.VideoGet:    answer(b, s.Get, unavailable),
		subject.VideoUpdate: answer(b, s.Update, unavailable),
	})
}

// errorNoRoom is the server's code for a subject that already has its one
// message.
const errorNoRoom = 10077

// EnqueuePoll implements video.Queue. A job that is queued already stays
// queued once: the stream takes one message per job.
func (b *Bus) EnqueuePoll(ctx context.Context, p event.VideoPoll) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("bus: encode video poll: %w", err)
	}
	_, err = b.js.Publish(ctx, subject.VideoPoll(p.ID), data)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == errorNoRoom {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bus: queue video job: %w", err)
	}
	return nil
}
