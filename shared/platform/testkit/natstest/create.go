package natstest

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// creationFailed is the server's error code for a stream whose store cannot be created.
const creationFailed jetstream.ErrorCode = 10049

// CreateAgain calls create until the server no longer fails to create the stream's store.
// The server removes the files of a deleted stream after it has answered the deletion, so a
// stream of the same name that is created at once may fail.
func CreateAgain(ctx context.Context, create func() error) error {
	for {
		err := create()
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != creationFailed || ctx.Err() != nil {
			return err
		}
	}
}
