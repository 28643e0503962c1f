package natsuser

import (
	"slices"
	"testing"
)

func TestCompareFindsMissingAndFurtherPermissions(t *testing.T) {
	t.Parallel()
	u := User{Publish: []string{"a.b", "c.*.d", "e.>"}, Subscribe: []string{"in.>"}}
	own := func() *Permissions {
		return &Permissions{Publish: Subjects{Allow: slices.Clone(u.Publish)}, Subscribe: Subjects{Allow: slices.Clone(u.Subscribe)}}
	}
	for name, tt := range map[string]struct {
		change         func(p *Permissions)
		missing, extra []string
	}{
		"the same":               {func(*Permissions) {}, nil, nil},
		"less":                   {func(p *Permissions) { p.Publish.Allow = p.Publish.Allow[1:] }, []string{"publish a.b"}, nil},
		"narrower":               {func(p *Permissions) { p.Publish.Allow[1] = "c.x.d" }, []string{"publish c.*.d"}, nil},
		"wider":                  {func(p *Permissions) { p.Publish.Allow[1] = "c.>" }, nil, []string{"publish c.>"}},
		"as wide in other words": {func(p *Permissions) { p.Publish.Allow = append(p.Publish.Allow, "e.x", "e.*.>", "c.*.d") }, nil, nil},
		"a wildcard is not all":  {func(p *Permissions) { p.Publish.Allow[2] = "e.*" }, []string{"publish e.>"}, nil},
		"shorter":                {func(p *Permissions) { p.Publish.Allow[0] = "a" }, []string{"publish a.b"}, []string{"publish a"}},
		"denied":                 {func(p *Permissions) { p.Publish.Deny = []string{"c.x.*"} }, []string{"publish c.*.d"}, nil},
		"denied elsewhere":       {func(p *Permissions) { p.Publish.Deny = []string{"c.x", "f.>"} }, nil, nil},
		"denied altogether":      {func(p *Permissions) { p.Subscribe.Deny = []string{">"} }, []string{"subscribe in.>"}, nil},
		"any to publish":         {func(p *Permissions) { p.Publish.Allow = nil }, nil, []string{"publish >"}},
	} {
		found := own()
		tt.change(found)
		if missing, extra := u.Compare(found); !slices.Equal(missing, tt.missing) || !slices.Equal(extra, tt.extra) {
			t.Errorf("%s: missing %q, further %q; want %q and %q", name, missing, extra, tt.missing, tt.extra)
		}
	}
	if missing, extra := u.Compare(nil); missing != nil || !slices.Equal(extra, []string{"publish >", "subscribe >"}) {
		t.Errorf("a user without permissions of its own: missing %q, further %q; want everything", missing, extra)
	}
}
