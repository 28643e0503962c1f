package chart

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The pods satisfy the restricted pod security standard, mount no token and can write only
// to their volumes.
func TestPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, account := range all.kind("ServiceAccount") {
			if account.Automount == nil || *account.Automount {
				t.Errorf("%v mounts a token", account)
			}
		}
		for _, o := range all.workloads() {
			pod := o.Spec.Template.Spec
			all.one(t, "ServiceAccount", pod.ServiceAccount)
			if pod.Automount == nil || *pod.Automount || pod.ServiceLinks == nil || *pod.ServiceLinks {
				t.Errorf("%v: token %v, service links %v; want neither", o, pod.Automount, pod.ServiceLinks)
			}
			if s := pod.Security; !s.NonRoot || s.User == 0 || s.FSGroup == 0 || s.Seccomp.Type != "RuntimeDefault" {
				t.Errorf("%v: security context of the pod is %+v", o, s)
			}
			for _, c := range o.containers() {
				if s := c.Security; s.Escalation == nil || *s.Escalation || !s.ReadOnlyRoot || s.Privileged ||
					len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
					t.Errorf("%v: security context of the container %s is %+v", o, c.Name, s)
				}
			}
			c := o.container(t)
			for _, m := range c.Mounts {
				if !m.ReadOnly && m.Name != "spool" && m.Name != "archive" {
					t.Errorf("%v may write to %s", o, m.MountPath)
				}
			}
			if strings.HasSuffix(c.Image, ":latest") || !strings.ContainsAny(path.Base(c.Image), ":@") {
				t.Errorf("%v: image %s; want one version", o, c.Image)
			}
			if c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" || c.Resources.Limits["memory"] == "" {
				t.Errorf("%v: resources %+v; want requests and a limit of memory", o, c.Resources)
			}
		}
	})
}

// The probes use the ops port, and the ports in the settings of the programs are the ports of
// the containers.
func TestProbesUseTheOpsPort(t *testing.T) {
	t.Parallel()
	public := map[string]string{"controlplane": "admin", "dataplane": "api"}
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all.servers() {
			c := o.container(t)
			var alive, ready probe
			alive.HTTPGet.Path, alive.HTTPGet.Port = "/livez", "ops"
			ready.HTTPGet.Path, ready.HTTPGet.Port = "/readyz", "ops"
			for i, got := range []probe{c.Startup, c.Liveness, c.Readiness} {
				if want := []probe{alive, alive, ready}[i]; got.HTTPGet != want.HTTPGet {
					t.Errorf("%v: probe %d asks %+v; want %+v", o, i, got.HTTPGet, want.HTTPGet)
				}
				if got.Period < 1 || got.Timeout < 1 || got.Failed < 1 {
					t.Errorf("%v: probe %d has the times %+v; want all above 0", o, i, got)
				}
			}
			listens := settings(t, all, o.component())
			want := []port{}
			for _, name := range []string{public[o.component()], "ops"} {
				number, err := strconv.Atoi(strings.TrimPrefix(fmt.Sprint(listens[name+".listen"]), ":"))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, port{Name: name, ContainerPort: number})
			}
			if diff := cmp.Diff(want, c.Ports); diff != "" {
				t.Errorf("%v: ports (-listened at +named):\n%s", o, diff)
			}
		}
	})
}

func TestGracePeriodCoversAllTimeouts(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all.servers() {
			preStop := o.container(t).Lifecycle.PreStop.Sleep.Seconds
			if preStop == 0 {
				t.Errorf("%v has no preStop pause, so requests arrive after SIGTERM", o)
			}
			total := time.Duration(preStop) * time.Second
			if text, set := settings(t, all, o.component())["drain_timeout"]; set { // the control plane has nothing to drain
				timeout, err := time.ParseDuration(text.(string))
				if err != nil {
					t.Fatal(err)
				}
				total += timeout
			}
			total += 10 * time.Second // the shutdownTimeout of both planes
			if grace := time.Duration(o.Spec.Template.Spec.GraceSeconds) * time.Second; grace <= total {
				t.Errorf("%v: killed after %s; want over %s", o, grace, total)
			}
		}
	})
}

// GOMEMLIMIT is 80 % of the memory limit, in bytes. The runtime chooses the number of
// processors.
func TestMemoryLimitSetsGOMEMLIMIT(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ limit, want string }{
		{"1Gi", "858993459"},
		{"512Mi", "429496729"},
		{"1.5Gi", "1288490188"},
		{"2G", "1600000000"},
		{"900000k", "720000000"},
		{"1000000000", "800000000"},
	} {
		for _, plane := range []string{"controlplane", "dataplane"} {
			all := renderObjects(t, "defaults", "--set-string", plane+".resources.limits.memory="+test.limit)
			for _, o := range all.servers() {
				if o.component() != plane {
					continue
				}
				if got := o.container(t).env("GOMEMLIMIT"); got != test.want {
					t.Errorf("%s: GOMEMLIMIT is %s for %s; want %s", plane, got, test.limit, test.want)
				}
			}
		}
	}
}

