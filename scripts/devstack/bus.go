package devstack

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/shared/subject"
)

// busStartLimit bounds the start of NATS; it reads what JetStream has stored.
const busStartLimit = time.Minute

// bus is the NATS server inside this process.
type bus struct{ server *server.Server }

// The users of NATS. The control plane's may do everything, and is the one in
// stack.json.
const (
	controlUser = "controlplane"
	dataUser    = "dataplane"
)

// dataPermissions are what a data plane needs on the bus, and all that it may:
// a deployment gives it the same. What is missing here shows in the NATS log as
// a violation.
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
			subject.UsageAll, subject.VideoPollAll,
			// The catalog: open the bucket and watch it with a consumer of its own.
			"$JS.API.STREAM.INFO." + catalog,
			"$JS.API.CONSUMER.CREATE." + catalog + ".>",
			"$JS.API.CONSUMER.INFO." + catalog + ".>",
			"$JS.API.CONSUMER.DELETE." + catalog + ".>",
			"$JS.API.DIRECT.GET." + catalog + ".>",
			"$JS.FC." + catalog + ".>",
			// The work queue of video jobs: take one, and say how it went.
			"$JS.API.STREAM.INFO." + subject.VideoPollStream,
			"$JS.API.CONSUMER.INFO." + poller,
			"$JS.API.CONSUMER.MSG.NEXT." + poller,
			"$JS.ACK." + poller + ".>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{
			"_INBOX.>", subject.KeyChange, subject.Reserved, subject.Describe, "mgw.session.*.recall", "mgw.session.*.settled",
		}},
		// The acknowledgement of a change goes to whoever sent it.
		Response: &server.ResponsePermission{MaxMsgs: 1, Expires: server.DEFAULT_ALLOW_RESPONSE_EXPIRATION},
	}
}

// startBus starts NATS with JetStream, with its data in the layout's place.
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

// stop ends the server when everything that it was given is stored.
func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
