package devstack

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/shared/subject"
)

// busStartLimit bounds the start of NATS, which reads the data of JetStream.
const busStartLimit = time.Minute

// bus is the NATS server inside this process.
type bus struct{ server *server.Server }

// The users of NATS. The control plane's user has all permissions; stack.json contains it.
const (
	controlUser = "controlplane"
	dataUser    = "dataplane"
)

// dataPermissions returns the permissions that a data plane needs on the bus, and no more,
// as a deployment should configure them. NATS logs a missing one as a violation.
func dataPermissions() *server.Permissions {
	const (
		catalog = "KV_" + subject.CatalogBucket
		poller  = subject.VideoPollStream + "." + subject.VideoPollConsumer
	)
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			subject.Register, subject.Heartbeat, subject.Close, subject.LeaseRequest, subject.Return,
			subject.LoadKey, subject.Balance,
			subject.VideoCreate, subject.VideoUpdate, subject.VideoGet,
			subject.UsageAll, subject.VideoJobAll,
			// The catalog: open the bucket and watch it with an own consumer.
			"$JS.API.STREAM.INFO." + catalog,
			"$JS.API.CONSUMER.CREATE." + catalog + ".>",
			"$JS.API.CONSUMER.INFO." + catalog + ".>",
			"$JS.API.CONSUMER.DELETE." + catalog + ".>",
			"$JS.API.DIRECT.GET." + catalog + ".>",
			"$JS.FC." + catalog + ".>",
			// The work queue of video jobs: fetch one and acknowledge it.
			"$JS.API.STREAM.INFO." + subject.VideoPollStream,
			"$JS.API.CONSUMER.INFO." + poller,
			"$JS.API.CONSUMER.MSG.NEXT." + poller,
			"$JS.ACK." + poller + ".>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{
			"_INBOX.>", subject.KeyChange, subject.Reserved, subject.Describe, "mgw.session.*.recall", "mgw.session.*.settled",
		}},
		// A data plane acknowledges a key change to its sender.
		Response: &server.ResponsePermission{MaxMsgs: 1, Expires: server.DEFAULT_ALLOW_RESPONSE_EXPIRATION},
	}
}

// startBus starts NATS with JetStream and its data in the layout's directory.
func startBus(layout Layout, port Port, passwords map[string]string) (*bus, error) {
	options := &server.Options{
		ServerName: "devstack",
		Host:       "127.0.0.1",
		Port:       port.Number,
		Users: []*server.User{
			{Username: controlUser, Password: passwords[controlUser]},
			{Username: dataUser, Password: passwords[dataUser], Permissions: dataPermissions()},
		},
		JetStream: true,
		StoreDir:  layout.nats(),
		LogFile:   layout.log("nats"),
		NoSigs:    true,
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(busStartLimit) {
		s.Shutdown()
		return nil, errors.New("nats does not accept connections; see " + layout.log("nats"))
	}
	return &bus{s}, nil
}

// stop stops the server after it has stored all received messages.
func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
