package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// OffsetVariable names the environment variable whose number is added to every
// port that is not set by a variable of its own.
const OffsetVariable = "MGW_DEV_PORT_OFFSET"

// A Port is a port on 127.0.0.1 that the stack listens on.
type Port struct {
	// Number is the port.
	Number int
	// What names the listener for people.
	What string
	// Variable names the environment variable that moves it.
	Variable string
}

// Address returns the port as host:port.
func (p Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }

// URL returns the address as an HTTP URL.
func (p Port) URL() string { return "http://" + p.Address() }

// Ports are all ports of the stack.
type Ports struct {
	API, API2, Ops, Ops2, Admin, AdminOps, Sim, NATS, Postgres Port
}

// DefaultPorts returns the ports of a stack that nobody moved.
func DefaultPorts() Ports {
	return Ports{
		API:      Port{8080, "API of data plane dp-1", "MGW_DEV_API_PORT"},
		API2:     Port{8082, "API of data plane dp-2", "MGW_DEV_API2_PORT"},
		Ops:      Port{9090, "ops listener of data plane dp-1", "MGW_DEV_OPS_PORT"},
		Ops2:     Port{9092, "ops listener of data plane dp-2", "MGW_DEV_OPS2_PORT"},
		Admin:    Port{8081, "admin API of the control plane", "MGW_DEV_ADMIN_PORT"},
		AdminOps: Port{9091, "ops listener of the control plane", "MGW_DEV_ADMIN_OPS_PORT"},
		Sim:      Port{9100, "provider simulator", "MGW_DEV_SIM_PORT"},
		NATS:     Port{4222, "NATS", "MGW_DEV_NATS_PORT"},
		Postgres: Port{5433, "Postgres", "MGW_DEV_POSTGRES_PORT"},
	}
}

// PortsFrom returns ports that follow one another, the first of them given.
func PortsFrom(first int) Ports {
	ports := DefaultPorts()
	for i, port := range ports.all() {
		port.Number = first + i
	}
	return ports
}

// all returns pointers to every port, in the order in which people know them.
func (p *Ports) all() []*Port {
	return []*Port{&p.API, &p.API2, &p.Ops, &p.Ops2, &p.Admin, &p.AdminOps, &p.Sim, &p.NATS, &p.Postgres}
}

// LoadPorts returns the default ports as moved by the environment. The error
// joins every fault.
func LoadPorts(getenv func(string) string) (Ports, error) {
	ports := DefaultPorts()
	var faults []error
	number := func(variable string, fallback int) int {
		text := getenv(variable)
		if text == "" {
			return fallback
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s is %q; want a number", variable, text))
			return fallback
		}
		return n
	}
	offset := number(OffsetVariable, 0)
	taken := map[int]*Port{}
	for _, port := range ports.all() {
		port.Number = number(port.Variable, port.Number+offset)
		if port.Number < 1 || port.Number > 65535 {
			faults = append(faults, fmt.Errorf("port %d of the %s is out of range (%s, %s)", port.Number, port.What, port.Variable, OffsetVariable))
		}
		if other := taken[port.Number]; other != nil {
			faults = append(faults, fmt.Errorf("%s and %s are both %d", other.Variable, port.Variable, port.Number))
		}
		taken[port.Number] = port
	}
	return ports, errors.Join(faults...)
}

// ErrPortInUse is wrapped by errors about ports that somebody else listens on.
var ErrPortInUse = errors.New("in use")

// inUse returns the error that tells a person how to get around a busy port.
func (p Port) inUse() error {
	return fmt.Errorf("port %d (%s) is %w: free it, or set %s to another port, or move all ports with %s",
		p.Number, p.What, ErrPortInUse, p.Variable, OffsetVariable)
}

// CheckFree reports every port that somebody listens on, but for that of
// Postgres: a server left over from a killed run may hold it, and starting
// Postgres ends that one first.
func (p *Ports) CheckFree(ctx context.Context) error {
	var faults []error
	for _, port := range p.all() {
		if port == &p.Postgres {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", port.Address())
		if err != nil {
			faults = append(faults, port.inUse())
			continue
		}
		faults = append(faults, listener.Close())
	}
	return errors.Join(faults...)
}
