package upstream

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
)

// applied returns a call to a provider as a proxy makes it of the catalog, with the first credential.
func applied(t *testing.T, p catalogkv.Provider, text string, further catalogkv.Secrets) provider.Call {
	t.Helper()
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	p.ID, p.Enabled = "p", true
	p.Credentials = []catalogkv.Credential{{ID: "crd", Sealed: fleet.Seal([]byte(text), catalogkv.CredentialContext("crd"))}}
	if !further.IsZero() {
		p.Credentials[0].SealedSecrets = fleet.Seal(encode(further), catalogkv.SecretsContext("crd"))
	}
	store := catalog.New(fleet)
	store.Set(subject.KindProvider, "p", encode(p))
	store.Set(subject.CatalogHead, "", encode(catalogkv.Head{V: 1, Rev: 1}))
	if err := store.Apply(); err != nil {
		t.Fatal(err)
	}
	opened := store.Snapshot().Provider("p")
	c := provider.Call{Format: catalogkv.Chat, Path: "/v1/chat/completions"}
	c.Choice.Route, c.Credential = catalog.NewRoute(catalogkv.Route{UpstreamModel: "m"}, opened), opened.Credentials[0]
	return c
}

// both runs a test with each transport over real connections.
func both(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"own": false, "library": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, http2)
		})
	}
}

func TestSecretsOfACredentialAreSentInTheirHeaders(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		var got atomic.Pointer[http.Header]
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) }))
		defer server.Close()
		for _, tt := range []struct {
			name, auth, text string
			headers          map[string]string
			want             http.Header
		}{
			{"any header", "Ocp-Apim-Subscription-Key", "one", nil, http.Header{"Ocp-Apim-Subscription-Key": {"one"}, "Authorization": nil}},
			{
				"several", "", "one",
				map[string]string{"cf-aig-authorization": "Bearer two", "x-third": "three"},
				http.Header{"Authorization": {"Bearer one"}, "Cf-Aig-Authorization": {"Bearer two"}, "X-Third": {"three"}},
			},
			{"further ones only", "", "", map[string]string{"x-key": "two"}, http.Header{"X-Key": {"two"}, "Authorization": nil}},
		} {
			call := applied(t, catalogkv.Provider{BaseURL: server.URL, Auth: tt.auth, HTTP2: http2}, tt.text, catalogkv.Secrets{Headers: tt.headers})
			c := New(Limits{})
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // empty
			c.Close()
			for name, values := range tt.want {
				if sent := (*got.Load())[name]; len(sent) != len(values) || len(sent) > 0 && sent[0] != values[0] {
					t.Errorf("%s: %s is %q; want %q", tt.name, name, sent, values)
				}
			}
		}
	})
}

