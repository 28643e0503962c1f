package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sys/unix"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/upstream/credential"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/testkit/cloudsim"
	"modelgateway/shared/wire"
)

// oauthCredential returns a credential whose tokens the simulated clouds give out.
func oauthCredential() catalog.Credential {
	return catalog.NewRenewed("crd", catalogkv.OAuthCredential, catalogkv.EncodeParameters(map[string]string{
		"token_url": "https://" + cloudsim.OAuthHost + "/token", "client_id": cloudsim.ClientID, "client_secret": cloudsim.ClientSecret,
	}))
}

// awsCredential returns a credential of an access key in a role.
func awsCredential() catalog.Credential {
	return catalog.NewRenewed("crd", catalogkv.AWSCredential, catalogkv.EncodeParameters(map[string]string{
		"region": "eu-central-1", "access_key_id": cloudsim.AccessKey, "secret_access_key": cloudsim.SecretKey, "role_arn": cloudsim.Role,
	}))
}

// newSources returns sources at simulated clouds.
func newSources(clouds *cloudsim.Clouds) *credential.Sources {
	return credential.New(clouds, func(string) bool { return true }, slog.New(slog.DiscardHandler))
}

func TestTokenIsSentInPlaceOfTheParameters(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		clouds := &cloudsim.Clouds{}
		for auth, header := range map[string]string{"": "Authorization", "api-key": "Api-Key"} {
			var got http.Header
			c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
			c.Credentials = newSources(clouds)
			call := to("")
			call.Provider.Auth, call.Credential = auth, oauthCredential()
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // empty
			done()
			want := fmt.Sprint("token-", len(clouds.Requests()))
			if auth == "" {
				want = "Bearer " + want
			}
			if got.Get(header) != want {
				t.Errorf("%q: got %v; want %s", auth, got, want)
			}
			if call.Credential.ID != "crd" || call.Credential.Reveal() != want[len(want)-7:] {
				t.Errorf("the call has the credential %v, which is hidden in error texts", call.Credential)
			}
		}
	})
}

// Calls are signed over what is sent, whatever the path, query and body.
func TestCallsToAWSAreSigned(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("large "), 10_000)
	for _, tt := range []struct {
		name, base, path, query string
		body                    *provider.Body
		contentType             string
	}{
		{"JSON", "http://bedrock-runtime.eu-central-1.amazonaws.com", "/model/a.b-v1/invoke", "", provider.NewBody([]byte(`{"a":"ü"}`), nil), "application/json"},
		{"no body", "http://p.example/base", "/v1/models", "", nil, ""},
		{"an escaped path", "http://p.example/a%2Fb", "/model/arn:aws:bedrock:eu:1:x%2Fy%20z-v1:0/invoke", "", provider.NewBody(nil, nil), ""},
		{"a query", "http://p.example", "/v1/x", "b=%C3%BC%26+x&a=1&a=0", provider.NewBody([]byte("x"), nil), "application/json"},
		{"a body in parts", "http://p.example:8443", "/v1/x", "", provider.NewBodyOf([][]byte{[]byte("a"), large, []byte("b")}, nil), "application/json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachTransport(t, func(t *testing.T, to caller) {
				clouds := &cloudsim.Clouds{}
				var verified error
				var key string
				c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					key, verified = clouds.Verify(r, body, "bedrock", "eu-central-1", time.Now())
				})
				defer done()
				c.Credentials = newSources(clouds)
				for range 2 {
					call := to(tt.base)
					call.Path, call.Query, call.Body, call.ContentType, call.Credential = tt.path, tt.query, tt.body, tt.contentType, awsCredential()
					answer, err := c.Do(t.Context(), &call)
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close() // empty
					if verified != nil || key != "ASIAtoken-1" {
						t.Errorf("signed by %q: %v", key, verified)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// A provider that does not accept a token any more gets the call again, with a new one and the whole body.
func TestCallWithAnEndedTokenIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		for name, made := range map[string]func() catalog.Credential{"OAuth": oauthCredential, "AWS": awsCredential} {
			clouds := &cloudsim.Clouds{}
			var calls, accepted atomic.Int64
			c, done := serve(t, Limits{}, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				body, _ := io.ReadAll(r.Body)
				if string(body) != "the body" {
					t.Errorf("%s: got %q", name, body)
				}
				if r.Header.Get("X-Amz-Date") != "" {
					if _, err := clouds.Verify(r, body, "bedrock", "eu-central-1", time.Now()); err != nil {
						cloudsim.RefuseSignature(w, err)
						return
					}
				} else if token := r.Header.Get("Authorization"); !clouds.IsValid(token[len("Bearer "):]) {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				accepted.Add(1)
			})
			c.Credentials = newSources(clouds)
			send := func() int {
				t.Helper()
				call := to("")
				call.Credential, call.Body = made(), provider.NewBody([]byte("the body"), nil)
				answer, err := c.Do(t.Context(), &call)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				return answer.Status
			}
			if status := send(); status != http.StatusOK || calls.Load() != 1 {
				t.Errorf("%s: got %d after %d calls", name, status, calls.Load())
			}
			clouds.Revoke()
			if status := send(); status != http.StatusOK || calls.Load() != 3 || accepted.Load() != 2 {
				t.Errorf("%s: got %d after %d calls; want another one with a new token", name, status, calls.Load())
			}
			clouds.Revoke()
			if status := send(); status == http.StatusOK || calls.Load() != 4 {
				t.Errorf("%s: got %d after %d calls; tokens that are rejected at once are not renewed for each call", name, status, calls.Load())
			}
			done()
		}
	})
}

// Such a call is not made; another route has another credential.
func TestCallWithoutAValidTokenGoesToTheNextRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clouds := &cloudsim.Clouds{}
		clouds.Fail(true)
		c, done := serve(t, Limits{}, func(http.ResponseWriter, *http.Request) { t.Error("the provider was called") })
		defer done()
		c.Credentials = newSources(clouds)
		request := call("")
		request.Credential = oauthCredential()
		_, err := c.Do(t.Context(), &request)
		var failure *provider.Failure
		if !errors.As(err, &failure) || failure.Client.Status != http.StatusBadGateway || !failure.Failover || !failure.Unsent ||
			failure.Refusal != wire.SourceFailed || failure.RouteCooldown != 0 || failure.CredentialCooldown == 0 {
			t.Errorf("got %+v", failure)
		}
	})
}

// processorTime is what the process has used so far. On a machine with other work it says more than the time that has passed.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A call that is signed has about the cost of hashing its body.
func BenchmarkSign(b *testing.B) {
	base, err := url.Parse("https://bedrock-runtime.eu-central-1.amazonaws.com")
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			call := call("")
			call.Path, call.ContentType = "/model/eu.anthropic.claude-v1:0/invoke-with-response-stream", "application/json"
			call.Body = provider.NewBody(bytes.Repeat([]byte("x"), size), nil)
			token := &credential.Token{Region: "eu-central-1", Service: "bedrock", Keys: &aws.Credentials{
				AccessKeyID:     "ASIAEXAMPLE",
				SecretAccessKey: "secret", // gitleaks:allow
				SessionToken:    "session",
				CanExpire:       true,
			}}
			used := processorTime(b)
			for b.Loop() {
				if _, err := sign(b.Context(), base, &call, token, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}
