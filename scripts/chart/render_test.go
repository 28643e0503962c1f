package chart

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"
)

// valueSets names what the chart is rendered with: its defaults, and each file
// of its ci folder.
func valueSets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/ci/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of values: %v, %v", files, err)
	}
	return append([]string{"defaults"}, files...)
}

// withValues is the arguments of helm for a value set.
func withValues(values string, args ...string) []string {
	if values != "defaults" {
		args = append(args, "--values", values)
	}
	return append(args, "--kube-version", kubeVersion)
}

// render is the text of the chart's objects.
func render(t *testing.T, values string, args ...string) []byte {
	t.Helper()
	args = append(withValues(values, "template", "release", chartDir, "--namespace", "space"), args...)
	out, err := output(tool(t, "helm", args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// renderObjects is the chart's objects.
func renderObjects(t *testing.T, values string, args ...string) objects {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(render(t, values, args...)))
	var all objects
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// eachValueSet runs a check on the objects of every value set, in parallel.
func eachValueSet(t *testing.T, check func(t *testing.T, all objects)) {
	t.Helper()
	for _, values := range valueSets(t) {
		t.Run(filepath.Base(values), func(t *testing.T) {
			t.Parallel()
			check(t, renderObjects(t, values))
		})
	}
}

type objects []object

// kind is the objects of some kinds.
func (all objects) kind(kinds ...string) objects {
	var found objects
	for _, o := range all {
		for _, kind := range kinds {
			if o.Kind == kind {
				found = append(found, o)
			}
		}
	}
	return found
}

// one is the object of a kind and name, which must be there once.
func (all objects) one(t *testing.T, kind, name string) object {
	t.Helper()
	var found objects
	for _, o := range all.kind(kind) {
		if o.Metadata.Name == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are %s %s; want 1", len(found), kind, name)
	}
	return found[0]
}

// workloads is the objects that make pods.
func (all objects) workloads() objects { return all.kind("Deployment", "StatefulSet", "Job") }

// servers is the workloads that run on.
func (all objects) servers() objects { return all.kind("Deployment", "StatefulSet") }

// object is what the tests read of any object of Kubernetes.
type object struct {
	Kind     string
	Metadata metadata
	// Automount is of a ServiceAccount.
	Automount *bool `yaml:"automountServiceAccountToken"`
	// Data is of a ConfigMap.
	Data map[string]string
	Spec struct {
		Replicas    *int
		Selector    selector
		ServiceName string `yaml:"serviceName"`
		Template    struct {
			Metadata metadata
			Spec     podSpec
		}
		VolumeClaims []struct{ Metadata metadata } `yaml:"volumeClaimTemplates"`
		// Ports and ClusterIP are of a Service.
		Ports     []port
		ClusterIP string `yaml:"clusterIP"`
		// PodSelector, Ingress and PolicyTypes are of a NetworkPolicy.
		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct{ Ports []port }
		// ScaleTarget is of a HorizontalPodAutoscaler.
		ScaleTarget struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		// Endpoints is of a ServiceMonitor.
		Endpoints []port
	}
}

func (o object) component() string { return o.Metadata.Labels["app.kubernetes.io/component"] }

func (o object) String() string { return o.Kind + " " + o.Metadata.Name }

// container is the only container of a workload.
func (o object) container(t *testing.T) container {
	t.Helper()
	if n := len(o.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%v has %d containers; want 1", o, n)
	}
	return o.Spec.Template.Spec.Containers[0]
}

type metadata struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
}

// port is one of a container, a Service, a NetworkPolicy or a ServiceMonitor;
// those refer to another's by Port or TargetPort.
type port struct {
	Name          string
	ContainerPort int    `yaml:"containerPort"`
	TargetPort    string `yaml:"targetPort"`
	Port          string
}

type podSpec struct {
	ServiceAccount string `yaml:"serviceAccountName"`
	Automount      *bool  `yaml:"automountServiceAccountToken"`
	ServiceLinks   *bool  `yaml:"enableServiceLinks"`
	Security       struct {
		NonRoot bool                  `yaml:"runAsNonRoot"`
		User    int                   `yaml:"runAsUser"`
		FSGroup int                   `yaml:"fsGroup"`
		Seccomp struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	GraceSeconds int `yaml:"terminationGracePeriodSeconds"`
	Spread       []struct {
		Selector selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Init       []container `yaml:"initContainers"`
	Containers []container
	Volumes    []volume
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       []port
	Security    struct {
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRoot bool  `yaml:"readOnlyRootFilesystem"`
		Privileged   bool
		Capabilities struct{ Add, Drop []string }
	} `yaml:"securityContext"`
	Startup   probe `yaml:"startupProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources struct{ Requests, Limits map[string]string }
	Mounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

func (c container) env(name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// mount is where a volume is mounted.
func (c container) mount(t *testing.T, volume string) string {
	t.Helper()
	for _, m := range c.Mounts {
		if m.Name == volume {
			return m.MountPath
		}
	}
	t.Fatalf("container %s does not mount %s", c.Name, volume)
	return ""
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

type volume struct {
	Name      string
	ConfigMap struct{ Name string } `yaml:"configMap"`
	Claim     struct {
		Name string `yaml:"claimName"`
	} `yaml:"persistentVolumeClaim"`
	Projected struct {
		Sources []struct {
			Secret struct {
				Name  string
				Items []struct{ Key, Path string }
			}
		}
	}
}

// selector is labels, as a Service gives them or under matchLabels.
type selector map[string]string

// UnmarshalYAML reads either form.
func (s *selector) UnmarshalYAML(node *yaml.Node) error {
	var fields map[string]yaml.Node
	if err := node.Decode(&fields); err != nil {
		return err
	}
	if labels, ok := fields["matchLabels"]; ok {
		node = &labels
	}
	return node.Decode((*map[string]string)(s))
}

// picks says whether labels have all that the selector asks for. A selector
// that asks for nothing picks nothing: here it would be a mistake.
func (s selector) picks(labels map[string]string) bool {
	for key, value := range s {
		if labels[key] != value {
			return false
		}
	}
	return len(s) > 0
}
