package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

var _ diagnosis.Bus = (*Bus)(nil)

func (b *Bus) Diagnose(ctx context.Context) (diagnosis.NATS, error) {
	facts := diagnosis.NATS{Version: b.nc.ConnectedServerVersion()}
	if err := b.Ready(ctx); err != nil {
		return facts, err
	}

	facts.Permissions = b.permissions(ctx)
	replicas := max(b.cfg.Replicas, 1)

	type wanted struct {
		config   jetstream.StreamConfig
		consumer string
	}

	all := []wanted{
		{b.usageStream(replicas), subject.UsageConsumer},
		{videoPollStream(replicas), subject.VideoPollConsumer},
		{videoJobStream(replicas), ""},
		{jetstream.StreamConfig{
			Name:              "KV_" + subject.CatalogBucket,
			Retention:         jetstream.LimitsPolicy,
			Storage:           jetstream.FileStorage,
			Replicas:          replicas,
			MaxMsgsPerSubject: 1,
			Discard:           jetstream.DiscardNew,
		}, ""},
		{changeStream(replicas), ""},
		{keyBucket(replicas), ""},
	}

	for _, wanted := range all {
		stream, err := b.diagnoseStream(ctx, &facts, wanted.config, wanted.consumer)
		if err != nil {
			return facts, err
		}
		facts.Streams = append(facts.Streams, stream)
	}

	if b.cfg.MonitorURL != "" {
		facts.Syncs, facts.SyncError = readSyncs(ctx, b.cfg.MonitorURL)
	}

	return facts, nil
}

// infoTimeout bounds the question for one's own permissions, which some servers do
// not answer: old ones, and those that do not allow the question.
const infoTimeout = time.Second

// permissions compares the permissions of this connection's user with those of the
// control plane. It returns nil if the server does not tell them.
func (b *Bus) permissions(ctx context.Context) *diagnosis.NATSPermissions {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	answer, err := b.nc.RequestWithContext(ctx, natsuser.InfoSubject, nil)
	if err != nil {
		return nil
	}

	var info struct {
		Data *struct {
			User        string                `json:"user"`
			Permissions *natsuser.Permissions `json:"permissions"`
		} `json:"data"`
	}

	if json.Unmarshal(answer.Data, &info) != nil || info.Data == nil {
		return nil
	}

	p := &diagnosis.NATSPermissions{User: info.Data.User}
	wanted := natsuser.ForControlPlane()
	p.Missing, p.Extra = wanted.Compare(info.Data.Permissions)
	return p
}

// diagnoseStream compares one stream with its wanted settings. It also measures
// the skew of the server's clock.
func (b *Bus) diagnoseStream(
	ctx context.Context,
	facts *diagnosis.NATS,
	wanted jetstream.StreamConfig,
	consumer string,
) (diagnosis.Stream, error) {
	s := diagnosis.Stream{
		Name:     wanted.Name,
		Wanted:   wanted.Replicas,
		Consumer: consumer,
		Usage:    wanted.Name == subject.UsageStream,
	}

	stream, err := b.js.Stream(ctx, wanted.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.Missing = true
		return s, nil
	}

	if err != nil {
		return s, fmt.Errorf("bus: read stream %s: %w", wanted.Name, err)
	}

	sent := time.Now()
	info, err := stream.Info(ctx)
	if err != nil {
		return s, fmt.Errorf("bus: read stream %s: %w", wanted.Name, err)
	}

	facts.Skew, facts.Uncertainty = diagnosis.Skew(sent, info.TimeStamp, time.Now())
	s.Bytes, s.MaxBytes = info.State.Bytes, max(info.Config.MaxBytes, 0)
	s.Replicas, s.Differences = info.Config.Replicas, streamDifferences(&wanted, &info.Config)
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				s.Offline++
			}
		}
	}

	if consumer == "" {
		return s, nil
	}

	if s.Usage {
		consumers, err := usageConsumers(ctx, stream)
		if err != nil {
			return s, err
		}
		if len(consumers) > 0 {
			s.Consumer = consumers[len(consumers)-1]
		}
	}

	return s, b.diagnoseConsumer(ctx, stream, &s)
}

