package chart

import (
	"os"
	"strings"
	"testing"

	"modelgateway/shared/natsuser"
)

// The users of NATS in the chart are those that the planes need.
func TestNATSUsersAreThoseOfThePlanes(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"files/nats-permissions.conf": natsuser.ServerConfig(natsuser.Users()),
		"examples/nats-values.yaml":   natsuser.ChartValues(natsuser.Users()),
	} {
		got, err := os.ReadFile(chartDir + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s differs from gwctl nats-permissions; write its output there", file)
		}
	}
}

// The policies are on by default, one for each component.
func TestNetworkPoliciesAreOnByDefault(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, o := range renderObjects(t, "defaults").kind("NetworkPolicy") {
		found[o.component()] = true
	}
	for _, component := range []string{"controlplane", "dataplane", "migrate"} {
		if !found[component] {
			t.Errorf("%s has no policy", component)
		}
	}
}

// The entrance of the public API waits for long answers, does not buffer and takes large bodies.
func TestEntrancesSuitStreamsAndLargeBodies(t *testing.T) {
	t.Parallel()
	all := renderObjects(t, "defaults", "--set", "dataplane.ingress.enabled=true,dataplane.ingress.controller=nginx,dataplane.ingress.hosts={api.example.com}",
		"--set", "dataplane.tls.secretName=api", "--set-string", `dataplane.ingress.annotations.nginx\.ingress\.kubernetes\.io/proxy-body-size=80m`)
	got := all.one(t, "Ingress", "release-modelgateway-dataplane").Metadata.Annotations
	for key, want := range map[string]string{
		"proxy-read-timeout": "660", "proxy-send-timeout": "660", "proxy-buffering": "off", "proxy-request-buffering": "off",
		"backend-protocol": "HTTPS", "proxy-body-size": "80m", // the value's own annotation wins
	} {
		if got["nginx.ingress.kubernetes.io/"+key] != want {
			t.Errorf("%s is %q; want %q", key, got["nginx.ingress.kubernetes.io/"+key], want)
		}
	}
	route := string(render(t, "defaults", "--set", "dataplane.httpRoute.enabled=true,dataplane.httpRoute.parentRefs[0].name=entrance"))
	if want := "timeouts: {request: 660s, backendRequest: 660s}"; !strings.Contains(route, want) {
		t.Errorf("the HTTPRoute lacks %s", want)
	}
}

// The entrances of the console do not lead to the admin API.
func TestEntrancesOfTheConsoleOpenItsPathAlone(t *testing.T) {
	t.Parallel()
	text := string(render(t, "defaults", "--set", "controlplane.console.ingress.enabled=true,controlplane.console.ingress.hosts={admin.example.com}",
		"--set", "controlplane.console.httpRoute.enabled=true,controlplane.console.httpRoute.parentRefs[0].name=entrance"))
	for _, want := range []string{"- path: /console\n", "- path: {type: PathPrefix, value: /console}\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once in:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "path: /\n") + strings.Count(text, "value: /}"); n > 0 {
		t.Errorf("%d entrances open every path", n)
	}
}

// Each target becomes a metric of the autoscaler, and one of 0 does not.
func TestAutoscalersHaveTheTargets(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hpa", "keda"} {
		for target, metric := range map[string]string{
			"targetCPUPercent": "cpu", "targetRequestsInFlight": "mgw_requests_in_flight", "targetSpoolPercent": "spool_used_",
		} {
			args := []string{"--set", "dataplane.autoscaling.enabled=true,dataplane.autoscaling.targetCPUPercent=0,dataplane.autoscaling.prometheusURL=http://p:9090"}
			args = append(args, "--set", "dataplane.autoscaling.kind="+kind+",dataplane.autoscaling."+target+"=37")
			template := map[string]string{"hpa": "horizontalpodautoscaler", "keda": "scaledobject"}[kind]
			text := string(render(t, "defaults", append(args, "--show-only", "templates/"+template+".yaml")...))
			for _, other := range []string{"cpu", "mgw_requests_in_flight", "spool_used_"} {
				if has := strings.Contains(text, other); has != (other == metric) {
					t.Errorf("%s with %s: %s is there: %v:\n%s", kind, target, other, has, text)
				}
			}
			if !strings.Contains(text, "37") {
				t.Errorf("%s lacks the target 37 of %s:\n%s", kind, target, text)
			}
		}
	}
}

