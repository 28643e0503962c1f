package windowstore

import (
	"testing"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

func TestWindowsOfOthersAreNotCharged(t *testing.T) {
	t.Parallel()
	of := Owner{Account: ident.UUID{1}, Project: ident.UUID{2}, Key: ident.UUID{3}}
	other := ident.UUID{9}
	o := &Owners{
		windows: map[int64]*sqlcgen.WindowOwnersRow{
			1: {ID: 1, AccountID: of.Account},
			2: {ID: 2, AccountID: of.Account, ProjectID: &of.Project},
			3: {ID: 3, AccountID: of.Account, KeyID: &of.Key},
			4: {ID: 4, AccountID: other},
			5: {ID: 5, AccountID: of.Account, ProjectID: &other},
			6: {ID: 6, AccountID: of.Account, KeyID: &other},
		},
		projects: map[ident.UUID]ident.UUID{of.Project: of.Account, other: other},
	}
	for name, c := range map[string]struct {
		windows []int64
		want    bool
	}{
		"none":                   {nil, true},
		"one of each kind":       {[]int64{1, 2, 3}, true},
		"one twice":              {[]int64{1, 1}, false},
		"one that is unknown":    {[]int64{1, 7}, false},
		"one of another account": {[]int64{1, 4}, false},
		"one of another project": {[]int64{5}, false},
		"one of another key":     {[]int64{6}, false},
	} {
		if got := o.Own(c.windows, of); got != c.want {
			t.Errorf("%s: got %v; want %v", name, got, c.want)
		}
	}
	if o.Foreign(of) || !o.Foreign(Owner{Account: of.Account, Project: other}) || o.Foreign(Owner{Account: of.Account, Project: ident.UUID{8}}) {
		t.Error("only a project of another account is foreign; one that was lost is not known")
	}
}