func (b *Bus) diagnoseConsumer(ctx context.Context, stream jetstream.Stream, s *diagnosis.Stream) error {
	consumer, err := stream.Consumer(ctx, s.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		s.ConsumerMissing = true
		return nil
	}

	if err != nil {
		return fmt.Errorf("bus: read consumer %s: %w", s.Consumer, err)
	}

	info := consumer.CachedInfo()
	s.Waiting = info.NumPending + uint64(info.NumAckPending)
	if s.Waiting == 0 {
		return nil
	}

	oldest, err := stream.GetMsg(ctx, info.AckFloor.Stream+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it was settled or has expired in the meantime
		s.Oldest = time.Now()
		return nil
	}

	if err != nil {
		return fmt.Errorf("bus: read the oldest message of %s: %w", s.Name, err)
	}

	s.Oldest = oldest.Time
	return nil
}

// streamDifferences compares the settings that decide how long messages are kept,
// and describes those that differ from the wanted ones.
func streamDifferences(wanted, found *jetstream.StreamConfig) []string {
	var faults []string
	compare := func(name string, wanted, found any) {
		if wanted != found {
			faults = append(faults, fmt.Sprintf("%s is %v instead of %v", name, found, wanted))
		}
	}
	compare("storage", wanted.Storage, found.Storage)
	compare("retention", wanted.Retention, found.Retention)
	compare("discard", wanted.Discard, found.Discard)
	compare("max_age", wanted.MaxAge, found.MaxAge)
	compare("max_msgs_per_subject", max(wanted.MaxMsgsPerSubject, 0), max(found.MaxMsgsPerSubject, 0))
	compare("max_bytes", max(wanted.MaxBytes, 0), max(found.MaxBytes, 0))
	compare("compression", wanted.Compression, found.Compression)
	compare("max_msgs", int64(0), max(found.MaxMsgs, 0))
	return faults
}

// readSyncs asks the monitoring ports whether the servers sync messages to disk before they acknowledge them. The result has
// the servers by their ids: several addresses may lead to the same one. fault describes the ports that do not tell.
func readSyncs(ctx context.Context, urls string) (syncs map[string]bool, fault string) {
	syncs = map[string]bool{}
	var faults []error
	for url := range strings.SplitSeq(urls, ",") {
		server, always, err := readSyncAlways(ctx, strings.TrimSpace(url))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		syncs[server] = always
	}
	if err := errors.Join(faults...); err != nil {
		fault = err.Error()
	}
	return syncs, fault
}

// readSyncAlways asks a monitoring port for the id of its server, and whether the server
// writes messages to disk before it acknowledges them.
func readSyncAlways(ctx context.Context, url string) (server string, always bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(url, "/")+"/jsz", http.NoBody)
	if err != nil {
		return "", false, fmt.Errorf("bus: monitoring port: %w", err)
	}

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false, fmt.Errorf("bus: monitoring port: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()

	var state struct {
		ID     string `json:"server_id"`
		Config *struct {
			SyncAlways bool `json:"sync_always"`
		} `json:"config"`
	}

	const maxAnswer = 1 << 20
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&state); err != nil {
		return "", false, fmt.Errorf("bus: monitoring port: %s: %w", answer.Status, err)
	}
	if state.ID == "" || state.Config == nil {
		return "", false, fmt.Errorf("bus: monitoring port: %s without the settings of JetStream", answer.Status)
	}

	return state.ID, state.Config.SyncAlways, nil
}

func (b *Bus) Describe(ctx context.Context, expected int) ([]diagnosis.Description, error) {
	descriptions := make(chan diagnosis.Description, max(expected, 1))
	sent := time.Now()
	stop, err := requestAll(b, subject.Describe, wire.DescribeRequest{V: wire.Version}, func(proxy string, response wire.DescribeResponse) {
		if response.Name != proxy {
			b.log.Warn("a proxy described itself under the name of another", slog.String("proxy", proxy))
			return
		}
		skew, doubt := diagnosis.Skew(sent, time.UnixMilli(response.ClockMS), time.Now())
		select {
		case descriptions <- diagnosis.Description{DescribeResponse: response, Skew: skew, Uncertainty: doubt}:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	var all []diagnosis.Description
	for len(all) < expected {
		select {
		case d := <-descriptions:
			all = append(all, d)
		case <-ctx.Done():
			return all, nil
		}
	}

	return all, nil
}