// The data plane sets GOGC by its live heap unless a value sets it.
func TestGarbageCollectionIsTheProgramsUnlessAValueSetsIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ value, want string }{{"0", ""}, {"150", "150"}} {
		for _, o := range renderObjects(t, "defaults", "--set", "dataplane.gogc="+test.value).servers() {
			want := test.want
			if o.component() != "dataplane" {
				want = ""
			}
			if got := o.container(t).env("GOGC"); got != want {
				t.Errorf("%s, gogc: %s: GOGC is %q; want %q", o.component(), test.value, got, want)
			}
		}
	}
}

// The spool is in the volume of the claim, and its limit is below the size of the volume.
func TestSpoolIsInThePersistentVolume(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		sets := all.kind("StatefulSet")
		if len(sets) != 1 || len(sets[0].Spec.VolumeClaims) != 1 {
			t.Fatalf("%v; want one with one claim", sets)
		}
		claim := sets[0].Spec.VolumeClaims[0].Metadata
		got := settings(t, all, "dataplane")
		if dir := fmt.Sprint(got["spool.dir"]); path.Dir(dir) != sets[0].container(t).mount(t, claim.Name) {
			t.Errorf("spool is in %s; want it in the volume %s", dir, claim.Name)
		}
		for key := range claim.Labels {
			if key == "helm.sh/chart" || key == "app.kubernetes.io/version" {
				t.Errorf("the claim has the label %s, which changes with the chart and so forbids upgrades", key)
			}
		}
	})
	for size, want := range map[string]string{"1Gi": "858993459", "1.5Ti": "1319413953331", "20G": "16000000000"} {
		all := renderObjects(t, "defaults", "--set", "dataplane.spool.size="+size)
		if got := fmt.Sprint(settings(t, all, "dataplane")["spool.max_bytes"]); got != want {
			t.Errorf("spool.max_bytes is %s for %s; want %s", got, size, want)
		}
	}
}

// Archive files are written to the volume of the claim. Without a claim there is no volume.
func TestArchiveIsInTheVolumeOfTheClaim(t *testing.T) {
	t.Parallel()
	all := renderObjects(t, "defaults", "--set", "controlplane.archive.existingClaim=kept")
	for _, o := range all.kind("Deployment") {
		if dir := fmt.Sprint(settings(t, all, "controlplane")["archive.dir"]); dir != o.container(t).mount(t, "archive") {
			t.Errorf("archive.dir is %s; want the volume of the claim", dir)
		}
		if !slices.ContainsFunc(o.Spec.Template.Spec.Volumes, func(v volume) bool { return v.Name == "archive" && v.Claim.Name == "kept" }) {
			t.Errorf("%v has the volumes %+v; want the claim", o, o.Spec.Template.Spec.Volumes)
		}
	}
	if dir, set := settings(t, renderObjects(t, "defaults"), "controlplane")["archive.dir"]; set {
		t.Errorf("archive.dir is %v though there is no claim", dir)
	}
}

func TestReferencesBetweenObjectsResolve(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all {
			if ours := o.component() != "" && o.Kind != "ServiceMonitor"; ours && o.Metadata.Namespace != "space" {
				t.Errorf("%v is in namespace %q", o, o.Metadata.Namespace)
			}
		}
		for _, o := range all.servers() {
			if !o.Spec.Selector.matches(o.Spec.Template.Metadata.Labels) {
				t.Errorf("%v does not select its own pods", o)
			}
			for _, spread := range o.Spec.Template.Spec.Spread {
				selected(t, all, o, spread.Selector)
			}
			c := o.container(t)
			for _, v := range o.Spec.Template.Spec.Volumes {
				if v.Name == "config" {
					all.one(t, "ConfigMap", v.ConfigMap.Name)
					if want := "--config=" + c.mount(t, v.Name) + "/config.yaml"; !slices.Contains(c.Args, want) {
						t.Errorf("%v has the arguments %q; want %s", o, c.Args, want)
					}
				}
			}
		}
		for _, o := range all.kind("PodDisruptionBudget") {
			selected(t, all, o, o.Spec.Selector)
		}
		for _, o := range all.kind("HorizontalPodAutoscaler") {
			target := all.one(t, o.Spec.ScaleTarget.Kind, o.Spec.ScaleTarget.Name)
			if got := target.Spec.Replicas; got == nil || *got != o.Spec.MinReplicas {
				t.Errorf("a first install of %v has %v replicas; want the least of %v, because Kubernetes sets 1 where none are given", target, got, o)
			}
		}
		for _, o := range all.kind("StatefulSet") {
			if headless := all.one(t, "Service", o.Spec.ServiceName); headless.Spec.ClusterIP != "None" {
				t.Errorf("%v has the cluster IP %q; want it headless", headless, headless.Spec.ClusterIP)
			}
		}
	})
}

