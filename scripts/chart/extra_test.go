package chart

import (
	"maps"
	"strings"
	"testing"
)

// Every object has the common labels, and every pod. The template of the claims has not, because it cannot be changed.
func TestCommonLabelsAreOnObjectsAndPods(t *testing.T) {
	t.Parallel()
	const key = "example.com/team"
	for _, o := range renderObjects(t, "defaults", "--set", `commonLabels.example\.com/team=gateway`) {
		if o.Metadata.Labels[key] != "gateway" {
			t.Errorf("%v has the labels %v", o, o.Metadata.Labels)
		}
		if len(o.containers()) > 0 && o.Spec.Template.Metadata.Labels[key] != "gateway" {
			t.Errorf("the pods of %v have the labels %v", o, o.Spec.Template.Metadata.Labels)
		}
		if maps.Equal(o.Spec.Selector, map[string]string{key: "gateway"}) || o.Spec.Selector[key] != "" {
			t.Errorf("%v selects by a label that may change", o)
		}
		for _, claim := range o.Spec.VolumeClaims {
			if claim.Metadata.Labels[key] != "" {
				t.Errorf("the claim of %v has the label", o)
			}
		}
	}
}

// Objects of the user are rendered as they are, or as a template if they are text.
func TestExtraObjectsAreRendered(t *testing.T) {
	t.Parallel()
	all := renderObjects(t, chartDir+"/ci/full-values.yaml")
	all.one(t, "ConfigMap", "company-authorities")
	all.one(t, "ConfigMap", "gateway-proxy")
}

// A service account that is not created is used by its name.
func TestServiceAccountsCanExistBefore(t *testing.T) {
	t.Parallel()
	var set []string
	for _, component := range []string{"controlplane", "dataplane", "migrate"} {
		set = append(set, component+".serviceAccount.create=false,"+component+".serviceAccount.name=mine")
	}
	all := renderObjects(t, "defaults", "--set", strings.Join(set, ","))
	if found := all.kind("ServiceAccount"); len(found) > 0 {
		t.Errorf("rendered %v", found)
	}
	for _, o := range all.workloads() {
		if got := o.Spec.Template.Spec.ServiceAccount; got != "mine" {
			t.Errorf("%v uses the service account %q", o, got)
		}
	}
}

// One tag selects both images. A plane's own tag comes before it.
func TestOneTagSelectsBothImages(t *testing.T) {
	t.Parallel()
	for _, o := range renderObjects(t, "defaults", "--set", "image.tag=1.2.3,dataplane.image.tag=1.2.4").workloads() {
		want := ":1.2.3"
		if o.component() == "dataplane" {
			want = ":1.2.4"
		}
		if got := o.container(t).Image; !strings.HasSuffix(got, want) {
			t.Errorf("%v runs %s; want the tag %s", o, got, want)
		}
	}
}

// The values set the times of the probes. The startup probe lasts at least startupSeconds.
func TestValuesSetTheProbes(t *testing.T) {
	t.Parallel()
	for _, plane := range planes {
		values := "P.startupSeconds=61,P.probes.startup.periodSeconds=3,P.probes.startup.timeoutSeconds=4," +
			"P.probes.liveness.periodSeconds=5,P.probes.liveness.timeoutSeconds=6,P.probes.liveness.failureThreshold=7," +
			"P.probes.readiness.periodSeconds=8,P.probes.readiness.timeoutSeconds=9,P.probes.readiness.failureThreshold=10"
		for _, o := range renderObjects(t, "defaults", "--set", strings.ReplaceAll(values, "P.", plane+".")).servers() {
			if o.component() != plane {
				continue
			}
			c := o.container(t)
			for name, got := range map[string]probe{"startup": c.Startup, "liveness": c.Liveness, "readiness": c.Readiness} {
				want := map[string][3]int{"startup": {3, 4, 21}, "liveness": {5, 6, 7}, "readiness": {8, 9, 10}}[name]
				if [3]int{got.Period, got.Timeout, got.Failed} != want {
					t.Errorf("%v: %s probe is %+v; want %v", o, name, got, want)
				}
			}
		}
	}
}
