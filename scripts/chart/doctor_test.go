package chart

import (
	"slices"
	"strings"
	"testing"
)

// The checks before an installation run before the migration and after what they need, name missing secrets instead of waiting
// for them, and keep their log.
func TestPreflightRunsBeforeTheMigration(t *testing.T) {
	t.Parallel()
	for run, kept := range map[string]map[string]string{
		"helm":   {"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-weight": "-5", "helm.sh/hook-delete-policy": "before-hook-creation"},
		"argocd": {"argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/sync-wave": "-5", "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation"},
	} {
		all := renderObjects(t, "defaults", "--set", "preflight.enabled=true,migrate.run="+run)
		job := all.one(t, "Job", "release-modelgateway-preflight")
		for key, want := range kept {
			if got := job.Metadata.Annotations[key]; got != want {
				t.Errorf("%s is %q; want %q", key, got, want)
			}
		}
		order := map[string]string{"helm": "helm.sh/hook-weight", "argocd": "argocd.argoproj.io/sync-wave"}[run]
		for _, kind := range []string{"ConfigMap", "NetworkPolicy"} {
			if got := all.one(t, kind, job.Metadata.Name).Metadata.Annotations[order]; got != "-10" {
				t.Errorf("%s: the %s has the order %q; want it before the Job", run, kind, got)
			}
		}
		if got, want := all.one(t, "ConfigMap", job.Metadata.Name).Data, all.one(t, "ConfigMap", "release-modelgateway-controlplane").Data; got["config.yaml"] != want["config.yaml"] {
			t.Errorf("the settings differ from those of the control plane:\n%s", got)
		}
		if got := job.container(t).Args; !slices.Equal(got, []string{"doctor", "--config=/etc/modelgateway/config/config.yaml", "--preflight"}) {
			t.Errorf("it runs %q", got)
		}
		for _, source := range job.Spec.Template.Spec.Volumes[1].Projected.Sources {
			if !source.Secret.Optional {
				t.Errorf("without the Secret %s the pod does not start", source.Secret.Name)
			}
		}
	}
	if jobs := renderObjects(t, "defaults").kind("Job"); len(jobs) != 1 {
		t.Errorf("the Jobs are %v by default; want the migration", jobs)
	}
}

// helm test checks the whole system and calls both Services, which the policies allow.
func TestTestPodMayCallBothServices(t *testing.T) {
	t.Parallel()
	all := renderObjects(t, chartDir+"/examples/restricted.yaml")
	pod := all.one(t, "Pod", "release-modelgateway-test")
	if pod.Metadata.Annotations["helm.sh/hook"] != "test" {
		t.Errorf("the annotations are %v", pod.Metadata.Annotations)
	}
	args := strings.Join(pod.container(t).Args, " ")
	for _, plane := range planes {
		if want := "--service=https://release-modelgateway-" + plane + ".space.svc:80/"; !strings.Contains(args, want) {
			t.Errorf("the arguments are %s; want %s", args, want)
		}
		text := string(render(t, chartDir+"/examples/restricted.yaml", "--show-only", "templates/networkpolicy.yaml"))
		_, policy, _ := strings.Cut(text, "name: release-modelgateway-"+plane)
		policy, _, _ = strings.Cut(policy, "egress:")
		if !strings.Contains(policy, "component: test") {
			t.Errorf("the policy of the %s does not admit the test:\n%s", plane, policy)
		}
	}
}
