package natsuser

import (
	"slices"
	"strings"
	"testing"
)

// A permission that ends with ">" right after a short prefix would open more than
// one plane's subjects.
func TestNoUserHasWidePermissions(t *testing.T) {
	t.Parallel()
	for _, u := range append(Users("one", "host.example.org"), ForProxies()) {
		for _, allowed := range slices.Concat(u.Publish, u.Subscribe) {
			if slices.Contains([]string{">", "mgw.>", "$JS.>", "$JS.API.>", "$KV.>", "_INBOX.>"}, allowed) || strings.Contains(allowed, "STREAM.DELETE") {
				t.Errorf("%s may use %s", u.Name, allowed)
			}
		}
	}
}

func TestUserOfOneProxyNamesThisProxyInEverySubjectOfItsOwn(t *testing.T) {
	t.Parallel()
	mine, shared := ForProxy("host.example.org"), ForProxies()
	for i, allowed := range map[string][]string{"publish": mine.Publish, "subscribe": mine.Subscribe} {
		for _, s := range allowed {
			if strings.HasPrefix(s, "mgw.session.*") || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "mgw.videojob.") {
				continue // pushed by the control plane, or held to a stream
			}
			if strings.Count(s, ".") > 1 && !strings.Contains(s, "host=2Eexample=2Eorg") && s != "mgw.key.change" && s != "mgw.tail.open" && s != "mgw.changed.>" {
				t.Errorf("%s %s: want the name of the proxy in it", i, s)
			}
		}
	}
	if len(mine.Publish) != len(shared.Publish) || len(mine.Subscribe) != len(shared.Subscribe) {
		t.Error("the shared user has other kinds of permissions than that of one proxy")
	}
}

func TestRenderedUsersHaveEveryPermissionAndNoPassword(t *testing.T) {
	t.Parallel()
	users := Users("eu-0")
	for name, text := range map[string]string{"conf": ServerConfig(users), "values": ChartValues(users)} {
		for _, u := range users {
			for _, want := range slices.Concat([]string{u.Name}, u.Publish, u.Subscribe) {
				if !strings.Contains(text, `"`+want+`"`) {
					t.Errorf("%s: %q is missing", name, want)
				}
			}
		}
		if !strings.Contains(text, "$DATAPLANE_EU_0_NATS_PASSWORD") || !strings.Contains(text, "$CONTROLPLANE_NATS_PASSWORD") {
			t.Errorf("%s has no variables for the passwords", name)
		}
	}
}
