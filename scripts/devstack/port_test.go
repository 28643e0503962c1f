package devstack

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestLoadPorts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		env     map[string]string
		want    func(*Ports)
		wantErr []string
	}{
		{name: "defaults", want: func(*Ports) {}},
		{name: "one moved", env: map[string]string{"MGW_DEV_SIM_PORT": "19100"}, want: func(p *Ports) { p.Sim.Number = 19100 }},
		{name: "all moved", env: map[string]string{OffsetVariable: "20000"}, want: func(p *Ports) {
			for _, port := range p.all() {
				port.Number += 20000
			}
		}},
		{name: "one set, the others moved", env: map[string]string{OffsetVariable: "20000", "MGW_DEV_API_PORT": "80"}, want: func(p *Ports) {
			for _, port := range p.all() {
				port.Number += 20000
			}
			p.API.Number = 80
		}},
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
			want := DefaultPorts()
			tt.want(&want)
			if err != nil || got != want {
				t.Errorf("got %v, %v; want %v", got, err, want)
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
	ports := DefaultPorts()
	for _, port := range ports.all() {
		port.Number = 0 // any
	}
	if err := ports.CheckFree(t.Context()); err != nil {
		t.Errorf("all free: got %v", err)
	}
	ports.Admin.Number = busy
	err = ports.CheckFree(t.Context())
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(busy)) || !strings.Contains(err.Error(), "MGW_DEV_ADMIN_PORT") {
		t.Errorf("got %v; want the port %d and its variable", err, busy)
	}
}
