package chart

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cluster serves the parts of the Kubernetes API that helm reads for lookups.
type cluster struct {
	// objects by path.
	objects map[string]any
}

// newCluster returns a cluster whose namespace exists.
func newCluster() cluster {
	return cluster{map[string]any{"/api/v1/namespaces/space/serviceaccounts/default": map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"},
	}}}
}

// secret adds keys to a Secret.
func (c cluster) secret(name string, keys ...string) {
	data := map[string]any{}
	for _, key := range keys {
		data[key] = base64.StdEncoding.EncodeToString([]byte("text"))
	}
	c.objects["/api/v1/namespaces/space/secrets/"+name] = map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "data": data,
	}
}

// defaultSecrets adds the Secrets of the default values.
func (c cluster) defaultSecrets() {
	c.secret("modelgateway", "postgres-url", "controlplane-nats-password", "dataplane-nats-password", "pepper", "fleet-key", "master-key", "bootstrap-token")
	c.secret("modelgateway-nats-ca", "ca.crt")
}

// running adds a StatefulSet of the data plane.
func (c cluster) running(replicas int) { c.runningWith(replicas, "1Gi") }

// runningWith adds the StatefulSet of an earlier install with claims of a size.
func (c cluster) runningWith(replicas int, size string) {
	claim := map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}}}
	c.objects["/apis/apps/v1/namespaces/space/statefulsets/release-modelgateway-dataplane"] = map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"name": "release-modelgateway-dataplane"}, "spec": map[string]any{"replicas": replicas, "volumeClaimTemplates": []any{claim}},
	}
}

func (c cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := func(name, kind string) map[string]any {
		return map[string]any{"name": name, "kind": kind, "namespaced": true, "verbs": []string{"get", "list"}}
	}
	documents := map[string]any{
		"/version": map[string]any{"major": "1", "minor": "33", "gitVersion": "v" + kubeVersion},
		"/api":     map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
		"/apis": map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{
			"name": "apps", "versions": []any{map[string]any{"groupVersion": "apps/v1", "version": "v1"}},
			"preferredVersion": map[string]any{"groupVersion": "apps/v1", "version": "v1"},
		}}},
		"/api/v1": map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			resource("secrets", "Secret"), resource("serviceaccounts", "ServiceAccount"),
		}},
		"/apis/apps/v1": map[string]any{"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []any{resource("statefulsets", "StatefulSet")}},
	}
	document, ok := documents[r.URL.Path]
	if !ok {
		document, ok = c.objects[r.URL.Path]
	}
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		document = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(document)
}

// renderIn renders the chart as an install in the cluster does, with values in JSON.
func (c cluster) renderIn(t *testing.T, values string) (string, error) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := tool(t, "helm", withValues("-", "template", "release", chartDir, "--namespace", "space", "--dry-run=server", "--kubeconfig", config)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader(values)
	out, err := output(cmd)
	return string(out), err
}

func TestInstallNamesMissingSecrets(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.defaultSecrets()
	if _, err := c.renderIn(t, `{}`); err != nil {
		t.Fatalf("with all Secrets: %v", err)
	}
	c.secret("modelgateway", "postgres-url", "controlplane-nats-password", "dataplane-nats-password", "fleet-key", "master-key", "bootstrap-token")
	delete(c.objects, "/api/v1/namespaces/space/secrets/modelgateway-nats-ca")
	_, err := c.renderIn(t, `{}`)
	if want := "the namespace space lacks these keys"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v; want it to contain %q", err, want)
	}
	for _, want := range []string{"modelgateway: pepper", "modelgateway-nats-ca: ca.crt"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want it to name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "master-key") {
		t.Errorf("got %v; want no key that exists", err)
	}
}

func TestAutoscalingKeepsTheReplicas(t *testing.T) {
	t.Parallel()
	const autoscaling = `{"dataplane":{"autoscaling":{"enabled":true,"minReplicas":3}}}`
	for _, tt := range []struct {
		name    string
		running int // zero: nothing runs
		want    string
	}{
		{"first install", 0, "replicas: 3"},
		{"more than the least", 7, "replicas: 7"},
		{"fewer than the least", 1, "replicas: 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.defaultSecrets()
			if tt.running > 0 {
				c.running(tt.running)
			}
			out, err := c.renderIn(t, autoscaling)
			if err != nil {
				t.Fatal(err)
			}
			_, set, _ := strings.Cut(out, "\nkind: StatefulSet")
			if set, _, _ = strings.Cut(set, "\n---"); !strings.Contains(set, "\n  "+tt.want+"\n") {
				t.Errorf("want %q in:\n%s", tt.want, set)
			}
		})
	}
}

// Kubernetes refuses another size of the claims after the migration has run.
func TestAnotherSizeOfTheSpoolIsRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.defaultSecrets()
	c.runningWith(2, "1Gi")
	if _, err := c.renderIn(t, `{}`); err != nil {
		t.Errorf("the same size: %v", err)
	}
	for _, test := range []struct{ values, want string }{
		{`{"dataplane":{"spool":{"size":"2Gi"}}}`, `dataplane.spool.size is "2Gi", but the StatefulSet has "1Gi"`},
		{`{"dataplane":{"spool":{"storageClassName":"fast"}}}`, `dataplane.spool.storageClassName is "fast"`},
	} {
		if _, err := c.renderIn(t, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v; want it to contain %q", test.values, err, test.want)
		}
	}
}

func TestReadmeListsTheSecrets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range renderObjects(t, "defaults").workloads() {
		for _, v := range o.Spec.Template.Spec.Volumes {
			for _, source := range v.Projected.Sources {
				for _, item := range source.Secret.Items {
					if row := "| `" + source.Secret.Name + "` | `" + item.Key + "` |"; !strings.Contains(string(readme), row) {
						t.Errorf("the README lacks the row %s", row)
					}
				}
			}
		}
	}
}

// Helm does not remove the Job of a failed migration at an uninstall.
func TestFinishedMigrationsAreRemoved(t *testing.T) {
	t.Parallel()
	for _, job := range renderObjects(t, "defaults").kind("Job") {
		if job.Spec.TTL == nil {
			t.Errorf("%v has no ttlSecondsAfterFinished", job)
		}
	}
}
