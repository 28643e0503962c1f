package devstack

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// busStartLimit bounds the start of NATS; it reads what JetStream has stored.
const busStartLimit = time.Minute

// bus is the NATS server inside this process.
type bus struct{ server *server.Server }

// The user that the planes and the tools of the stack connect to NATS as.
const busUser = "modelgateway"

// startBus starts NATS with JetStream, with its data in the layout's place.
func startBus(layout Layout, port Port, password string) (*bus, error) {
	options := &server.Options{
		ServerName: "devstack",
		Host:       "127.0.0.1",
		Port:       port.Number,
		Username:   busUser,
		Password:   password,
		JetStream:  true,
		StoreDir:   layout.nats(),
		LogFile:    layout.log("nats"),
		NoSigs:     true,
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