func TestReferencesToPortsResolve(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all.kind("Service") {
			for _, p := range o.Spec.Ports {
				hasPort(t, o, p.TargetPort, selected(t, all, o, o.Spec.Selector).container(t).Ports)
			}
		}
		for _, o := range all.kind("ServiceMonitor") {
			var services objects
			for _, s := range all.kind("Service") {
				if o.Spec.Selector.matches(s.Metadata.Labels) {
					services = append(services, s)
				}
			}
			if len(services) != 1 {
				t.Fatalf("%v selects the services %v; want one", o, services)
			}
			for _, endpoint := range o.Spec.Endpoints {
				hasPort(t, o, endpoint.Port, services[0].Spec.Ports)
			}
		}
		for _, o := range all.kind("NetworkPolicy") {
			target := selected(t, all, o, o.Spec.PodSelector)
			if !slices.Equal(o.Spec.PolicyTypes, []string{"Ingress", "Egress"}) {
				t.Errorf("%v has the policy types %v; want Ingress and Egress", o, o.Spec.PolicyTypes)
			}
			for _, rule := range o.Spec.Ingress {
				for _, p := range rule.Ports {
					hasPort(t, o, p.Port, target.container(t).Ports)
				}
			}
		}
	})
}

// selected returns the workload whose pods a selector matches. It must belong to the same
// component as the object with the selector.
func selected(t *testing.T, all objects, by object, s selector) object {
	t.Helper()
	var found objects
	for _, o := range all.workloads() {
		if s.matches(o.Spec.Template.Metadata.Labels) {
			found = append(found, o)
		}
	}
	if len(found) != 1 || found[0].component() != by.component() {
		t.Fatalf("%v selects the pods of %v; want those of %s", by, found, by.component())
	}
	return found[0]
}

func hasPort(t *testing.T, by object, name string, ports []port) {
	t.Helper()
	if !slices.ContainsFunc(ports, func(p port) bool { return p.Name == name }) {
		t.Errorf("%v refers to the port %q; there are %v", by, name, ports)
	}
}

// A migration by a hook runs before the other objects of the release exist, so it must not refer to them.
func TestMigrationDependsOnHooksOnly(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) { checkMigrationHook(t, all, helmHook) })
	checkMigrationHook(t, renderObjects(t, "defaults", "--set", "migrate.run=argocd,networkPolicy.enabled=true"), argoHook)
	if jobs := renderObjects(t, "defaults", "--set", "migrate.enabled=false").kind("Job"); len(jobs) > 0 {
		t.Errorf("got %v although the migration is disabled", jobs)
	}
}

// A migration beside the planes is no hook, so it may use Secrets that the release creates. Its name changes with the image,
// because the pod of a Job cannot be changed, and it stays as long as the release.
func TestMigrationBesideThePlanesIsAJobOfItsVersion(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, tag := range []string{"1.0.0", "1.1.0"} {
		all := renderObjects(t, "defaults", "--set", "migrate.run=beside,networkPolicy.enabled=true,image.tag="+tag)
		for _, o := range all {
			for key := range o.Metadata.Annotations {
				if strings.Contains(key, "hook") && o.component() != "test" {
					t.Errorf("%v has the annotation %s", o, key)
				}
			}
		}
		for _, job := range all.kind("Job") {
			if job.Spec.TTL != nil {
				t.Errorf("%v is removed while the release needs it", job)
			}
			names[job.Metadata.Name] = true
		}
	}
	if len(names) != 2 {
		t.Errorf("two versions have the Jobs %v; want one each", names)
	}
}

func checkMigrationHook(t *testing.T, all objects, hook func(*testing.T, object) int) {
	t.Helper()
	var job object
	for _, o := range all.kind("Job") {
		if o.component() == "migrate" {
			job = o
		}
	}
	weight := hook(t, job)
	for _, o := range all {
		if o.component() == "migrate" && o.Kind != "Job" && hook(t, o) >= weight {
			t.Errorf("%v is created after the migration that needs it", o)
		}
	}
	if account := all.one(t, "ServiceAccount", job.Spec.Template.Spec.ServiceAccount); account.component() != "migrate" {
		t.Errorf("%v is not a hook", account)
	}
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.ConfigMap.Name != "" {
			t.Errorf("the migration mounts %s, which is not a hook", v.ConfigMap.Name)
		}
	}
	if got := job.container(t).Args; !slices.Equal(got, []string{"migrate"}) {
		t.Errorf("the migration runs %q", got)
	}
}

// helmHook returns the weight of a hook of Helm, which orders the hooks.
func helmHook(t *testing.T, o object) int {
	t.Helper()
	return hookWeight(t, o, "helm.sh/hook-weight", map[string]string{
		"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
	})
}

// argoHook returns the wave of a hook of Argo CD.
func argoHook(t *testing.T, o object) int {
	t.Helper()
	return hookWeight(t, o, "argocd.argoproj.io/sync-wave", map[string]string{
		"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation,HookSucceeded",
	})
}

// hookWeight returns the order of a hook. It must have the annotations given, so that it can run again.
func hookWeight(t *testing.T, o object, order string, annotations map[string]string) int {
	t.Helper()
	for key, want := range annotations {
		if got := o.Metadata.Annotations[key]; got != want {
			t.Errorf("%v has the annotation %s: %q; want %q", o, key, got, want)
		}
	}
	weight, err := strconv.Atoi(o.Metadata.Annotations[order])
	if err != nil {
		t.Fatal(err)
	}
	return weight
}
