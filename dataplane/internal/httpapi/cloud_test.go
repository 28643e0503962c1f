package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/platform/testkit/cloudsim"
	"modelgateway/shared/platform/testkit/wiresample"
	"modelgateway/shared/price"
)

// cloud is a provider in a cloud: how the catalog names it, and how it answers.
type cloud struct {
	kind       catalogkv.ProviderKind
	credential catalogkv.CredentialKind
	parameters map[string]string
	addresses  catalogkv.Addresses
	// whole and stream are the targets that the server knows; version is what it wants in the body.
	whole, stream, version string
	// hasStream reports whether the body says that the answer is a stream.
	hasStream bool
}

var clouds = map[string]cloud{
	"Bedrock": {
		kind: catalogkv.Bedrock, credential: catalogkv.AWSCredential,
		parameters: map[string]string{
			"region": "eu-central-1", "access_key_id": cloudsim.AccessKey, "secret_access_key": cloudsim.SecretKey, "role_arn": cloudsim.Role,
		},
		addresses: catalogkv.Addresses{catalogkv.Messages: {Path: "/model/{model}/invoke", StreamPath: "/model/{model}/invoke-with-response-stream"}},
		whole:     "/model/eu.claude-v1:0/invoke", stream: "/model/eu.claude-v1:0/invoke-with-response-stream",
		version: "bedrock-2023-05-31",
	},
	"Vertex": {
		kind: catalogkv.Vertex, credential: catalogkv.OAuthCredential,
		parameters: map[string]string{"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
		addresses:  catalogkv.Addresses{catalogkv.Messages: {Path: "/v1/publishers/anthropic/models/{model}:rawPredict", StreamPath: "/v1/publishers/anthropic/models/{model}:streamRawPredict"}},
		whole:      "/v1/publishers/anthropic/models/eu.claude-v1:0:rawPredict", stream: "/v1/publishers/anthropic/models/eu.claude-v1:0:streamRawPredict",
		version: "vertex-2023-10-16", hasStream: true,
	},
	"a server behind Entra": {
		credential: catalogkv.AzureCredential,
		parameters: map[string]string{"tenant_id": cloudsim.Tenant, "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret},
		whole:      "/v1/messages", stream: "/v1/messages", hasStream: true,
	},
}

// serve answers calls as the cloud does: a sample of an answer, or the frames or events of a stream.
func (c *cloud) serve(t *testing.T, identities *cloudsim.Clouds, whole string, stream []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if c.credential == catalogkv.AWSCredential {
			if _, err := identities.Verify(r, body, "bedrock", "eu-central-1", time.Now()); err != nil {
				cloudsim.RefuseSignature(w, err)
				return
			}
		} else if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !identities.IsValid(token) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}

		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		streams := r.URL.RequestURI() == c.stream && (c.stream != c.whole || got["stream"] == true)
		version, _ := got["anthropic_version"].(string)
		_, hasModel := got["model"]
		_, saysStream := got["stream"]
		if !streams && r.URL.RequestURI() != c.whole || version != c.version || hasModel != (c.kind == "") || saysStream != (streams && c.hasStream) {
			t.Errorf("got %s with %s", r.URL.RequestURI(), body)
		}

		switch {
		case !streams:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, whole)
		case c.kind == catalogkv.Bedrock:
			if r.Header.Get("Accept") != "application/vnd.amazon.eventstream" || r.Header.Get("Anthropic-Version") != "" {
				t.Errorf("got %v", r.Header)
			}
			w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
			_, _ = w.Write(stream)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(stream)
		}
	}
}

// newCloud starts a gateway with one provider in a cloud.
func newCloud(t *testing.T, c *cloud, identities *cloudsim.Clouds, answer http.HandlerFunc) *gateway {
	t.Helper()
	return newCloudOf(t, c, identities, catalogkv.Messages, "eu.claude-v1:0", answer)
}

// newCloudOf is newCloud for a format and a model of the cloud.
func newCloudOf(t *testing.T, c *cloud, identities *cloudsim.Clouds, f catalogkv.Format, model string, answer http.HandlerFunc) *gateway {
	t.Helper()
	sources := credential.New(identities, func(string) bool { return true }, slog.New(slog.DiscardHandler))
	g := newGatewayWith(t, options{noCatalog: true, sources: sources}, answer)
	g.publishCatalog(options{
		provider: func(_ int, p *catalogkv.Provider) {
			p.Kind, p.Addresses = c.kind, c.addresses
			sealed := g.credential(p.Credentials[0].ID, catalogkv.EncodeParameters(c.parameters))
			sealed.Kind = c.credential
			p.Credentials = []catalogkv.Credential{sealed}
		},
		model: func(m *catalogkv.Model) {
			if m.Routes[0].UpstreamModel = model; m.Type == catalogkv.Text {
				m.Routes[0].Formats = []catalogkv.Format{f}
			}
		},
	})
	return g
}

const (
	cloudBody       = `{"model":"text","max_tokens":500,"messages":[{"role":"user","content":"hi"}]}`
	cloudStreamBody = `{"model":"text","max_tokens":500,"messages":[{"role":"user","content":"hi"}],"stream":true}`
)

