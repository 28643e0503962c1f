package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"modelgateway/shared/natsuser"
)

// Password is the password of every user of Planes.
const Password = "secret"

// Planes gives a server the users of both planes with their permissions, as the
// product renders them for operators: one user per proxy, the one that proxies
// share, and that of operators. Connections without a password may do everything.
func Planes(t testing.TB, proxies ...string) func(*server.Options) {
	t.Helper()
	const all = "all"
	users := append(
		natsuser.Users(proxies...),
		natsuser.ForOperator(),
		natsuser.User{Name: all, Publish: []string{">"}, Subscribe: []string{">"}},
	)
	if len(proxies) > 0 {
		users = append(users, natsuser.ForProxies())
	}

	var text strings.Builder
	for _, u := range users {
		fmt.Fprintf(&text, "%s = %q\n", natsuser.PasswordVariable(u.Name), Password)
	}

	text.WriteString(natsuser.ServerConfig(users))
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	read, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}

	return func(o *server.Options) { o.Users, o.NoAuthUser = read.Users, all }
}
