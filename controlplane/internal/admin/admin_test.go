package admin_test

import (
	"testing"

	"modelgateway/controlplane/internal/admin"
)

func TestScopesIncludeLowerScopes(t *testing.T) {
	t.Parallel()
	type scopes = []admin.Scope
	for _, test := range []struct {
		has    scopes
		needed admin.Scope
		want   bool
	}{
		{scopes{admin.Read}, admin.Read, true},
		{scopes{admin.Read}, admin.Cabinet, false},
		{scopes{admin.Read}, admin.Operator, false},
		{scopes{admin.Cabinet}, admin.Read, true},
		{scopes{admin.Cabinet}, admin.Cabinet, true},
		{scopes{admin.Cabinet}, admin.Operator, false},
		{scopes{admin.Cabinet}, admin.Credits, false},
		{scopes{admin.Cabinet}, admin.RevealKeys, false},
		{scopes{admin.Credits}, admin.Credits, true},
		{scopes{admin.Credits}, admin.Read, false},
		{scopes{admin.RevealKeys}, admin.RevealKeys, true},
		{scopes{admin.RevealKeys}, admin.Cabinet, false},
		{scopes{admin.Operator}, admin.Credits, true},
		{scopes{admin.Operator}, admin.RevealKeys, true},
		{scopes{admin.Operator}, admin.Read, true},
		{scopes{admin.Operator}, admin.Cabinet, true},
		{scopes{admin.Operator}, admin.Operator, true},
		{scopes{admin.Read, admin.Operator}, admin.Operator, true},
		{nil, admin.Read, false},
		{scopes{""}, admin.Read, false},
		{scopes{admin.Operator}, "", false},
		{scopes{"root"}, "root", false},
	} {
		if got := admin.Allows(test.has, test.needed); got != test.want {
			t.Errorf("%v for %q: got %v; want %v", test.has, test.needed, got, test.want)
		}
	}
}