func TestCloudsAreServedWithExactUsage(t *testing.T) {
	t.Parallel()
	expected := wiresample.ExpectedUsage(t)
	for name, c := range clouds {
		for _, sample := range []string{"stream", "stream-tool-use", "stream-input-grows", "response", "response-tool-use"} {
			t.Run(name+" "+sample, func(t *testing.T) {
				t.Parallel()
				identities := &cloudsim.Clouds{}
				body, file := cloudBody, "messages/"+sample+".json"
				var whole string
				var stream []byte
				if strings.HasPrefix(sample, "stream") {
					body, file = cloudStreamBody, "messages/"+sample+".sse"
					stream = wiresample.Read(t, file)
					if c.kind == catalogkv.Bedrock {
						stream = cloudsim.Encode(cloudsim.Frames(stream)...)
					}
				} else {
					whole = string(wiresample.Read(t, file))
				}
				g := newCloud(t, &c, identities, c.serve(t, identities, whole, stream))
				got := g.post("/v1/messages", body)
				if got.status != http.StatusOK || strings.Contains(got.body, "amazon") {
					t.Fatalf("got %d %s", got.status, got.body)
				}
				if stream != nil && !strings.HasSuffix(got.body, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
					t.Errorf("got %s", got.body)
				}
				var want price.Usage
				if err := json.Unmarshal(expected[file].Usage, &want); err != nil {
					t.Fatal(err)
				}
				if u := g.spool.next(t); u.Rule != event.RuleReported || u.Status != event.Completed {
					t.Errorf("charged by %s, %s", u.Rule, u.Status)
				} else if diff := cmp.Diff(want, u.Usage); diff != "" {
					t.Errorf("usage (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What clients see of a stream of Bedrock is what they see of the same stream from the models' maker.
func TestStreamOfBedrockIsThatOfTheMaker(t *testing.T) {
	t.Parallel()
	stream := wiresample.Read(t, "messages/stream-tool-use.sse")
	maker := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(withoutPings(stream))
	}).post("/v1/messages", cloudStreamBody)
	c, identities := clouds["Bedrock"], &cloudsim.Clouds{}
	bedrock := newCloud(t, &c, identities, c.serve(t, identities, "", cloudsim.Encode(cloudsim.Frames(stream)...))).post("/v1/messages", cloudStreamBody)
	if maker.status != http.StatusOK || maker.body != bedrock.body {
		t.Errorf("of the maker %d\n%s\nof Bedrock %d\n%s", maker.status, maker.body, bedrock.status, bedrock.body)
	}
}

func withoutPings(stream []byte) []byte {
	var kept [][]byte
	for block := range bytes.SplitSeq(stream, []byte("\n\n")) {
		if !bytes.Contains(block, []byte("event: ping")) {
			kept = append(kept, block)
		}
	}
	return bytes.Join(kept, []byte("\n\n"))
}

// Before the first event the client gets the error itself, and afterwards as an event.
func TestExceptionsInAStreamAreTheErrorsThatTheyAre(t *testing.T) {
	t.Parallel()
	events := cloudsim.Frames(wiresample.Read(t, "messages/stream.sse"))
	for kind, want := range map[string]struct {
		status int
		code   apierr.Code
		event  string
	}{
		"throttlingException":       {http.StatusTooManyRequests, apierr.RateLimitExceeded, "rate_limit_error"},
		"modelStreamErrorException": {http.StatusBadGateway, apierr.UpstreamUnavailable, "api_error"},
		"internalServerException":   {http.StatusBadGateway, apierr.UpstreamUnavailable, "api_error"},
		"validationException":       {http.StatusBadRequest, apierr.InvalidRequest, "invalid_request_error"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c, identities := clouds["Bedrock"], &cloudsim.Clouds{}
			exception := cloudsim.Exception(kind, "The stream cannot go on.")
			first := newCloud(t, &c, identities, c.serve(t, identities, "", cloudsim.Encode(exception)))
			if got := first.post("/v1/messages", cloudStreamBody); got.status != want.status {
				t.Errorf("at the beginning: got %d %s; want %d", got.status, got.body, want.status)
			}
			seen, begins := make(chan struct{}), c.serve(t, identities, "", cloudsim.Encode(events[:4]...))
			later := newCloud(t, &c, identities, func(w http.ResponseWriter, r *http.Request) {
				begins(w, r)
				w.(http.Flusher).Flush()
				<-seen
				_, _ = w.Write(cloudsim.Encode(exception))
			})
			response := later.begin(t.Context(), http.MethodPost, "/v1/messages", strings.NewReader(cloudStreamBody))
			defer response.Body.Close()
			head := make([]byte, 10)
			if _, err := io.ReadFull(response.Body, head); err != nil {
				t.Error(err)
			}
			close(seen)
			got, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(got), "event: error\n") ||
				!strings.Contains(string(got), `"type":"`+want.event+`"`) {
				t.Errorf("later: got %d %s, %v; want %s", response.StatusCode, got, err, want.event)
			}
			if u := later.spool.next(t); u.Status != event.Failed || u.Rule == event.RuleNone {
				t.Errorf("charged by %s, %s", u.Rule, u.Status)
			}
		})
	}
}

func TestTokenThatEndsEarlyCostsTheClientNothing(t *testing.T) {
	t.Parallel()
	for name, c := range clouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identities := &cloudsim.Clouds{}
			g := newCloud(t, &c, identities, c.serve(t, identities, string(wiresample.Read(t, "messages/response.json")), nil))
			for range 2 {
				if got := g.post("/v1/messages", cloudBody); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
				identities.Revoke()
			}
			if refused := g.picker.RefusedCredentials(func(string) bool { return true }); len(refused) != 0 {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

func TestClientGets502WhileNoTokenCanBeHad(t *testing.T) {
	t.Parallel()
	for name, c := range clouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			identities := &cloudsim.Clouds{}
			identities.Fail(true)
			g := newCloud(t, &c, identities, func(http.ResponseWriter, *http.Request) { t.Error("the provider was called") })
			got := g.post("/v1/messages", cloudBody)
			if got.status != http.StatusBadGateway || strings.Contains(got.body, "token") || strings.Contains(got.body, "credential") {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if u := g.spool.next(t); u.Rule != event.RuleNone {
				t.Errorf("charged by %s", u.Rule)
			}
		})
	}
}
