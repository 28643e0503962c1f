package catalog

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/subject"
)

func TestActiveMaintenanceIsExported(t *testing.T) {
	t.Parallel()
	s := setup(t)
	compare := func(want string) {
		t.Helper()
		if want != "" {
			want = `
# HELP mgw_maintenance_active 1 while the proxy refuses requests because of maintenance, by scope (system, provider or model) and the id of the provider or model; and, with scope route, for each route that gets no calls because its provider or model is in maintenance.
# TYPE mgw_maintenance_active gauge
` + want
		}
		if err := testutil.CollectAndCompare(s.store, strings.NewReader(want), "mgw_maintenance_active"); err != nil {
			t.Error(err)
		}
	}
	compare("")
	over := &catalogkv.Maintenance{UntilUnix: time.Now().Add(-time.Hour).Unix()}
	p, m, other, third := s.provider("p"), model("m", catalogkv.Chat, catalogkv.Messages), model("other", catalogkv.Chat), model("third", catalogkv.Chat)
	m.Routes[0].Provider, other.Routes[0].Provider = "q", "q"
	p.Maintenance, m.Maintenance, other.Maintenance = &catalogkv.Maintenance{}, &catalogkv.Maintenance{UntilUnix: time.Now().Add(time.Hour).Unix()}, over
	s.set(subject.KindSettings, "", catalogkv.Settings{Maintenance: &catalogkv.Maintenance{}})
	s.set(subject.KindProvider, "p", p)
	s.set(subject.KindProvider, "q", s.provider("q"))
	s.set(subject.KindModel, "m", m)
	s.set(subject.KindModel, "other", other)
	s.set(subject.KindModel, "third", third)
	s.apply(7)
	compare(`mgw_maintenance_active{id="",scope="system"} 1
mgw_maintenance_active{id="m",scope="model"} 1
mgw_maintenance_active{id="p",scope="provider"} 1
mgw_maintenance_active{id="rte_m",scope="route"} 1
mgw_maintenance_active{id="rte_third",scope="route"} 1
`)
	if err := testutil.CollectAndCompare(s.store, strings.NewReader(`
# HELP mgw_catalog_revision Revision of the catalog snapshot in use.
# TYPE mgw_catalog_revision gauge
mgw_catalog_revision 7
`), "mgw_catalog_revision"); err != nil {
		t.Error(err)
	}
	p.Maintenance, m.Maintenance = nil, over
	s.set(subject.KindSettings, "", catalogkv.Settings{})
	s.set(subject.KindProvider, "p", p)
	s.set(subject.KindModel, "m", m)
	s.apply(8)
	compare("")
}

func TestExpiryOfCertificatesForProvidersIsExported(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(2_000_000_000, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	further, err := json.Marshal(catalogkv.Secrets{
		Certificate: public, PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, disabled, plain := s.provider("p"), s.provider("disabled"), s.provider("plain")
	p.CA, disabled.CA, disabled.Enabled = public, public, false
	p.Credentials[0].SealedSecrets = s.fleet.Seal(further, catalogkv.SecretsContext("crd_p"))
	for _, p := range []catalogkv.Provider{p, disabled, plain} {
		s.set(subject.KindProvider, p.ID, p)
	}
	s.apply(7)
	const name = "mgw_provider_certificate_expiry_timestamp_seconds"
	want := `
# HELP ` + name + ` Unix time at which the first of the certificates expires that the calls of an enabled provider need: client, those of a credential, or issuer, those of its trusted issuers, which have no credential.
# TYPE ` + name + ` gauge
` + name + `{certificate="client",credential="crd_p",provider="p"} 2e+09
` + name + `{certificate="issuer",credential="",provider="p"} 2e+09
`
	if err := testutil.CollectAndCompare(s.store, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
