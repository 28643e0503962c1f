package bus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/shared/apikey"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var _ auth.Bucket = (*Bus)(nil)

func (b *Bus) KeyMark(ctx context.Context) (mark wire.KeyMark, sequence uint64, err error) {
	data, sequence, err := b.lastInKeyBucket(ctx, subject.KeyMark)
	if err != nil || json.Unmarshal(data, &mark) != nil { // NATS may have put another text there
		return wire.KeyMark{}, 0, err
	}
	return mark, sequence, nil
}

func (b *Bus) KeyEntry(ctx context.Context, hash apikey.Hash) (entry wire.KeyEntry, err error) {
	data, _, err := b.lastInKeyBucket(ctx, hash.String())
	if err != nil || json.Unmarshal(data, &entry) != nil {
		return wire.KeyEntry{}, err
	}
	return entry, nil
}

// lastInKeyBucket reads the last message under a name, at the server that leads the
// bucket; nil if there is none. The methods of the client would need the permission
// to read the settings of the stream, too, and a round trip for it.
func (b *Bus) lastInKeyBucket(ctx context.Context, name string) (data []byte, sequence uint64, err error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": subject.KeyPrefix + name})
	if err != nil {
		return nil, 0, fmt.Errorf("bus: encode question for a key record: %w", err)
	}

	m, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+subject.KeyStream, request)
	if err != nil {
		return nil, 0, fmt.Errorf("bus: read bucket %s: %w", subject.KeyBucket, err)
	}

	var response struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}

	if err := json.Unmarshal(m.Data, &response); err != nil {
		return nil, 0, fmt.Errorf("bus: read bucket %s: %w", subject.KeyBucket, err)
	}

	switch {
	case response.Error == nil:
		return response.Message.Data, response.Message.Sequence, nil
	case response.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, 0, nil
	default:
		return nil, 0, fmt.Errorf("bus: read bucket %s: %w", subject.KeyBucket, response.Error)
	}
}
