package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/testkit/cloudsim"
	"modelgateway/shared/platform/testkit/wiresample"
	"modelgateway/shared/price"
)

// exampleClouds are the providers of scripts/catalog/clouds.yaml with their identities. Those with OAuth 2.0 are reached from end to
// end, with their own token servers.
func exampleClouds(account *cloudsim.ServiceAccount) map[string]cloud {
	oauth := cloud{credential: catalogkv.OAuthCredential}
	return map[string]cloud{
		"bedrock": {
			kind: catalogkv.Bedrock, credential: catalogkv.AWSCredential, version: "bedrock-2023-05-31",
			parameters: map[string]string{"region": "eu-central-1", "access_key_id": cloudsim.AccessKey, "secret_access_key": cloudsim.SecretKey},
		},
		"vertex": {
			kind: catalogkv.Vertex, credential: catalogkv.GoogleCredential, version: "vertex-2023-10-16", hasStream: true,
			parameters: map[string]string{"key": account.File},
		},
		"azure-entra": {
			credential: catalogkv.AzureCredential, hasStream: true,
			parameters: map[string]string{"tenant_id": cloudsim.Tenant, "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
		},
		"databricks-oauth": oauth, "watsonx": oauth,
	}
}

// exampleModels are the upstream models of the examples.
var exampleModels = map[string]string{
	"bedrock": "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex": "claude-sonnet-4-5@20250929", "azure-entra": "my-deployment",
}

// documentedAddresses are the paths that the clouds document, by provider and by format, or format with "-stream". A test of the control
// plane compares them with the example catalog.
func documentedAddresses(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../scripts/catalog/testdata/clouds.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		address, err := url.Parse(words[2])
		if err != nil {
			t.Fatal(err)
		}
		if all[words[0]] == nil {
			all[words[0]] = map[string]string{}
		}
		all[words[0]][words[1]] = address.EscapedPath()
	}
	return all
}

// Each example of a cloud is called at the address that the cloud documents, with the token or signature of its identity, and its answers
// have exact usage.
func TestExamplesOfCloudsAreServed(t *testing.T) {
	t.Parallel()
	expected, account := wiresample.ExpectedUsage(t), cloudsim.NewServiceAccount()
	all := exampleClouds(account)
	for provider, addresses := range documentedAddresses(t) {
		c, known := all[provider]
		if !known {
			t.Errorf("the example %s is called by no test", provider)
		}
		if c.credential == catalogkv.OAuthCredential {
			continue
		}
		for f, whole := range addresses {
			if strings.HasSuffix(f, "-stream") {
				continue
			}
			c, f := c, catalogkv.Format(f)
			model := exampleModels[provider]
			c.whole, c.stream = whole, whole
			if stream, other := addresses[string(f)+"-stream"]; other {
				c.stream = stream
			}
			c.addresses = catalogkv.Addresses{f: {
				Path: strings.ReplaceAll(c.whole, model, "{model}"), StreamPath: strings.ReplaceAll(c.stream, model, "{model}"),
			}}
			for _, stream := range []bool{false, true} {
				name := map[bool]string{false: "response.json", true: "stream.sse"}[stream]
				t.Run(provider+" "+string(f)+" "+name, func(t *testing.T) {
					t.Parallel()
					identities := &cloudsim.Clouds{Account: account}
					file := string(f) + "/" + name
					sample := wiresample.Read(t, file)
					sent := sample
					if stream && c.kind == catalogkv.Bedrock {
						sent = cloudsim.Encode(cloudsim.Frames(sample)...)
					}
					g := newCloudOf(t, &c, identities, f, model, c.serve(t, identities, string(sample), sent))
					body := strings.Replace(askedBody(string(f), stream), `,"stream":false`, "", 1)
					got := g.post(askedRequests[string(f)][0], body)
					if got.status != http.StatusOK {
						t.Fatalf("got %d %s", got.status, got.body)
					}
					var want price.Usage
					if err := json.Unmarshal(expected[file].Usage, &want); err != nil {
						t.Fatal(err)
					}
					if e := g.spool.next(t); e.Rule != event.RuleReported || e.Status != event.Completed {
						t.Errorf("charged by %s, %s", e.Rule, e.Status)
					} else if diff := cmp.Diff(want, e.Usage); diff != "" {
						t.Errorf("usage (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}
