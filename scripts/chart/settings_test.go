package chart

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// planes lists the components with settings. The migration runs the control plane's program.
var planes = []string{"controlplane", "dataplane"}

// settingTypes returns the types of a plane's settings, as written in the source of its
// config package, by their dotted keys. The package is internal and cannot be imported.
func settingTypes(t *testing.T, plane string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, plane, "internal/config/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*ast.StructType{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	types := map[string]string{}
	collectSettings(structs, "Config", "", types)
	if len(types) < 10 {
		t.Fatalf("%s has the settings %v; want them all", plane, types)
	}
	return types
}

func collectSettings(structs map[string]*ast.StructType, name, prefix string, types map[string]string) {
	for _, field := range structs[name].Fields.List {
		if field.Tag == nil {
			continue
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		key := prefix + reflect.StructTag(tag).Get("mapstructure")
		if err != nil || key == prefix {
			continue
		}
		if id, ok := field.Type.(*ast.Ident); ok && structs[id.Name] != nil {
			collectSettings(structs, id.Name, key+".", types)
			continue
		}
		types[key] = typeText(field.Type)
		if types[key] == "settings.Secret" {
			types[key+"_file"] = "string"
		}
	}
}

func typeText(expr ast.Expr) string {
	if s, ok := expr.(*ast.SelectorExpr); ok {
		return typeText(s.X) + "." + s.Sel.Name
	}
	if id, ok := expr.(*ast.Ident); ok {
		return id.Name
	}
	return fmt.Sprintf("%T", expr)
}

// settings returns the settings in a plane's configuration file by their dotted keys.
func settings(t *testing.T, all objects, plane string) map[string]any {
	t.Helper()
	for _, o := range all.kind("ConfigMap") {
		if o.component() != plane {
			continue
		}
		var file map[string]any
		if err := yaml.Unmarshal([]byte(o.Data["config.yaml"]), &file); err != nil {
			t.Fatal(err)
		}
		flat := map[string]any{}
		flatten(file, "", flat)
		return flat
	}
	t.Fatalf("no configuration of %s", plane)
	return nil
}

func flatten(file map[string]any, prefix string, into map[string]any) {
	for key, value := range file {
		if nested, ok := value.(map[string]any); ok {
			flatten(nested, prefix+key+".", into)
		} else {
			into[prefix+key] = value
		}
	}
}

// fits reports whether a value can be decoded as a setting of a type.
func fits(value any, typ string) bool {
	text, isText := value.(string)
	switch typ {
	case "time.Duration":
		_, err := time.ParseDuration(text)
		return isText && err == nil
	case "slog.Level":
		var level slog.Level
		return level.UnmarshalText([]byte(text)) == nil
	case "int", "int64":
		_, ok := value.(int)
		return ok
	case "float64":
		_, whole := value.(int)
		_, broken := value.(float64)
		return whole || broken
	case "bool":
		_, ok := value.(bool)
		return ok
	case "string":
		return isText
	}
	return false // including settings.Secret, because the chart sets its _file setting instead
}

// The chart sets only settings that the programs know, because they refuse others.
func TestProgramsKnowTheirSettings(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, plane := range planes {
			types := settingTypes(t, plane)
			for key, value := range settings(t, all, plane) {
				if typ, known := types[key]; !known || !fits(value, typ) {
					t.Errorf("%s: %s is %v; the program wants %q", plane, key, value, typ)
				}
			}
		}
	})
}

// Sizes are set in bytes. A size that is empty is left to the program.
func TestLimitsOfUsageAndBodiesAreSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value, plane, key string
		want              any
	}{
		{"nats.usage.maxSize=15Gi", "controlplane", "nats.usage_max_bytes", 15 << 30},
		{"nats.usage.maxSize=", "controlplane", "nats.usage_max_bytes", nil},
		{"nats.usage.keptHours=336", "controlplane", "nats.usage_kept", "336h"},
		{"dataplane.api.bodyBudget=400Mi", "dataplane", "api.body_budget", 400 << 20},
		{"dataplane.api.bodyBudget=", "dataplane", "api.body_budget", nil},
	} {
		all := renderObjects(t, "defaults", "--set", test.value)
		if got := settings(t, all, test.plane)[test.key]; got != test.want {
			t.Errorf("--set %s: %s is %v; want %v", test.value, test.key, got, test.want)
		}
	}
}

