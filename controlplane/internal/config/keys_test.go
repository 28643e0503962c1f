package config_test

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/config"
)

func keyText(b byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
}

// Old keys come one a line from a file, or with commas from the environment.
func TestMasterKeys(t *testing.T) {
	want := map[string][]byte{"m2": []byte(strings.Repeat("b", 32)), "m1": []byte(strings.Repeat("a", 32)), "m0": []byte(strings.Repeat("0", 32))}
	t.Setenv("MGW_SECRETS_MASTER_KEY", keyText('b'))
	t.Setenv("MGW_SECRETS_MASTER_KEY_ID", "m2")
	file := write(t, "m1:"+keyText('a')+"\n\nm0:"+keyText('0')+"\r\n")
	for name, args := range map[string][]string{
		"file":   {"--secrets.old_master_keys_file", file},
		"commas": {"--secrets.old_master_keys", "m1:" + keyText('a') + ", m0:" + keyText('0')},
	} {
		cfg, err := load(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cfg.Secrets.MasterKeys()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for name, old := range map[string]string{
		"no id": ":" + keyText('a'), "no colon": keyText('a'), "short": "m1:YWFh", "the current one": "m2:" + keyText('a'),
		"twice": "m1:" + keyText('a') + ",m1:" + keyText('a'),
	} {
		cfg := config.Config{Secrets: config.Secrets{MasterKey: config.Secret(keyText('b')), MasterKeyID: "m2", OldMasterKeys: config.Secret(old)}}
		if _, err := cfg.Secrets.MasterKeys(); err == nil || strings.Contains(err.Error(), keyText('a')) {
			t.Errorf("%s: got %v; want an error that shows no key", name, err)
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "old_master_keys") {
			t.Errorf("%s: validated as %v", name, err)
		}
	}
}

func TestOldPeppers(t *testing.T) {
	cfg := config.Default()
	cfg.Secrets.Pepper = "0123456789abcdef"
	cfg.Secrets.OldPeppers = "a pepper, with a comma\r\n\nanother pepper of old\n"
	if diff := cmp.Diff([]string{"a pepper, with a comma", "another pepper of old"}, cfg.Secrets.OldPeppers.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "old_peppers") {
		t.Errorf("good peppers: %v", err)
	}
	for _, bad := range []config.Secret{"short", cfg.Secrets.Pepper} {
		cfg.Secrets.OldPeppers = bad
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "line 1 of secrets.old_peppers") {
			t.Errorf("%q: got %v", string(bad), err)
		}
	}
}

func TestWebhookNetworks(t *testing.T) {
	w := config.Webhook{AllowNetworks: "10.1.2.3/8, ::1/128"}
	got, err := w.Networks()
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	w.AllowNetworks = "10.0.0.1"
	if _, err := w.Networks(); err == nil {
		t.Error("an address passes for a network")
	}
}
