package chart

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// valueSets returns the sets of values for rendering: the defaults, each file in the ci
// folder and the examples.
func valueSets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/ci/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of values: %v, %v", files, err)
	}
	for _, example := range []string{"alb", "evaluation", "gateway-api", "load-balancer", "production", "restricted"} {
		files = append(files, chartDir+"/examples/"+example+".yaml")
	}
	return append([]string{"defaults"}, files...)
}

// withValues returns the arguments of helm for a set of values. Only the files have the required registry.
func withValues(values string, args ...string) []string {
	if values != "defaults" {
		args = append(args, "--values", values)
	}
	if !strings.HasPrefix(values, chartDir) {
		args = append(args, "--set", "image.registry=registry.example.com")
	}
	return append(args, "--kube-version", kubeVersion)
}

// render returns the rendered chart.
func render(t *testing.T, values string, args ...string) []byte {
	t.Helper()
	args = append(withValues(values, "template", "release", chartDir, "--namespace", "space"), args...)
	out, err := output(tool(t, "helm", args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// renderObjects returns the objects of the rendered chart.
func renderObjects(t *testing.T, values string, args ...string) objects {
	t.Helper()
	return decodeObjects(t, render(t, values, args...))
}

func decodeObjects(t *testing.T, rendered []byte) objects {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(rendered))
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
		if o.Kind == "Pod" {
			o.Spec.Template.Metadata, o.Spec.Template.Spec = o.Metadata, o.Spec.Pod
		}
		all = append(all, o)
	}
}

// eachValueSet runs a check on the objects of every set of values, in parallel.
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

// kind returns the objects of the given kinds.
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

// one returns the object of a kind and name, which must be unique.
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

// workloads returns the objects that create pods.
func (all objects) workloads() objects { return all.kind("Deployment", "StatefulSet", "Job", "Pod") }

// servers returns the workloads that run until they are stopped.
func (all objects) servers() objects { return all.kind("Deployment", "StatefulSet") }

// object holds the members of a Kubernetes object that the tests read.
type object struct {
	Kind     string
	Metadata metadata
	// Automount belongs to a ServiceAccount.
	Automount *bool `yaml:"automountServiceAccountToken"`
	// Data belongs to a ConfigMap.
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
		// Pod belongs to a Pod; renderObjects copies it to Template.
		Pod podSpec `yaml:",inline"`
		// Ports and ClusterIP belong to a Service.
		Ports     []port
		ClusterIP string `yaml:"clusterIP"`
		// PodSelector, Ingress and PolicyTypes belong to a NetworkPolicy.
		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct{ Ports []port }
		Egress      []struct{ Ports []port }
		// ScaleTarget belongs to a HorizontalPodAutoscaler.
		ScaleTarget struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		MinReplicas int                         `yaml:"minReplicas"`
		// TTL belongs to a Job.
		TTL *int `yaml:"ttlSecondsAfterFinished"`
		// Endpoints belongs to a ServiceMonitor.
		Endpoints []port
	}
}

func (o object) component() string { return o.Metadata.Labels["app.kubernetes.io/component"] }

// plane returns the plane whose program a workload runs.
func (o object) plane() string {
	if o.component() == "dataplane" {
		return "dataplane"
	}
	return "controlplane"
}

func (o object) String() string { return o.Kind + " " + o.Metadata.Name }

// container returns the container of a workload's program, which comes first.
func (o object) container(t *testing.T) container {
	t.Helper()
	all := o.Spec.Template.Spec.Containers
	if len(all) == 0 || all[0].Name != o.component() {
		t.Fatalf("%v has the containers %+v; want %s first", o, all, o.component())
	}
	return all[0]
}

// containers returns all containers of a workload, init containers first.
func (o object) containers() []container {
	pod := o.Spec.Template.Spec
	return append(slices.Clone(pod.Init), pod.Containers...)
}

type metadata struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
}

// port is a port of a container, a Service, a NetworkPolicy or a ServiceMonitor. Port and
// TargetPort refer to the port of another object.
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

// mount returns the path at which the container mounts a volume.
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
	Period  int                         `yaml:"periodSeconds"`
	Timeout int                         `yaml:"timeoutSeconds"`
	Failed  int                         `yaml:"failureThreshold"`
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
				Name     string
				Items    []struct{ Key, Path string }
				Optional bool
			}
		}
	}
}

// selector holds labels, written directly as in a Service or under matchLabels.
type selector map[string]string

// UnmarshalYAML decodes both forms.
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

// matches reports whether labels have all labels of the selector. An empty selector matches
// nothing, because in this chart it would be a mistake.
func (s selector) matches(labels map[string]string) bool {
	for key, value := range s {
		if labels[key] != value {
			return false
		}
	}
	return len(s) > 0
}