// Both planes export traces to the collector, whose port the policies open.
func TestTracesReachTheCollector(t *testing.T) {
	t.Parallel()
	for endpoint, port := range map[string]string{"http://collector:4318": "4318", "https://otlp.example.com/v1/traces": "443", "http://collector": "80"} {
		all := renderObjects(t, "defaults", "--set-json", `tracing={"endpoint":"`+endpoint+`","sampleRatio":0.5,"trustClients":true}`)
		set := settings(t, all, "dataplane")
		if set["tracing.endpoint"] != endpoint || set["tracing.sample_ratio"] != 0.5 || set["tracing.trust_clients"] != true {
			t.Errorf("%s: the settings are %v", endpoint, set)
		}
		if got := settings(t, all, "controlplane")["tracing.endpoint"]; got != endpoint {
			t.Errorf("the control plane exports to %v; want %s", got, endpoint)
		}
		for _, plane := range planes {
			found := false
			for _, rule := range all.one(t, "NetworkPolicy", "release-modelgateway-"+plane).Spec.Egress {
				for _, p := range rule.Ports {
					found = found || p.Port == port
				}
			}
			if !found {
				t.Errorf("%s: the policy of the %s does not open the port %s", endpoint, plane, port)
			}
		}
	}
	if endpoint, set := settings(t, renderObjects(t, "defaults"), "dataplane")["tracing.endpoint"]; set {
		t.Errorf("traces go to %v by default", endpoint)
	}
}

// Services of both planes have the address families of the values, the headless ones too.
func TestServicesHaveTheFamiliesOfAddresses(t *testing.T) {
	t.Parallel()
	for _, plane := range planes {
		text := string(render(t, "defaults", "--set", plane+".service.ipFamilyPolicy=RequireDualStack,"+plane+".service.ipFamilies={IPv6,IPv4}"))
		if n := strings.Count(text, "ipFamilyPolicy: RequireDualStack\n  ipFamilies:\n    - IPv6\n    - IPv4\n"); n != 2 {
			t.Errorf("%d Services of the %s have the families; want 2:\n%s", n, plane, text)
		}
	}
}

// The console's sign-in reads its client's secret from a file.
func TestConsoleSettingsFollowTheValues(t *testing.T) {
	t.Parallel()
	got := settings(t, renderObjects(t, chartDir+"/ci/full-values.yaml"), "controlplane")
	for key, want := range map[string]any{
		"console.enabled": true, "console.base_url": "https://admin.example.com", "console.api_url": "https://api.example.com", "console.environment": "production",
		"console.oidc.client_id": "gateway-console", "console.oidc.scopes": "profile groups",
		"console.oidc.client_secret_file": "/etc/modelgateway/secrets/console-client-secret",
	} {
		if got[key] != want {
			t.Errorf("%s is %v; want %v", key, got[key], want)
		}
	}
}

// The control plane reaches what its settings name: its own policy must not cut off the monitoring ports of NATS, from which
// gwctl doctor reads whether the servers sync.
func TestPolicyOpensTheMonitoringPortsOfNATS(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{"http://nats-0.nats:8222\\,https://nats-1.nats:8333": true, "": false} {
		text := string(render(t, "defaults", "--set", "nats.monitorURL="+url, "--show-only", "templates/networkpolicy.yaml"))
		policy, _, _ := strings.Cut(text, "\n---\n# Source") // of the control plane, which is the first
		_, egress, _ := strings.Cut(policy, "egress:")
		for _, port := range []string{"8222", "8333"} {
			if strings.Contains(egress, "{port: "+port+", protocol: TCP}") != want {
				t.Errorf("with %q the port %s is open: %v:\n%s", url, port, !want, egress)
			}
		}
	}
}
