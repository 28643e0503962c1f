package catalogpages

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/priceform"
	"modelgateway/shared/catalogkv"
)

// names returns the names of the members that an object of the API has, but for some.
func names(object any, but ...string) []string {
	var all []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(object)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.Contains(but, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func topOf(members []member) []string {
	all := map[string]bool{}
	for _, m := range members {
		top, _, _ := strings.Cut(m.path, ".")
		all[top] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func TestFormsHaveEveryMemberOfTheCatalogFile(t *testing.T) {
	t.Parallel()
	var ofPrice []member
	request := &kit.Request{Request: &http.Request{URL: &url.URL{}}}
	for _, f := range priceform.NewOfProvider(request, providerPriceMember, "USD", adminclient.CatalogModelTypeText, nil).All {
		ofPrice = append(ofPrice, member{path: f.Name})
	}
	for what, c := range map[string]struct{ got, want []string }{
		"provider":   {topOf(providerMembers), names(adminclient.CatalogProvider{}, "id", "credentials")},
		"credential": {topOf(credentialMembers), names(adminclient.CatalogCredential{}, "id", "name", "enabled", "certificate_expires_at")},
		// A route is of its model and provider for ever.
		"route":   {topOf(slices.Concat(routeMembers, ofPrice)), names(adminclient.CatalogRoute{}, "id", "provider", "provider_price_hidden")},
		"address": {[]string{"path", "query", "stream_path"}, names(adminclient.CatalogAddress{})},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: the forms have %v; want %v", what, c.got, c.want)
		}
	}
}

func TestFormsHaveTheParametersOfEveryKindOfCredential(t *testing.T) {
	t.Parallel()
	for _, kind := range catalogkv.CredentialKinds() {
		var got, want []catalogkv.CredentialParameter
		for _, m := range membersOf(credentialMembers, kind) {
			name, ok := strings.CutPrefix(m.path, "parameters.")
			if !ok {
				continue
			}
			if name+"." == catalogkv.FormParameter {
				if has, secret := kind.HasParameter(catalogkv.FormParameter + "x"); !has || secret != (m.shape >= asSecret) {
					t.Errorf("%s: the form has %s", kind, m.path)
				}
				continue
			}
			got = append(got, catalogkv.CredentialParameter{Name: name, Secret: m.shape >= asSecret})
		}
		for _, p := range kind.Parameters() {
			want = append(want, catalogkv.CredentialParameter{Name: p.Name, Secret: p.Secret})
		}
		byName := func(a, b catalogkv.CredentialParameter) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		slices.SortFunc(want, byName)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the form has %v; want %v", kind, got, want)
		}
	}
}
