package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// OffsetVariable names the environment variable whose value is added to every port that
// has no value in its own variable.
const OffsetVariable = "MGW_DEV_PORT_OFFSET"

// A Port is a port on 127.0.0.1 that the stack listens on.
type Port struct {
	// Number is the port.
	Number int
	// Name is the name of the listener in messages.
	Name string
	// Variable names the environment variable that changes the port.
	Variable string
}

// Address returns the port as host:port.
func (p Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }

// URL returns the address as an HTTP URL.
func (p Port) URL() string { return "http://" + p.Address() }

// A Listener holds the ports of a plane.
type Listener struct {
	// Serve is the port of the API, Ops that of the probes and metrics.
	Serve, Ops Port
}

// Ports are all ports of the stack. The number of listeners is the number of planes.
type Ports struct {
	DataPlanes, ControlPlanes []Listener
	Sim, NATS, Postgres       Port
}

// Planes holds the number of planes of each kind.
type Planes struct{ Data, Control int }

// DefaultPlanes returns the planes of a stack without settings.
func DefaultPlanes() Planes { return Planes{Data: 2, Control: 1} }

// DataPlaneName returns the name of the data plane with index i, from 0.
func DataPlaneName(i int) string { return "dp-" + strconv.Itoa(i+1) }

// ControlPlaneName returns the name of the control plane with index i, from 0. The name of
// the first one has no number.
func ControlPlaneName(i int) string { return "controlplane" + numbered("-", i) }

// numbered returns the suffix of the name of a part: empty for the first one, otherwise
// the prefix and a number.
func numbered(prefix string, i int) string {
	if i == 0 {
		return ""
	}
	return prefix + strconv.Itoa(i+1)
}

// The first two data planes and the first control plane have well-known ports. Those of
// further planes begin at these numbers, their ops listeners extraOpsOffset above them.
const (
	extraDataPorts    = 8180
	extraControlPorts = 8280
	extraOpsOffset    = 1000
)

// DefaultPorts returns the ports of a stack without settings.
func DefaultPorts(planes Planes) Ports {
	ports := Ports{
		Sim:      Port{9100, "provider simulator", "MGW_DEV_SIM_PORT"},
		NATS:     Port{4222, "NATS", "MGW_DEV_NATS_PORT"},
		Postgres: Port{5433, "Postgres", "MGW_DEV_POSTGRES_PORT"},
	}

	for i := range planes.Data {
		number, name, tag := extraDataPorts+i, "data plane "+DataPlaneName(i), numbered("", i)
		if i < DefaultPlanes().Data {
			number = 8080 + 2*i
		}
		ports.DataPlanes = append(ports.DataPlanes, Listener{
			Serve: Port{number, "API of " + name, "MGW_DEV_API" + tag + "_PORT"},
			Ops:   Port{number + opsOffset(i < DefaultPlanes().Data), "ops listener of " + name, "MGW_DEV_OPS" + tag + "_PORT"},
		})
	}

	for i := range planes.Control {
		number, name, tag := extraControlPorts+i, "the control plane", numbered("", i)
		if i < DefaultPlanes().Control {
			number = 8081
		} else {
			name += " " + ControlPlaneName(i)
		}
		ports.ControlPlanes = append(ports.ControlPlanes, Listener{
			Serve: Port{number, "admin API of " + name, "MGW_DEV_ADMIN" + tag + "_PORT"},
			Ops:   Port{number + opsOffset(i < DefaultPlanes().Control), "ops listener of " + name, "MGW_DEV_ADMIN" + tag + "_OPS_PORT"},
		})
	}

	return ports
}

// opsOffset returns the difference between the ports of a plane's ops listener and API.
func opsOffset(wellKnown bool) int {
	if wellKnown {
		return 9090 - 8080
	}
	return extraOpsOffset
}

// PortsFrom returns consecutive ports that begin at first.
func PortsFrom(first int, planes Planes) Ports {
	ports := DefaultPorts(planes)
	for i, port := range ports.all() {
		port.Number = first + i
	}
	return ports
}

// all returns pointers to every port: the APIs and ops listeners of the data planes, then
// those of the control planes, then the other ports.
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

// The variables with the number of planes.
const (
	DataPlanesVariable    = "MGW_DEV_DATAPLANES"
	ControlPlanesVariable = "MGW_DEV_CONTROLPLANES"
)

// maxPlanes bounds each kind of plane, so that their port ranges do not overlap.
const maxPlanes = 64

// LoadPorts returns the ports of a stack with the numbers of planes and ports of the
// environment. The error joins all problems.
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
			faults = append(
				faults,
				fmt.Errorf("port %d of the %s is out of range (%s, %s)", port.Number, port.Name, port.Variable, OffsetVariable),
			)
		}
		if other := taken[port.Number]; other != nil {
			faults = append(faults, fmt.Errorf("%s and %s are both %d", other.Variable, port.Variable, port.Number))
		}
		taken[port.Number] = port
	}

	return ports, errors.Join(faults...)
}

// ErrPortInUse is wrapped by errors about ports that another process listens on.
var ErrPortInUse = errors.New("in use")

// inUse returns the error about a port in use, with the variables that change it.
func (p Port) inUse() error {
	return fmt.Errorf("port %d (%s) is %w: free it, or set %s to another port, or shift all ports with %s",
		p.Number, p.Name, ErrPortInUse, p.Variable, OffsetVariable)
}

// CheckFree returns an error about each port that another process listens on. It does not
// check the port of Postgres: a server of a killed run may still use it, and the start of
// Postgres ends that server.
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
