package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func TestChartPassesTheLinter(t *testing.T) {
	t.Parallel()
	for _, values := range valueSets(t) {
		if _, err := output(tool(t, "helm", withValues(values, "lint", chartDir, "--strict")...)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// Every key of values.yaml has a comment in the form that helm-docs reads.
func TestValuesAreDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	keys := 0
	var visit func(node *yaml.Node, prefix string)
	visit = func(node *yaml.Node, prefix string) {
		if node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			keys++
			if !strings.Contains(key.HeadComment, "# -- ") {
				t.Errorf("%s%s has no description", prefix, key.Value)
			}
			visit(node.Content[i+1], prefix+key.Value+".")
		}
	}
	visit(document.Content[0], "")
	if keys < 100 {
		t.Errorf("values.yaml has only %d keys", keys)
	}
}

// The programs read all of these.
func TestNetworksAndTimesAreRendered(t *testing.T) {
	t.Parallel()
	cmd := tool(t, "helm", withValues("-", "template", "release", chartDir)...)
	cmd.Stdin = strings.NewReader(`{"controlplane":{"config":{
		"admin":{"trusted_proxies":"10.0.0.0/8,fd00::/8 ::ffff:10.0.0.0/104","bootstrap_expires_at":"2026-12-31T23:59:59.5+01:00"},
		"webhook":{"allowed_networks":" 0.0.0.0/0 , ::/0 "}}},"dataplane":{"config":{"api":{"trusted_proxies":""}}}}`)
	if _, err := output(cmd); err != nil {
		t.Error(err)
	}
}

// Values that would break a release, or contain a secret, are refused.
func TestInvalidValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		values string
		want   string // part of the error
	}{
		{"unknown value", `{"dataplane":{"replica":3}}`, "at '/dataplane': additional properties 'replica'"},
		{"space in the address", `{"nats":{"url":"tls://a:4222, nats://b:4222"}}`, "at '/nats/url'"},
		{"one NATS server without TLS", `{"nats":{"url":"tls://a:4222,nats://b:4222"}}`, `"nats://b:4222" must begin with tls://`},
		{"password in the address", `{"nats":{"url":"tls://user:password@nats:4222"}}`, "at '/nats/url'"},
		{"token among settings", `{"controlplane":{"config":{"admin":{"bootstrap_token":"0123456789abcdef"}}}}`, "admin.bootstrap_token is a secret"}, // gitleaks:allow (made up)
		{"fleet key among settings", `{"dataplane":{"config":{"secrets":{"previous_fleet_keys":"x"}}}}`, "secrets.previous_fleet_keys is a secret"},
		{"runtime role without an owner", `{"postgres":{"runtimeRole":"gateway"}}`, "belong together"},
		{"pepper among settings", `{"dataplane":{"config":{"secrets":{"pepper":"0123456789abcdef"}}}}`, "secrets.pepper is a secret"},
		{"connection string among settings", `{"controlplane":{"config":{"postgres":{"url":"postgres://db"}}}}`, "postgres.url is a secret"},
		{"dotted setting", `{"controlplane":{"config":{"postgres.url":"postgres://db"}}}`, "'postgres.url' does not match pattern"},
		{"setting of the chart", `{"dataplane":{"config":{"drain_timeout":"1h"}}}`, "dataplane.config.drain_timeout is set by the chart"},
		{"nested setting of the chart", `{"dataplane":{"config":{"spool":{"dir":"/tmp"}}}}`, "dataplane.config.spool.dir is set by the chart"},
		{"section of the chart as a value", `{"dataplane":{"config":{"spool":7}}}`, "dataplane.config.spool is set by the chart"},
		{"unknown setting", `{"dataplane":{"config":{"nosuch":1}}}`, "dataplane.config.nosuch is not a setting of the dataplane"},
		{"unknown nested setting", `{"controlplane":{"config":{"session":{"tll":"30s"}}}}`, "controlplane.config.session.tll is not a setting"},
		{"setting of the other plane", `{"controlplane":{"config":{"lease":{"outage_target":"2s"}}}}`, "controlplane.config.lease is not a setting of the controlplane"},
		{"number as a duration", `{"controlplane":{"config":{"session":{"window":30}}}}`, "controlplane.config.session.window is 30; the setting is a time.Duration"},
		{"text as a number", `{"dataplane":{"config":{"spool":{"max_events":"many"}}}}`, "the setting is a int64"},
		{"text as a switch", `{"dataplane":{"config":{"ops":{"pprof":"yes"}}}}`, "the setting is a bool"},
		{"value as a section", `{"dataplane":{"config":{"lease":7}}}`, "it is a section of settings"},
		{"section as a value", `{"dataplane":{"config":{"lease":{"outage_target":{"x":"2s"}}}}}`, "the setting is a time.Duration"},
		{"one name for all replicas", `{"dataplane":{"config":{"name":"proxy"}}}`, "dataplane.config.name cannot be set"},
		{"setting as a variable", `{"dataplane":{"extraEnv":[{"name":"MGW_SECRETS_PEPPER","value":"0123456789abcdef"}]}}`, "dataplane.extraEnv has MGW_SECRETS_PEPPER: a setting belongs into the config"},
		{"memory limit as a variable", `{"controlplane":{"extraEnv":[{"name":"GOMEMLIMIT","value":"1"}]}}`, "controlplane.extraEnv has GOMEMLIMIT, which the chart sets"},
		{"setting as a variable of the migration", `{"migrate":{"extraEnv":[{"name":"MGW_LOG_LEVEL","value":"debug"}]}}`, "migrate.extraEnv has MGW_LOG_LEVEL"},
		{"no memory limit", `{"dataplane":{"resources":{"limits":null}}}`, "at '/dataplane/resources': missing property 'limits'"},
		{"memory limit that is not a size", `{"dataplane":{"resources":{"limits":{"memory":"1GB"}}}}`, "at '/dataplane/resources/limits/memory'"},
		{"spool that is not a size", `{"dataplane":{"spool":{"size":"big"}}}`, "at '/dataplane/spool/size'"},
		{"no secret", `{"secrets":{"existingSecret":""}}`, "secrets.existingSecret is empty"},
		{"even number of NATS replicas", `{"nats":{"replicas":2}}`, "at '/nats/replicas'"},
		{"no audience", `{"controlplane":{"oidc":{"issuer":"https://id.example.com"}}}`, "controlplane.oidc.audience is empty"},
		{"unknown scope", `{"controlplane":{"oidc":{"scopeMapping":"admins=root"}}}`, "at '/controlplane/oidc/scopeMapping'"},
		{"password in the address of monitoring", `{"nats":{"monitorURL":"http://user:password@nats:8222"}}`, "at '/nats/monitorURL'"},
		{"usage that is not a size", `{"nats":{"usage":{"maxSize":"15GB"}}}`, "at '/nats/usage/maxSize'"},
		{"body budget that is not a size", `{"dataplane":{"api":{"bodyBudget":"big"}}}`, "at '/dataplane/api/bodyBudget'"},
		{"maintenance of nodes that never ends", `{"dataplane":{"podDisruptionBudget":{"maxUnavailable":0}}}`, "at '/dataplane/podDisruptionBudget/maxUnavailable'"},
		{"the same in percent", `{"controlplane":{"podDisruptionBudget":{"maxUnavailable":"0%"}}}`, "at '/controlplane/podDisruptionBudget/maxUnavailable'"},
		{"service account without a name", `{"dataplane":{"serviceAccount":{"create":false}}}`, "dataplane.serviceAccount.name is empty"},
		{"container with the program's name", `{"dataplane":{"extraContainers":[{"name":"dataplane","image":"x"}]}}`, "at '/dataplane/extraContainers/0/name'"},
		{"field of the pod that the chart sets", `{"dataplane":{"extraPodSpec":{"securityContext":{}}}}`, "invalid propertyName 'securityContext'"},
		{"label of a selector", `{"commonLabels":{"app.kubernetes.io/name":"x"}}`, "invalid propertyName 'app.kubernetes.io/name'"},
		{"unknown way to migrate", `{"migrate":{"run":"flux"}}`, "at '/migrate/run'"},
		{"checks without a migration", `{"preflight":{"enabled":true},"migrate":{"enabled":false}}`, "preflight.enabled needs migrate.enabled"},
		{"checks for which nothing waits", `{"preflight":{"enabled":true},"migrate":{"run":"beside"}}`, "preflight.enabled needs migrate.run"},
		{"more replicas at least than at most", `{"dataplane":{"autoscaling":{"enabled":true,"minReplicas":11}}}`, "more than maxReplicas"},
		{"autoscaling by nothing", `{"dataplane":{"autoscaling":{"enabled":true,"targetCPUPercent":0}}}`, "dataplane.autoscaling has no target"},
		{"keda without Prometheus", `{"dataplane":{"autoscaling":{"enabled":true,"kind":"keda","targetRequestsInFlight":9}}}`, "dataplane.autoscaling.prometheusURL is empty"},
		{"Ingress without a host", `{"dataplane":{"ingress":{"enabled":true}}}`, "at '/dataplane/ingress/hosts'"},
		{"route without a Gateway", `{"controlplane":{"console":{"httpRoute":{"enabled":true}}}}`, "at '/controlplane/console/httpRoute/parentRefs'"},
		{"path in the console's address", `{"controlplane":{"console":{"baseURL":"https://a.example.com/console"}}}`, "at '/controlplane/console/baseURL'"},
		{"port of NATS that the policy forbids", `{"nats":{"url":"tls://nats:4333"}}`, "networkPolicy.natsPorts lacks"},
		{"port of the issuer that the policy forbids", `{"controlplane":{"oidc":{"issuer":"https://id.example.com:8443","audience":"a"}}}`, "networkPolicy.controlplanePorts lacks"},
		{"sign-in without a provider", `{"controlplane":{"console":{"oidc":{"clientID":"c"},"baseURL":"https://a.example.com"}}}`, "needs controlplane.oidc.issuer"},
		{"sign-in without an address", `{"networkPolicy":{"controlplanePorts":[443]},"controlplane":{"oidc":{"issuer":"https://id.example.com","audience":"a"},"console":{"oidc":{"clientID":"c"}}}}`, "needs controlplane.console.baseURL"},
		{"audit retention without an archive", `{"controlplane":{"config":{"archive":{"audit_retention_months":3}}}}`, "needs controlplane.archive.existingClaim"},
		{"too little memory for the largest body", `{"dataplane":{"resources":{"limits":{"memory":"64Mi"}}}}`, "of which bodies may take 80 MiB"},
		{"body budget above the memory", `{"dataplane":{"api":{"bodyBudget":"4Gi"}}}`, "of which bodies may take 4096 MiB"},
		{"drain of more than an hour", `{"dataplane":{"drainTimeoutSeconds":5000}}`, "at '/dataplane/drainTimeoutSeconds'"},
		{"sessions that are too short", `{"controlplane":{"config":{"session":{"window":"1ms"}}}}`, "controlplane.config.session.window is 1ms; the least is 1s"},
		{"sessions that are too long", `{"controlplane":{"config":{"session":{"window":"5m0.5s"}}}}`, "controlplane.config.session.window is 5m0.5s; the most is 5m"},
		{"proxies that are no network", `{"controlplane":{"config":{"admin":{"trusted_proxies":"10.0.0.0/8, 10.0.0.1"}}}}`, "which is not networks such as"},
		{"proxies of an address that is none", `{"dataplane":{"config":{"api":{"trusted_proxies":"10.0.0.256/8"}}}}`, "which is not networks such as"},
		{"webhooks to a name", `{"controlplane":{"config":{"webhook":{"allowed_networks":"example.com/8"}}}}`, "which is not networks such as"},
		{"token that ends at no time", `{"controlplane":{"config":{"admin":{"bootstrap_expires_at":"tomorrow"}}}}`, "which is not a time such as"},
		{"issuer without TLS", `{"networkPolicy":{"controlplanePorts":[80]},"controlplane":{"oidc":{"issuer":"http://id.example.com","audience":"a"}}}`, "controlplane.oidc.issuer is http://id.example.com"},
		{"sign-in without a claim", `{"controlplane":{"oidc":{"issuer":"https://login.example.com","audience":"gateway","claim":""}}}`, "/controlplane/oidc/claim': minLength"},
		{"console that is idle for longer than a session", `{"controlplane":{"console":{"sessionIdle":"30m","sessionLength":"20m"}}}`, "sessionIdle is 30m: longer than"},
		{"client secret among settings", `{"controlplane":{"config":{"console":{"oidc":{"client_secret":"x"}}}}}`, "console.oidc.client_secret is a secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cmd := tool(t, "helm", withValues("-", "template", "release", chartDir)...)
			cmd.Stdin = strings.NewReader(test.values)
			out, err := output(cmd)
			if err == nil {
				t.Fatalf("%s was rendered:\n%s", test.values, out)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want it to contain %q", err, test.want)
			}
		})
	}
}

