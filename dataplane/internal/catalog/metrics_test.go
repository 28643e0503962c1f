package catalog

import (
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
# HELP mgw_maintenance_active 1 while the proxy refuses requests because of maintenance, by scope (system, provider or model) and the id of the provider or model.
# TYPE mgw_maintenance_active gauge
` + want
		}
		if err := testutil.CollectAndCompare(s.store, strings.NewReader(want), "mgw_maintenance_active"); err != nil {
			t.Error(err)
		}
	}
	compare("")
	over := &catalogkv.Maintenance{UntilUnix: time.Now().Add(-time.Hour).Unix()}
	p, m, other := s.provider("p"), model("m", catalogkv.Chat), model("other", catalogkv.Chat)
	p.Maintenance, m.Maintenance, other.Maintenance = &catalogkv.Maintenance{}, &catalogkv.Maintenance{UntilUnix: time.Now().Add(time.Hour).Unix()}, over
	s.set(subject.KindSettings, "", catalogkv.Settings{Maintenance: &catalogkv.Maintenance{}})
	s.set(subject.KindProvider, "p", p)
	s.set(subject.KindModel, "m", m)
	s.set(subject.KindModel, "other", other)
	s.apply(7)
	compare(`mgw_maintenance_active{id="",scope="system"} 1
mgw_maintenance_active{id="m",scope="model"} 1
mgw_maintenance_active{id="p",scope="provider"} 1
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
