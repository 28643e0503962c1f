package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The released API documents of Kubernetes and of the custom resources of the Prometheus
// operator, the Gateway API and KEDA, from which the schemas are derived.
const (
	kubernetesModule = "k8s.io/kubernetes@v1.36.3"
	kubernetesHash   = "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="
	prometheusModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	prometheusHash   = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
	gatewayModule    = "sigs.k8s.io/gateway-api@v1.4.0"
	gatewayHash      = "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ="
	kedaModule       = "github.com/kedacore/keda/v2@v2.18.0"
	kedaHash         = "h1:ttR223fii/4QJ0YvtrhcWHaEoezByb/t5CeFopjl6EI="
)

// schemaFile returns the file name of a kind's schema, for kubeconform's template
// {{.ResourceKind}}_{{.ResourceAPIVersion}}. It has no group, because no two groups of the
// chart have the same kind.
func schemaFile(kind, version string) string {
	return strings.ToLower(kind) + "_" + version + ".json"
}

// writeSchemas creates a folder of JSON schemas, one for each kind.
func writeSchemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeKubernetesSchemas(t, dir)
	prometheus := filepath.Join(module(t, prometheusModule, prometheusHash), "example/prometheus-operator-crd")
	gateway := filepath.Join(module(t, gatewayModule, gatewayHash), "config/crd/standard")
	keda := filepath.Join(module(t, kedaModule, kedaHash), "config/crd/bases")
	writeResourceSchema(t, dir, "ServiceMonitor", prometheus+"/monitoring.coreos.com_servicemonitors.yaml")
	writeResourceSchema(t, dir, "PrometheusRule", prometheus+"/monitoring.coreos.com_prometheusrules.yaml")
	writeResourceSchema(t, dir, "HTTPRoute", gateway+"/gateway.networking.k8s.io_httproutes.yaml")
	writeResourceSchema(t, dir, "ScaledObject", keda+"/keda.sh_scaledobjects.yaml")
	return dir
}

func writeKubernetesSchemas(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(module(t, kubernetesModule, kubernetesHash), "api/openapi-spec/swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{} // definition by file name
	for name, definition := range document.Definitions {
		gvks, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(gvks) == 1 {
			gvk := gvks[0].(map[string]any)
			kinds[schemaFile(gvk["kind"].(string), gvk["version"].(string))] = name
		}
		forbidUnknownFields(definition)
	}
	document.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = map[string]any{"type": []string{"integer", "string"}}
	document.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = map[string]any{"type": []string{"number", "string"}}
	writeJSON(t, dir, "definitions.json", document)
	for file, name := range kinds {
		writeJSON(t, dir, file, map[string]any{"$ref": "definitions.json#/definitions/" + name})
	}
}

// writeResourceSchema writes the schema of a kind from the file of its custom resource definition.
func writeResourceSchema(t *testing.T, dir, kind, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct {
					Schema map[string]any `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	for _, version := range crd.Spec.Versions {
		forbidUnknownFields(version.Schema.Schema)
		// The schema of a custom resource does not have the members of all objects.
		version.Schema.Schema["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
		writeJSON(t, dir, schemaFile(kind, version.Name), version.Schema.Schema)
	}
}

// forbidUnknownFields makes a schema and all schemas in it refuse unknown fields, as the API
// server does with strict validation.
func forbidUnknownFields(schema map[string]any) {
	if properties, ok := schema["properties"].(map[string]any); ok {
		if _, open := schema["additionalProperties"]; !open {
			schema["additionalProperties"] = false
		}
		for _, property := range properties {
			forbidUnknownFields(property.(map[string]any))
		}
	}
	for _, within := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[within].(map[string]any); ok {
			forbidUnknownFields(inner)
		}
	}
}

func writeJSON(t *testing.T, dir, name string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// kubeconform accepts every rendering, and refuses an object with an unknown field.
func TestObjectsConformToTheKubernetesAPI(t *testing.T) {
	t.Parallel()
	dir := writeSchemas(t)
	conform := func(objects []byte) error {
		cmd := tool(t, "kubeconform", "-strict", "-summary",
			"-schema-location", dir+"/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json", "-")
		cmd.Stdin = bytes.NewReader(objects)
		_, err := output(cmd)
		return err
	}
	for _, values := range valueSets(t) {
		if err := conform(render(t, values)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
	wrong := bytes.ReplaceAll(render(t, "defaults"), []byte("podManagementPolicy:"), []byte("podManagmentPolicy:"))
	if err := conform(wrong); err == nil || !strings.Contains(err.Error(), "podManagmentPolicy") {
		t.Errorf("got %v for an unknown field; want an error", err)
	}
}
