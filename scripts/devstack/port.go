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

// A Listener is where a plane listens.
type Listener struct {
	// Serve is its API, Ops its probes and metrics.
	Serve, Ops Port
}

// Ports are all ports of the stack. There are as many planes as there are
// listeners.
type Ports struct {
	DataPlanes, ControlPlanes []Listener
	Sim, NATS, Postgres       Port
}

// Planes says how many planes of each kind a stack has.
type Planes struct{ Data, Control int }

// DefaultPlanes are those of a stack when nothing else is said.
func DefaultPlanes() Planes { return Planes{Data: 2, Control: 1} }

// DataPlaneName and ControlPlaneName name the parts of the stack, from 0.
func DataPlaneName(i int) string { return "dp-" + strconv.Itoa(i+1) }

// ControlPlaneName is like DataPlaneName; the first one bears no number.
func ControlPlaneName(i int) string { return "controlplane" + numbered("-", i) }

// numbered is the number of a part after the first.
func numbered(prefix string, i int) string {
	if i == 0 {
		return ""
	}
	return prefix + strconv.Itoa(i+1)
}

// The first two data planes and the first control plane have ports that people
// know. Others follow from these numbers on, with their ops listeners above.
const (
	moreData    = 8180
	moreControl = 8280
	opsAbove    = 1000
)

// DefaultPorts returns the ports of a stack that nobody moved.
func DefaultPorts(planes Planes) Ports {
	ports := Ports{
		Sim:      Port{9100, "provider simulator", "MGW_DEV_SIM_PORT"},
		NATS:     Port{4222, "NATS", "MGW_DEV_NATS_PORT"},
		Postgres: Port{5433, "Postgres", "MGW_DEV_POSTGRES_PORT"},
	}
	for i := range planes.Data {
		number, name, tag := moreData+i, "data plane "+DataPlaneName(i), numbered("", i)
		if i < DefaultPlanes().Data {
			number = 8080 + 2*i
		}
		ports.DataPlanes = append(ports.DataPlanes, Listener{
			Serve: Port{number, "API of " + name, "MGW_DEV_API" + tag + "_PORT"},
			Ops:   Port{number + ops(i < DefaultPlanes().Data), "ops listener of " + name, "MGW_DEV_OPS" + tag + "_PORT"},
		})
	}
	for i := range planes.Control {
		number, name, tag := moreControl+i, "the control plane", numbered("", i)
		if i < DefaultPlanes().Control {
			number = 8081
		} else {
			name += " " + ControlPlaneName(i)
		}
		ports.ControlPlanes = append(ports.ControlPlanes, Listener{
			Serve: Port{number, "admin API of " + name, "MGW_DEV_ADMIN" + tag + "_PORT"},
			Ops:   Port{number + ops(i < DefaultPlanes().Control), "ops listener of " + name, "MGW_DEV_ADMIN" + tag + "_OPS_PORT"},
		})
	}
	return ports
}

// ops is how far above its API a plane's ops listener is.
func ops(known bool) int {
	if known {
		return 9090 - 8080
	}
	return opsAbove
}

// PortsFrom returns ports that follow one another, the first of them given.
func PortsFrom(first int, planes Planes) Ports {
	ports := DefaultPorts(planes)
	for i, port := range ports.all() {
		port.Number = first + i
	}
	return ports
}

// all returns pointers to every port, in the order in which people know them.
func (p *Ports) all() []*Port {
	var all []*Port
	for _, planes := range [][]Listener{p.DataPlanes, p.ControlPlanes} {
		for i := range planes {
			all = append(all, &planes[i].Serve)
		}
		for i := range planes {
			all = append(all, &planes[i].Ops)
		}
	}
	return append(all, &p.Sim, &p.NATS, &p.Postgres)
}

// The variables that say how many planes there are.
const (
	DataPlanesVariable    = "MGW_DEV_DATAPLANES"
	ControlPlanesVariable = "MGW_DEV_CONTROLPLANES"
)

// maxPlanes bounds each kind of plane, so that their ports stay apart.
const maxPlanes = 64

// LoadPorts returns the default ports of as many planes as the environment
// says, moved by it. The error joins every fault.
func LoadPorts(getenv func(string) string) (Ports, error) {
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
	count := func(variable string, fallback int) int {
		n := number(variable, fallback)
		if n < 1 || n > maxPlanes {
			faults = append(faults, fmt.Errorf("%s is %d; want 1 to %d", variable, n, maxPlanes))
			return fallback
		}
		return n
	}
	planes := DefaultPlanes()
	ports := DefaultPorts(Planes{
		Data: count(DataPlanesVariable, planes.Data), Control: count(ControlPlanesVariable, planes.Control),
	})
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
