package gwctl_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
	"modelgateway/controlplane/internal/gwctl/revokedirect"
	"modelgateway/shared/apikey"
)

func TestRevokeDirectHashesKeys(t *testing.T) {
	t.Parallel()
	peppers := []string{"the first pepper of all", "the second pepper of all"}
	file := filepath.Join(t.TempDir(), "peppers")
	if err := os.WriteFile(file, []byte(strings.Join(peppers, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []apikey.Hash
	hasher, err := apikey.NewHasher([]byte(peppers[0]))
	if err != nil {
		t.Fatal(err)
	}
	key := hasher.Generate()
	for _, pepper := range peppers {
		h, err := apikey.NewHasher([]byte(pepper))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, h.Hash(key))
	}
	for _, test := range []struct {
		in   string
		args []string
		want []apikey.Hash
		code int
	}{
		{key + "\n", []string{"--nats-url=n", "--pepper-file", file}, want, gwctl.ExitOK},
		{"", []string{"--nats-url=n", "--hash", want[0].String()}, want[:1], gwctl.ExitOK},
		{"sk-nothing\n", []string{"--nats-url=n", "--pepper-file", file}, nil, gwctl.ExitUsage},
		{"", []string{"--nats-url=n", "--pepper-file", file}, nil, gwctl.ExitUsage},
		{key, []string{"--nats-url=n"}, nil, gwctl.ExitUsage},
		{key, []string{"--pepper-file", file}, nil, gwctl.ExitUsage},
		{key, []string{"--nats-url=n", "--hash", "12"}, nil, gwctl.ExitUsage},
	} {
		var asked revokedirect.Revocation
		var out, errs bytes.Buffer
		code := gwctl.Run(t.Context(), gwctl.Config{
			In: strings.NewReader(test.in), Out: &out, Err: &errs, EnvFunc: func(string) string { return "" }, Document: document(t),
			RevokeFunc: func(_ context.Context, d revokedirect.Revocation) error {
				asked = d
				d.Note("stored as message %d", 7)
				return nil
			},
		}, append([]string{"keys", "revoke-direct"}, test.args...))
		if code != test.code || !slices.Equal(asked.Hashes, test.want) || (code == gwctl.ExitOK) != strings.Contains(errs.String(), "stored as message 7") {
			t.Errorf("%v: asked for %v, exit %d, %s%s", test.args, asked.Hashes, code, &out, &errs)
		}
	}
}
