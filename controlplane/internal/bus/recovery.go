package bus

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var _ recovery.Bucket = (*Bus)(nil)

// recoveryBucket opens the recovery bucket, and creates it if it is missing.
func (b *Bus) recoveryBucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, subject.RecoveryBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = b.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      subject.RecoveryBucket,
			Description: "state that must survive a loss of commits in Postgres",
			History:     1,
			Storage:     jetstream.FileStorage,
			Replicas:    max(b.cfg.Replicas, 1),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("bus: open bucket %s: %w", subject.RecoveryBucket, withoutLeader(err))
	}
	return kv, nil
}

// withoutLeader adds recovery.ErrNoLeader to an error of JetStream that ends when a leader is elected. Servers without a leader
// refuse a request or do not respond to it.
func withoutLeader(err error) error {
	refused, _ := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, context.DeadlineExceeded) ||
		refused != nil && refused.Code == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: %w", recovery.ErrNoLeader, err)
	}
	return err
}

func (b *Bus) Membership(ctx context.Context) (members rollback.Membership, revision uint64, err error) {
	kv, err := b.recoveryBucket(ctx)
	if err != nil {
		return members, 0, err
	}

	entry, err := kv.Get(ctx, subject.RecoveryMembership)
	if isNotFound(err) {
		return members, 0, nil
	}
	if err != nil {
		return members, 0, fmt.Errorf("bus: read membership: %w", withoutLeader(err))
	}
	if err := json.Unmarshal(entry.Value(), &members); err != nil {
		return members, 0, fmt.Errorf("bus: decode membership: %w", err)
	}

	if members.Members == nil {
		// NATS sends its replies to any subject that a request names, so a stolen proxy could put one here.
		return members, 0, errors.New("bus: the membership in the recovery bucket was not written by a control plane")
	}

	return members, entry.Revision(), nil
}

func (b *Bus) PutMembership(ctx context.Context, members rollback.Membership, revision uint64) (bool, error) {
	data, err := json.Marshal(members)
	if err != nil {
		return false, fmt.Errorf("bus: encode membership: %w", err)
	}

	kv, err := b.recoveryBucket(ctx)
	if err != nil {
		return false, err
	}

	if revision == 0 { // also after the entry was removed, which leaves a marker
		_, err = kv.Create(ctx, subject.RecoveryMembership, data)
	} else {
		_, err = kv.Update(ctx, subject.RecoveryMembership, data, revision)
	}

	if errors.Is(err, jetstream.ErrKeyExists) || isOvertaken(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bus: write membership: %w", withoutLeader(err))
	}

	return true, nil
}

func (b *Bus) RecordRevocation(ctx context.Context, c wire.KeyChange) error {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	kv, err := b.recoveryBucket(ctx)
	if err == nil {
		_, err = kv.Put(ctx, subject.RecoveryRevoked+hex.EncodeToString(c.KeyHash[:]), nil)
	}
	if err != nil {
		return fmt.Errorf("bus: back up revocation: %w", err)
	}
	return nil
}

// backupTimeout bounds the write of a revocation to the recovery bucket, which
// happens before the revocation is pushed.
const backupTimeout = 500 * time.Millisecond

func (b *Bus) RevokedKeys(ctx context.Context) ([]apikey.Hash, error) {
	kv, err := b.recoveryBucket(ctx)
	if err != nil {
		return nil, err
	}

	lister, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("bus: list revocations: %w", err)
	}
	defer func() { _ = lister.Stop() }()
	var revoked []apikey.Hash
	for name := range lister.Keys() {
		text, ok := strings.CutPrefix(name, subject.RecoveryRevoked)
		if !ok {
			continue
		}
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != len(apikey.Hash{}) {
			// NATS sends its replies to any subject that a request names, so a stolen proxy can put an entry here.
			b.log.ErrorContext(ctx, "a revocation in the recovery bucket is malformed and is ignored", "bucket", subject.RecoveryBucket)
			continue
		}
		revoked = append(revoked, apikey.Hash(hash))
	}

	if err := ctx.Err(); err != nil { // the list ended early
		return nil, fmt.Errorf("bus: list revocations: %w", err)
	}

	return revoked, nil
}

// SetClusterEpoch selects the consumer of the usage stream. Each cluster epoch has
// one of its own: after a loss of commits it starts some time before the loss.
func (b *Bus) SetClusterEpoch(clusterEpoch int64) { b.clusterEpoch.Store(clusterEpoch) }

// usageConsumers returns the names of the durable consumers of the usage stream
// by cluster epoch; the last one is the current one.
func usageConsumers(ctx context.Context, stream jetstream.Stream) ([]string, error) {
	lister := stream.ConsumerNames(ctx)
	epochs := map[int64]string{}
	for name := range lister.Name() {
		if name == subject.UsageConsumer {
			epochs[1] = name
		} else if text, ok := strings.CutPrefix(name, subject.UsageConsumer+"-"); ok {
			if epoch, err := strconv.ParseInt(text, 10, 64); err == nil {
				epochs[epoch] = name
			}
		}
	}

	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("bus: list consumers of %s: %w", subject.UsageStream, err)
	}

	var names []string
	for _, epoch := range slices.Sorted(maps.Keys(epochs)) {
		names = append(names, epochs[epoch])
	}

	return names, nil
}

// deleteEarlierConsumers deletes the consumers of earlier cluster epochs. Nobody
// reads them any more: the current one starts before what they had not settled.
func (b *Bus) deleteEarlierConsumers(ctx context.Context, current string) error {
	stream, err := b.js.Stream(ctx, subject.UsageStream)
	if err != nil {
		return fmt.Errorf("bus: look up stream %s: %w", subject.UsageStream, err)
	}

	names, err := usageConsumers(ctx, stream)
	if err != nil {
		return err
	}

	for _, name := range names {
		if name == current {
			return nil
		}
		if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("bus: delete consumer %s: %w", name, err)
		}
	}

	return nil
}

// usageConsumer returns the durable consumer of the current cluster epoch.
func (b *Bus) usageConsumer(ctx context.Context) (jetstream.ConsumerConfig, int64, error) {
	config := jetstream.ConsumerConfig{
		Durable:       subject.UsageConsumer,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       time.Minute,
		MaxAckPending: 10_000,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}

	clusterEpoch, from, err := b.streams.UsageReplay(ctx)
	if err != nil {
		return config, 0, fmt.Errorf("bus: read cluster epoch: %w", err)
	}
	if clusterEpoch > 1 {
		config.Durable = fmt.Sprintf("%s-%d", subject.UsageConsumer, clusterEpoch)
	}
	if from != nil {
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, from
	}

	return config, clusterEpoch, nil
}

// declareUsageConsumer creates the consumer, or updates it. The place at which a
// consumer begins cannot be changed later.
func (b *Bus) declareUsageConsumer(ctx context.Context, config *jetstream.ConsumerConfig) error {
	existing, err := b.js.Consumer(ctx, subject.UsageStream, config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if _, err = b.js.CreateConsumer(ctx, subject.UsageStream, *config); err == nil {
			return nil
		}
		existing, err = b.js.Consumer(ctx, subject.UsageStream, config.Durable) // another replica may have created it meanwhile
	}

	if err == nil {
		begins := existing.CachedInfo().Config
		config.DeliverPolicy, config.OptStartTime = begins.DeliverPolicy, begins.OptStartTime
		_, err = b.js.UpdateConsumer(ctx, subject.UsageStream, *config)
	}

	if err != nil {
		return fmt.Errorf("bus: declare consumer %s: %w", config.Durable, err)
	}

	return nil
}