// authority is an issuer of certificates.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	text        string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue returns a certificate with its key, in the form PEM.
func (a *authority) issue(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

// secureServer starts a server with a certificate of one issuer that wants one of another, and answers with the name in it.
func secureServer(t *testing.T, own, wanted *authority) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	certificate, key := own.issue(t, "server")
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(wanted.certificate)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = nil
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestClientCertificateAndIssuersOfAProvider(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		servers, clients := newAuthority(t), newAuthority(t)
		server := secureServer(t, servers, clients)
		c := New(Limits{})
		defer c.Close()
		certificate, key := clients.issue(t, "first")
		other, otherKey := clients.issue(t, "second")
		foreign, foreignKey := servers.issue(t, "foreign")
		for _, tt := range []struct {
			name, ca string
			further  catalogkv.Secrets
			want     string // empty: the call fails
		}{
			{"both", servers.text, catalogkv.Secrets{Certificate: certificate, PrivateKey: key}, "first"},
			{"another credential of the provider", servers.text, catalogkv.Secrets{Certificate: other, PrivateKey: otherKey}, "second"},
			{"no certificate", servers.text, catalogkv.Secrets{}, ""},
			{"a certificate that the provider does not take", servers.text, catalogkv.Secrets{Certificate: foreign, PrivateKey: foreignKey}, ""},
			{"issuers of the machine", "", catalogkv.Secrets{Certificate: certificate, PrivateKey: key}, ""},
			{"another issuer", clients.text, catalogkv.Secrets{Certificate: certificate, PrivateKey: key}, ""},
			{"both again", servers.text, catalogkv.Secrets{Certificate: certificate, PrivateKey: key}, "first"},
		} {
			call := applied(t, catalogkv.Provider{BaseURL: server.URL, CA: tt.ca, HTTP2: http2}, "secret", tt.further)
			answer, err := c.Do(t.Context(), &call)
			if tt.want == "" {
				if err == nil {
					_ = answer.Body.Close()
					t.Errorf("%s: the call succeeded", tt.name)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			name, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if string(name) != tt.want || err != nil {
				t.Errorf("%s: the provider saw %q, %v; want %q", tt.name, name, err, tt.want)
			}
		}
	})
}

// forwardProxy is a forward proxy that connects to every address, and counts.
func forwardProxy(t *testing.T) (address *url.URL, served *atomic.Int64) {
	t.Helper()
	served = &atomic.Int64{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = near.Close() }()
				in := bufio.NewReader(near)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				served.Add(1)
				far, err := net.Dial("tcp", r.URL.Host)
				if err != nil {
					_, _ = io.WriteString(near, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
					return
				}
				defer func() { _ = far.Close() }()
				if r.Method == http.MethodConnect {
					_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
				} else {
					_ = r.Write(far)
				}
				go func() {
					_, _ = io.Copy(far, in)
					_ = far.Close()
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}, served
}

func TestCallsGoThroughTheForwardProxy(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, http2 bool) {
		servers := newAuthority(t)
		certificate, key := servers.issue(t, "client")
		secure := secureServer(t, servers, servers)
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		}))
		t.Cleanup(plain.Close)
		address, served := forwardProxy(t)
		further := catalogkv.Secrets{Certificate: certificate, PrivateKey: key}
		for _, tt := range []struct {
			name, base, proxy, want string
			environment             bool
			served                  int64
		}{
			{"none", secure.URL, "", "client", false, 0},
			{"of the provider, with TLS", secure.URL, address.String(), "client", false, 1},
			{"of the provider, without TLS", plain.URL, address.String(), "/v1/chat/completions Bearer secret", false, 1},
			{"of the environment", secure.URL, "", "client", true, 1},
			{"of the provider before that of the environment", secure.URL, address.String(), "client", true, 1},
		} {
			c := New(Limits{})
			if tt.environment {
				c.ProxyFrom(func(target *url.URL) (*url.URL, error) {
					if tt.proxy != "" {
						return nil, errors.New("the environment was asked")
					}
					if target.String() != tt.base {
						return nil, errors.New("the environment was asked for " + target.String())
					}
					return address, nil
				})
			}
			before := served.Load()
			call := applied(t, catalogkv.Provider{BaseURL: tt.base, CA: servers.text, Proxy: tt.proxy, HTTP2: http2}, "secret", further)
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			got, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			c.Close()
			if string(got) != tt.want || err != nil || served.Load()-before != tt.served {
				t.Errorf("%s: got %q, %v over %d connections of the proxy; want %q over %d", tt.name, got, err, served.Load()-before, tt.want, tt.served)
			}
		}
	})
}

// A forward proxy that cannot be reached has sent nothing, so that the failure is no other account's doing.
func TestForwardProxyThatIsNoAddressIsNamedOnce(t *testing.T) {
	t.Parallel()
	c := New(Limits{})
	t.Cleanup(c.Close)
	call := applied(t, catalogkv.Provider{BaseURL: "https://p.example", Proxy: "http://%zz"}, "secret", catalogkv.Secrets{})
	_, err := c.transportOf(call.Provider, call.Credential, time.Second)
	if text := fmt.Sprint(err); strings.Count(text, "forward proxy") != 1 || strings.Count(text, "upstream:") != 1 {
		t.Errorf("got %s; want the forward proxy once", text)
	}
}

func TestUnreachableForwardProxyHasSentNothing(t *testing.T) {
	t.Parallel()
	c := New(Limits{})
	defer c.Close()
	call := applied(t, catalogkv.Provider{BaseURL: "https://p.example", Proxy: "http://127.0.0.1:1"}, "secret", catalogkv.Secrets{})
	_, err := c.Do(t.Context(), &call)
	var failure *provider.Failure
	if !errors.As(err, &failure) || !failure.Unsent || failure.Class != "connection" {
		t.Errorf("got %+v, %v", failure, err)
	}
}
