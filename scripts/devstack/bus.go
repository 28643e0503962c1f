package devstack

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/shared/natsuser"
)

// busStartLimit bounds the start of NATS, which reads the data of JetStream.
const busStartLimit = time.Minute

// bus is the NATS server inside this process.
type bus struct {
	server  *server.Server
	options *server.Options
}

// The users of NATS: one for the control planes, one for all proxies, and one
// without limits, which stack.json contains for inspection.
const (
	controlUser  = natsuser.ControlPlane
	dataUser     = natsuser.DataPlane
	operatorUser = "operator"
)

// serverUsers returns users with their permissions. NATS logs a missing one as a
// violation.
func serverUsers(users []natsuser.User, passwords map[string]string) []*server.User {
	var all []*server.User
	for _, u := range users {
		all = append(all, &server.User{Username: u.Name, Password: passwords[u.Name], Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: u.Publish}, Subscribe: &server.SubjectPermission{Allow: u.Subscribe},
		}})
	}
	return all
}

// busUsers returns the users of the planes and the operator.
func busUsers(users []natsuser.User, passwords map[string]string) []*server.User {
	return append(serverUsers(users, passwords), &server.User{Username: operatorUser, Password: passwords[operatorUser]})
}

// startBus starts NATS with JetStream and its data in the layout's directory.
func startBus(layout Layout, port Port, passwords map[string]string) (*bus, error) {
	options := &server.Options{
		ServerName: "devstack",
		Host:       "127.0.0.1",
		Port:       port.Number,
		Users:      busUsers(natsuser.Users(), passwords),
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

	return &bus{s, options}, nil
}

// stop stops the server after it has stored all received messages.
func (b *bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// setUsers replaces the users of both planes in the running server, as an operator does by its
// configuration file and a reload. Clients stay connected if their user and password are still
// valid.
func (b *bus) setUsers(users []natsuser.User, passwords map[string]string) error {
	options := b.options.Clone()
	options.Users = busUsers(users, passwords)
	if err := b.server.ReloadOptions(options); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}
