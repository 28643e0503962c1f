package bus_test

import (
	"crypto/rand"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
)

// A proxy publishes usage of another session, on its own subject: the events are
// not charged, and the other proxy's events are not taken for settled.
func TestUsageOfAnotherSessionIsQuarantinedWithoutItsNumbers(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	p.consume(p.connectReplica(new(streamCounter)))
	forged, honest := p.usage(1, 2), p.usage(1)
	js := natstest.JetStream(t, p.proxy)
	if _, err := js.Publish(t.Context(), subject.Usage("proxy", int64(p.session)+1), forged, jetstream.WithMsgID(rand.Text())); err != nil {
		t.Fatal(err)
	}
	p.publish(honest)
	p.awaitWatermark(marks, 1)
	p.wantSettled(10)
	if got := p.queryInt("select count(*) from quarantine where seq = 0 and session_id = $1 and reason like '%was published on mgw.usage.%'", p.session); got != 2 {
		t.Errorf("%d forged events in quarantine; want 2", got)
	}
}