// Environment variables are settings that are not secrets, or variables of the Go runtime.
func TestVariablesAreSettings(t *testing.T) {
	t.Parallel()
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all.workloads() {
			plane := o.plane()
			// the last three are extraEnv of ci/full-values.yaml
			known := []string{"GOGC", "GOMEMLIMIT", "TZ", "OTEL_EXPORTER_OTLP_HEADERS", "SSL_CERT_DIR"}
			if plane == "controlplane" {
				known = append(known, "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY")
			}
			for key, typ := range settingTypes(t, plane) {
				if typ != "settings.Secret" {
					known = append(known, "MGW_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_")))
				}
			}
			for _, e := range o.container(t).Env {
				if !slices.Contains(known, e.Name) {
					t.Errorf("%v sets %s, which %s does not know", o, e.Name, plane)
				}
			}
		}
	})
}

// By default every secret of a program has a file, each file in the settings is mounted, and
// no pod mounts a file that its program does not read.
func TestPodsMountExactlyTheirSecrets(t *testing.T) {
	t.Parallel()
	defaults := renderObjects(t, "defaults")
	for _, plane := range planes {
		set := settings(t, defaults, plane)
		for key, typ := range settingTypes(t, plane) {
			// Previous keys are only set during a rotation, the client's secret with a client.
			optional := strings.Contains(key, ".previous_") || key == "console.oidc.client_secret"
			if typ == "settings.Secret" && set[key+"_file"] == nil && !optional {
				t.Errorf("%s: %s_file is not set", plane, key)
			}
		}
	}
	eachValueSet(t, func(t *testing.T, all objects) {
		if found := all.kind("Secret"); len(found) > 0 {
			t.Errorf("the chart creates %v; want existing Secrets only", found)
		}
		for _, o := range all.workloads() {
			want := map[string]bool{}
			for _, name := range []string{"MGW_POSTGRES_URL_FILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"} {
				if file := o.container(t).env(name); file != "" {
					want[file] = true
				}
			}
			if o.component() != "migrate" {
				for key, value := range settings(t, all, o.plane()) {
					if strings.HasSuffix(key, "_file") {
						want[value.(string)] = true
					}
				}
			}
			for _, file := range secretFiles(t, o) {
				if !want[file] {
					t.Errorf("%v mounts %s, which its program does not read", o, file)
				}
				delete(want, file)
			}
			for file := range want {
				t.Errorf("%v does not mount %s", o, file)
			}
		}
	})
}

// Every program that connects to Postgres uses the certificate authority in the values.
func TestPostgresConnectionsAreVerified(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mode, authority string
		args                  []string
	}{
		{"no values", "verify-full", "", nil},
		{"an authority", "verify-full", "/etc/modelgateway/secrets/postgres-ca.crt", []string{"--set", "postgres.caSecret.name=ca"}},
		{"weaker verification", "require", "/etc/modelgateway/secrets/postgres-ca.crt", []string{"--set", "postgres.caSecret.name=ca,postgres.sslMode=require"}},
	} {
		for _, o := range renderObjects(t, "defaults", test.args...).workloads() {
			want := [2]string{test.mode, test.authority}
			if o.component() == "dataplane" {
				want = [2]string{}
			}
			if got := [2]string{o.container(t).env("PGSSLMODE"), o.container(t).env("PGSSLROOTCERT")}; got != want {
				t.Errorf("%s: %v has %q; want %q", test.name, o, got, want)
			}
		}
	}
}

// secretFiles returns the paths of the secrets that a workload's pods mount.
func secretFiles(t *testing.T, o object) []string {
	t.Helper()
	var files []string
	for _, v := range o.Spec.Template.Spec.Volumes {
		for _, source := range v.Projected.Sources {
			for _, item := range source.Secret.Items {
				files = append(files, path.Join(o.container(t).mount(t, v.Name), item.Path))
			}
		}
	}
	return files
}