// An image without a registry would be pulled from the node's default registry, where anybody can own its name.
func TestImagesComeFromANamedRegistry(t *testing.T) {
	t.Parallel()
	named := []string{
		"--set", "image.registry=", "--set", "dataplane.image.repository=example.com:5000/dataplane", "--set",
	}
	for _, test := range []struct {
		repository string
		ok         bool
	}{
		{"registry.example.com/controlplane", true},
		{"localhost/controlplane", true},
		{"modelgateway/controlplane", false},
		{"controlplane", false},
		{"modelgateway/control.plane", false},
	} {
		args := withValues("defaults", "template", "release", chartDir)
		args = append(append(args, named...), "controlplane.image.repository="+test.repository)
		_, err := output(tool(t, "helm", args...))
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", test.repository, err)
		}
		if err != nil && !strings.Contains(err.Error(), "image.registry is empty") {
			t.Errorf("%s: %v; want the name of the value", test.repository, err)
		}
	}
}

// With --reuse-values, Helm leaves out what a newer chart has added to its values: the first upgrade that adds one fails.
func TestDocumentedUpgradesTakeNewDefaults(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/docs/operations/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("documents: %v, %v", files, err)
	}
	upgrades := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "helm upgrade ") || strings.Contains(line, "`helm upgrade`") {
				continue
			}
			upgrades++
			if strings.Contains(line, " --reuse-values") {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
	if upgrades < 2 {
		t.Errorf("found %d commands", upgrades)
	}
}
