package compose

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"modelgateway/shared/natsuser"
)

const (
	root   = "../.."
	folder = root + "/deploy/compose"
)

// project is the compose file as docker compose understands it.
type project struct {
	Services map[string]service
	Volumes  map[string]any
}

type service struct {
	Image       string
	Build       *struct{ Dockerfile, Target string }
	Environment map[string]string
	Command     []string
	DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
	Volumes     []struct{ Type, Source, Target string }
	Ports       []struct {
		HostIP    string `json:"host_ip"`
		Published string
		Target    int
	}
	Healthcheck any
}

// loaded reads the file with the program of the specification's library.
var loaded = sync.OnceValues(func() (project, error) {
	var p project
	build := exec.Command(root+"/scripts/tool.sh", "compose-spec")
	build.Stderr = os.Stderr
	program, err := build.Output()
	if err != nil {
		return p, err
	}
	read := exec.Command(strings.TrimSpace(string(program)), "-format", "json", "compose.yaml")
	read.Dir, read.Stderr = folder, os.Stderr
	out, err := read.Output()
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(out, &p)
})

func load(t *testing.T) project {
	t.Helper()
	p, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryServiceOfAnEvaluationIsThere(t *testing.T) {
	p := load(t)
	for _, name := range []string{
		"postgres", "nats", "migrate", "controlplane", "dataplane-1", "dataplane-2", "providersim", "prometheus", "grafana", "demo",
	} {
		if p.Services[name].Image == "" {
			t.Errorf("there is no service %s with an image", name)
		}
	}
	for name, s := range p.Services {
		for other, d := range s.DependsOn {
			target, there := p.Services[other]
			if !there {
				t.Errorf("%s depends on %s, which is no service", name, other)
			}
			if d.Condition == "service_healthy" && target.Healthcheck == nil {
				t.Errorf("%s waits until %s is healthy, which has no check", name, other)
			}
		}
		if !regexp.MustCompile(`:[^:/]+$`).MatchString(s.Image) || strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s has the image %s; want one with a version", name, s.Image)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q; want the loopback only", name, port.Published, port.HostIP)
			}
		}
	}
}

func TestMountsExist(t *testing.T) {
	p := load(t)
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			switch v.Type {
			case "bind":
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s mounts a file that is missing: %v", name, err)
				}
			case "volume":
				if _, there := p.Volumes[v.Source]; !there {
					t.Errorf("%s mounts the volume %s, which is not declared", name, v.Source)
				}
			default:
				t.Errorf("%s has a mount of type %s", name, v.Type)
			}
		}
	}
}

// isSetting reports whether the reference of a plane has a variable, or a secret that the variable names a file of.
func isSetting(table, variable string) bool {
	for line := range strings.Lines(table) {
		secret, ofFile := strings.CutSuffix(variable, "_FILE")
		if strings.Contains(line, "`"+variable+"`") || ofFile && strings.Contains(line, "_file` | `"+secret+"`") {
			return true
		}
	}
	return false
}

// The programs refuse unknown variables, and a file of a secret must be one that make-secrets.sh makes.
func TestVariablesAreSettingsOfThePrograms(t *testing.T) {
	reference, secrets := read(t, root+"/docs/settings.md"), read(t, folder+"/make-secrets.sh")
	p := load(t)
	for _, name := range []string{"migrate", "controlplane", "dataplane-1", "dataplane-2"} {
		s := p.Services[name]
		plane := "dataplane"
		if strings.Contains(s.Image, "controlplane") {
			plane = "controlplane"
		}
		_, table, _ := strings.Cut(reference, "<!-- begin "+plane+" -->")
		table, _, _ = strings.Cut(table, "<!-- end "+plane+" -->")
		for variable, value := range s.Environment {
			if !isSetting(table, variable) {
				t.Errorf("%s sets %s, which is no setting of the %s", name, variable, plane)
			}
			if file, ok := strings.CutPrefix(value, "/run/secrets/modelgateway/"); ok && !strings.Contains(secrets, "\nmake "+file+" ") {
				t.Errorf("%s reads the secret %s, which make-secrets.sh does not make", name, file)
			}
		}
	}
}

func TestBuildTargetsAreInTheDockerfile(t *testing.T) {
	dockerfile := read(t, folder+"/Dockerfile")
	for name, s := range load(t).Services {
		if s.Build == nil {
			if strings.HasPrefix(s.Image, "localhost/") {
				t.Errorf("%s has an image of this repository that is not built", name)
			}
			continue
		}
		if s.Build.Dockerfile != "deploy/compose/Dockerfile" || !strings.Contains(dockerfile, " AS "+s.Build.Target+"\n") {
			t.Errorf("%s is built from %s, target %s", name, s.Build.Dockerfile, s.Build.Target)
		}
	}
	for _, program := range regexp.MustCompile(`\./[a-z/]+/cmd/[a-z]+`).FindAllString(dockerfile, -1) {
		if _, err := os.Stat(filepath.Join(root, program)); err != nil {
			t.Errorf("the Dockerfile builds a program that is missing: %v", err)
		}
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, root+"/go.work"))[1]
	if !strings.Contains(dockerfile, "FROM golang:"+version+"-") {
		t.Errorf("the Dockerfile does not build with Go %s", version)
	}
}

// NATS grants each plane exactly its permissions, in the version that the tests of the product use.
func TestNATSHasTheUsersOfThePlanes(t *testing.T) {
	command := exec.Command("go", "run", "./controlplane/cmd/gwctl", "nats-permissions")
	command.Dir = root
	want, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), read(t, folder+"/nats-permissions.conf")); diff != "" {
		t.Errorf("nats-permissions.conf is not the output of gwctl nats-permissions; run make generate (-want +got):\n%s", diff)
	}
	t.Setenv("CONTROLPLANE_NATS_PASSWORD", "made-up-1")
	t.Setenv("DATAPLANE_NATS_PASSWORD", "made-up-2")
	options, err := natsserver.ProcessConfigFile(folder + "/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range options.Users {
		got[u.Username] = u.Password
	}
	if diff := cmp.Diff(map[string]string{natsuser.ControlPlane: "made-up-1", natsuser.DataPlane: "made-up-2"}, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	if !options.JetStream || !options.SyncAlways || options.StoreDir != "/data" {
		t.Errorf("JetStream is %t, syncs always %t, in %s", options.JetStream, options.SyncAlways, options.StoreDir)
	}
	module := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindStringSubmatch(read(t, root+"/scripts/go.mod"))[1]
	if image := load(t).Services["nats"].Image; image != "nats:"+module+"-alpine" {
		t.Errorf("the image of NATS is %s; the tests of the product run with %s", image, module)
	}
}

// The alerts expect these names of jobs, and each target is the ops port of a service.
func TestPrometheusScrapesBothPlanes(t *testing.T) {
	text, services := read(t, folder+"/prometheus.yml"), load(t).Services
	var jobs, targets []string
	for _, m := range regexp.MustCompile(`job_name: (\S+)`).FindAllStringSubmatch(text, -1) {
		jobs = append(jobs, m[1])
	}
	for _, m := range regexp.MustCompile(`"([a-z0-9-]+):(\d+)"`).FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
		want := "9090"
		if strings.Contains(services[m[1]].Image, "controlplane") {
			want = "9091"
		}
		if m[2] != want {
			t.Errorf("the target %s has port %s; want %s", m[1], m[2], want)
		}
	}
	if diff := cmp.Diff([]string{"modelgateway-controlplane", "modelgateway-dataplane"}, jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	slices.Sort(targets)
	if diff := cmp.Diff([]string{"controlplane", "dataplane-1", "dataplane-2"}, targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
