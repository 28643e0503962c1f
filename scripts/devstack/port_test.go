package devstack

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestLoadPortsReadsTheEnvironment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		env     map[string]string
		want    func(*Ports)
		wantErr []string
	}{
		{name: "defaults", want: func(*Ports) {}},
		{name: "one port", env: map[string]string{"MGW_DEV_SIM_PORT": "19100"}, want: func(p *Ports) { p.Sim.Number = 19100 }},
		{name: "offset for all ports", env: map[string]string{OffsetVariable: "20000"}, want: func(p *Ports) {
			for _, port := range p.all() {
				port.Number += 20000
			}
		}},
		{name: "one port, offset for the others", env: map[string]string{OffsetVariable: "20000", "MGW_DEV_API_PORT": "80"}, want: func(p *Ports) {
			for _, port := range p.all() {
				port.Number += 20000
			}
			p.DataPlanes[0].Serve.Number = 80
		}},
		{name: "no data planes", env: map[string]string{DataPlanesVariable: "0"}, wantErr: []string{"MGW_DEV_DATAPLANES is 0; want 1 to 64"}},
		{
			name:    "faults",
			env:     map[string]string{"MGW_DEV_API_PORT": "http", "MGW_DEV_API2_PORT": "9090", "MGW_DEV_NATS_PORT": "70000"},
			wantErr: []string{`MGW_DEV_API_PORT is "http"`, "MGW_DEV_API2_PORT and MGW_DEV_OPS_PORT are both 9090", "port 70000 of the NATS"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := LoadPorts(env(tt.env))
			for _, want := range tt.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v; want it to contain %q", err, want)
				}
			}
			if tt.want == nil {
				return
			}
			want := DefaultPorts(DefaultPlanes())
			tt.want(&want)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCheckFreeNamesThePortAndTheVariable(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	busy := listener.Addr().(*net.TCPAddr).Port
	ports := DefaultPorts(DefaultPlanes())
	for _, port := range ports.all() {
		port.Number = 0 // any
	}
	if err := ports.CheckFree(t.Context()); err != nil {
		t.Errorf("all free: got %v", err)
	}
	ports.ControlPlanes[0].Serve.Number = busy
	err = ports.CheckFree(t.Context())
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(busy)) || !strings.Contains(err.Error(), "MGW_DEV_ADMIN_PORT") {
		t.Errorf("got %v; want the port %d and its variable", err, busy)
	}
}

// The ports of the default stack are documented. Those of further planes differ from them
// and from each other.
func TestPortsOfManyPlanesDoNotCollide(t *testing.T) {
	t.Parallel()
	ports, err := LoadPorts(env(map[string]string{DataPlanesVariable: "64", ControlPlanesVariable: "64"}))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int{}
	for _, port := range ports.all() {
		numbers[port.Variable] = port.Number
	}
	if want := 2*64 + 2*64 + 3; len(numbers) != want {
		t.Errorf("got %d ports with variables of their own; want %d", len(numbers), want)
	}
	for variable, want := range map[string]int{
		"MGW_DEV_API_PORT": 8080, "MGW_DEV_API2_PORT": 8082, "MGW_DEV_OPS_PORT": 9090, "MGW_DEV_OPS2_PORT": 9092,
		"MGW_DEV_ADMIN_PORT": 8081, "MGW_DEV_ADMIN_OPS_PORT": 9091, "MGW_DEV_API3_PORT": 8182, "MGW_DEV_ADMIN2_OPS_PORT": 9281,
	} {
		if numbers[variable] != want {
			t.Errorf("%s is %d; want %d", variable, numbers[variable], want)
		}
	}
}
