package chart

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The programs themselves accept the configuration, the variables and the secrets of every rendering, and name a missing secret.
func TestProgramsAcceptTheRenderedConfiguration(t *testing.T) {
	t.Parallel()
	certificate, key := newCertificate(t)
	eachValueSet(t, func(t *testing.T, all objects) {
		for _, o := range all.servers() {
			dir := t.TempDir()
			check := programOf(t, all, o, dir, certificate, key)
			if err := check(); err != nil {
				t.Errorf("%v: %v\n%s", o, err, all.one(t, "ConfigMap", o.Metadata.Name).Data["config.yaml"])
			}
			if err := os.Remove(filepath.Join(dir, "pepper")); err != nil {
				t.Fatal(err)
			}
			if err := check(); err == nil || !strings.Contains(err.Error(), "secrets.pepper_file") {
				t.Errorf("%v without a pepper: %v; want the name of the setting", o, err)
			}
		}
	})
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		panic(err)
	}
	programs = sync.OnceValues(func() (string, error) {
		_, err := output(exec.Command("go", "build", "-C", root, "-o", dir, "./controlplane/cmd/controlplane", "./dataplane/cmd/dataplane"))
		return dir, err
	})
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// programs builds both programs once, and returns their folder.
var programs func() (string, error)

// programOf returns a function that lets the program of a server check the rendered settings, after flags if there are any. dir
// gets the configuration and the secrets.
func programOf(t *testing.T, all objects, o object, dir string, certificate, key []byte) func(flags ...string) error {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := o.container(t)
	for _, file := range secretFiles(t, o) {
		writeSecret(t, filepath.Join(dir, filepath.Base(file)), certificate, key)
	}
	text := all.one(t, "ConfigMap", o.Metadata.Name).Data["config.yaml"]
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(text, c.mount(t, "secrets"), dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, arg := range c.Args {
		args = append(args, strings.ReplaceAll(arg, c.mount(t, "config"), dir))
	}
	args = append(args, "--check")
	return func(flags ...string) error {
		cmd := exec.Command(filepath.Join(bin, o.component()), slices.Concat(args, flags)...)
		for _, e := range c.Env {
			cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
		}
		_, err := output(cmd)
		return err
	}
}

// writeSecret writes a valid secret into a file of the chart's name.
func writeSecret(t *testing.T, file string, certificate, key []byte) {
	t.Helper()
	random := base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
	text := []byte(random)
	switch name := filepath.Base(file); {
	case strings.HasSuffix(name, ".crt"):
		text = certificate
	case name == "tls.key", strings.HasSuffix(name, "-client.key"):
		text = key
	case name == "previous-master-keys":
		text = []byte("m0:" + random)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newCertificate returns a certificate and its key in PEM.
func newCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"gateway"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}
