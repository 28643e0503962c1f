package accountapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func createProject(t *testing.T, b *server, owner string, body adminclient.ProjectCreate) *adminclient.Project {
	t.Helper()
	made, err := servertest.Answered(b.API.CreateProject(t.Context(), owner, nil, body))
	servertest.Check(t, err)
	return made.Value
}

// moveKey moves a key into a project; "" takes it out.
func moveKey(b *server, key, into string) (*adminclient.Response[adminclient.Key], error) {
	patch := adminclient.KeyPatch{ProjectID: optional.Null[string]()}
	if into != "" {
		patch.ProjectID = optional.Of(into)
	}
	return b.API.UpdateKey(b.T.Context(), key, nil, patch)
}

// A project is kept, listed by its filters, changed with its tag, and deleted when no key that works is left in it.
func TestLifeOfAProject(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	shop := createProject(t, b, a.ID, adminclient.ProjectCreate{
		Name: "Web shop", ExternalID: new("project-4"), Description: new("The search"), Metadata: &adminclient.Metadata{"team": "shop"},
	})
	want := adminclient.Project{
		ID: shop.ID, AccountID: a.ID, Name: "Web shop", ExternalID: new("project-4"), Description: new("The search"),
		Metadata: &adminclient.Metadata{"team": "shop"}, CreatedAt: shop.CreatedAt, UpdatedAt: shop.UpdatedAt,
	}
	read, err := servertest.Answered(b.API.GetProject(t.Context(), shop.ID))
	servertest.Check(t, err)
	if diff := cmp.Diff(&want, read.Value); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	other := createProject(t, b, a.ID, adminclient.ProjectCreate{Name: "chat"})
	servertest.Problem(t, problemOf(b.API.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{
		Name: "again", ExternalID: new("project-4"),
	})), http.StatusConflict, "external_id_taken")

	listed := func(params adminclient.ListProjectsParams) (ids []string) {
		t.Helper()
		found, err := servertest.Answered(b.API.ListProjects(t.Context(), a.ID, &params))
		servertest.Check(t, err)
		for _, p := range found.Value.Data {
			ids = append(ids, p.ID)
		}
		return ids
	}
	for name, tt := range map[string]struct {
		params adminclient.ListProjectsParams
		want   []string
	}{
		"all":         {adminclient.ListProjectsParams{}, []string{shop.ID, other.ID}},
		"by text":     {adminclient.ListProjectsParams{Query: new("SHOP")}, []string{shop.ID}},
		"external id": {adminclient.ListProjectsParams{ExternalID: new("project-4")}, []string{shop.ID}},
		"none":        {adminclient.ListProjectsParams{ExternalID: new("project")}, nil},
	} {
		if diff := cmp.Diff(tt.want, listed(tt.params)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	stale := `"1"`
	servertest.Problem(t, problemOf(b.API.UpdateProject(t.Context(), shop.ID, &adminclient.UpdateProjectParams{IfMatch: &stale},
		adminclient.ProjectPatch{})), http.StatusPreconditionFailed, "precondition_failed")
	changed, err := servertest.Answered(b.API.UpdateProject(t.Context(), shop.ID, &adminclient.UpdateProjectParams{IfMatch: new(read.Header.Get("ETag"))},
		adminclient.ProjectPatch{Name: new("shop"), Metadata: &adminclient.Metadata{}}))
	servertest.Check(t, err)
	if changed.Value.Name != "shop" || changed.Value.Metadata != nil || *changed.Value.Description != "The search" {
		t.Errorf("changed: got %+v", changed.Value)
	}

	k := b.Key(a.ID, "5.00")
	_, err = servertest.Answered(moveKey(b, k.ID, shop.ID))
	servertest.Check(t, err)
	servertest.Problem(t, problemOf(b.API.DeleteProject(t.Context(), shop.ID, nil)), http.StatusConflict, "project_in_use")
	_, err = servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	servertest.Problem(t, problemOf(b.API.DeleteProject(t.Context(), shop.ID, &adminclient.DeleteProjectParams{IfMatch: &stale})),
		http.StatusPreconditionFailed, "precondition_failed")
	_, err = servertest.Answered(b.API.DeleteProject(t.Context(), shop.ID, nil))
	servertest.Check(t, err)
	servertest.Problem(t, problemOf(b.API.DeleteProject(t.Context(), shop.ID, nil)), http.StatusNotFound, "not_found")
	if diff := cmp.Diff([]string{other.ID}, listed(adminclient.ListProjectsParams{})); diff != "" {
		t.Errorf("after the deletion (-want +got):\n%s", diff)
	}
	if got := listed(adminclient.ListProjectsParams{Deleted: new(true)}); len(got) != 2 {
		t.Errorf("with those that were deleted: got %v", got)
	}
	if read, err = servertest.Answered(b.API.GetProject(t.Context(), shop.ID)); err != nil || read.Value.DeletedAt == nil {
		t.Errorf("the deleted project: got %+v, %v", read.Value, err)
	}
	fresh := b.Key(a.ID, "5.00")
	servertest.Problem(t, problemOf(moveKey(b, fresh.ID, shop.ID)), http.StatusNotFound, "not_found")
}

// A key is created in a project, imported into one, moved, and taken out; each move is told to the proxies. It is never in a project
// of another account.
func TestKeysOfAProject(t *testing.T) {
	t.Parallel()
	b := start(t)
	a, stranger := b.Account(1), b.Account(1)
	first, second := createProject(t, b, a.ID, adminclient.ProjectCreate{Name: "first"}), createProject(t, b, a.ID, adminclient.ProjectCreate{Name: "second"})
	foreign := createProject(t, b, stranger.ID, adminclient.ProjectCreate{Name: "foreign"})

	made, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "k", ProjectID: &first.ID}))
	servertest.Check(t, err)
	k := made.Value
	if k.ProjectID == nil || *k.ProjectID != first.ID {
		t.Errorf("created: got %+v", k)
	}
	imported, err := servertest.Answered(b.API.ImportKeys(t.Context(), nil, adminclient.KeyImport{Keys: []adminclient.ImportedKey{
		{AccountID: a.ID, Name: "old", Hash: b.Hasher.Hash("an old key").String(), ProjectID: &second.ID},
	}}))
	servertest.Check(t, err)

	of := func(project string) (ids []string) {
		t.Helper()
		found, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, &adminclient.ListKeysParams{ProjectID: &project}))
		servertest.Check(t, err)
		for _, k := range found.Value.Data {
			ids = append(ids, k.ID)
		}
		return ids
	}
	if diff := cmp.Diff([][]string{{k.ID}, {imported.Value.Data[0].ID}}, [][]string{of(first.ID), of(second.ID)}); diff != "" {
		t.Errorf("keys of the projects (-want +got):\n%s", diff)
	}

	outside, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "outside"}))
	servertest.Check(t, err)
	if diff := cmp.Diff([]string{outside.Value.ID}, of("none")); diff != "" {
		t.Errorf("keys of no project (-want +got):\n%s", diff)
	}
	wrong, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, &adminclient.ListKeysParams{ProjectID: new("shop")}))
	servertest.Check(t, err)
	servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")

	told := len(b.Announcer.Told)
	moved, err := servertest.Answered(moveKey(b, k.ID, second.ID))
	servertest.Check(t, err)
	if *moved.Value.ProjectID != second.ID || len(of(first.ID)) != 0 || len(of(second.ID)) != 2 || len(b.Announcer.Told) != told+1 {
		t.Errorf("moved: got %+v, and %d changes for proxies", moved.Value, len(b.Announcer.Told)-told)
	}
	if _, err := servertest.Answered(moveKey(b, k.ID, second.ID)); err != nil || len(b.Announcer.Told) != told+1 {
		t.Errorf("moved to where it is: got %v, and %d changes for proxies", err, len(b.Announcer.Told)-told)
	}
	out, err := servertest.Answered(moveKey(b, k.ID, ""))
	servertest.Check(t, err)
	if out.Value.ProjectID != nil || len(b.Announcer.Told) != told+2 {
		t.Errorf("taken out: got %+v, and %d changes for proxies", out.Value, len(b.Announcer.Told)-told)
	}

	servertest.Problem(t, problemOf(moveKey(b, k.ID, foreign.ID)), http.StatusNotFound, "not_found")
	servertest.Problem(t, problemOf(moveKey(b, k.ID, "prj_1")), http.StatusBadRequest, "invalid_input")
	servertest.Problem(t, problemOf(b.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "k", ProjectID: &foreign.ID})),
		http.StatusNotFound, "not_found")
}
