package customerpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/console/kit"
)

// newProject is the form that creates a project.
func newProject(r *kit.Request) (*kit.Form, error) {
	now, err := r.API.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}

	a := now.Value
	return &kit.Form{
		Title:   "Create a project of " + a.Name,
		Crumbs:  projectsOf(a),
		Submit:  "Create project",
		Back:    kit.Path("accounts", a.ID, "projects"),
		Command: "gwctl projects create " + a.ID,
		Fields: []kit.Field{
			{Name: "name", Label: "Name", Required: true},
			{Name: "external_id", Label: "External id", Mono: true, Hint: "The project's id in your own systems, unique in the account."},
			{Name: "description", Label: "Description"},
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			body := adminclient.ProjectCreate{
				Name:        in.Text("name"),
				ExternalID:  in.Optional("external_id"),
				Description: in.Optional("description"),
			}
			made, err := r.API.CreateProject(r.Context(), a.ID, &adminclient.CreateProjectParams{IdempotencyKey: in.Key()}, body)
			if err != nil {
				return nil, err
			}
			return kit.Go(kit.Path("projects", made.Value.ID), &kit.Notice{Kind: "good", Text: "The project was created."})
		},
	}, nil
}

// editProject is the form that changes a project.
func editProject(r *kit.Request) (*kit.Form, error) {
	p, a, match, err := projectOf(r)
	if err != nil {
		return nil, err
	}

	description := ""
	if p.Description != nil {
		description = *p.Description
	}
	back := kit.Path("projects", p.ID)
	return &kit.Form{
		Title:   "Change " + p.Name,
		Crumbs:  projectsOf(a),
		Submit:  "Save",
		Back:    back,
		Match:   match,
		Command: "gwctl projects update " + p.ID,
		Fields: []kit.Field{
			{Name: "name", Label: "Name", Required: true, Value: p.Name},
			{Name: "description", Label: "Description", Value: description},
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			params := adminclient.UpdateProjectParams{IfMatch: in.Match()}
			_, err := r.API.UpdateProject(r.Context(), p.ID, &params, adminclient.ProjectPatch{
				Name:        in.Optional("name"),
				Description: new(in.Text("description")),
			})
			if err != nil {
				return nil, err
			}
			return kit.Go(back, &kit.Notice{Kind: "good", Text: "The project was saved."})
		},
	}, nil
}

// deleteProject is the form that deletes a project.
func deleteProject(r *kit.Request) (*kit.Form, error) {
	p, a, match, err := projectOf(r)
	if err != nil {
		return nil, err
	}

	return &kit.Form{
		Title:   "Delete " + p.Name,
		Crumbs:  projectsOf(a),
		Submit:  "Delete project",
		Danger:  true,
		Confirm: p.Name,
		Back:    kit.Path("projects", p.ID),
		Match:   match,
		Command: "gwctl projects delete " + p.ID,
		Effects: []string{
			"The limits of the project are removed with it. Its usage stays under its name.",
			"While a key of the project is not revoked, the project is not deleted: move its keys to another project, or revoke them.",
		},
		Do: func(r *kit.Request, in *kit.Input) (*kit.Page, error) {
			if _, err := r.API.DeleteProject(r.Context(), p.ID, &adminclient.DeleteProjectParams{IfMatch: in.Match()}); err != nil {
				return nil, err
			}
			return kit.Go(kit.Path("accounts", a.ID, "projects"), &kit.Notice{Kind: "good", Text: "The project was deleted."})
		},
	}, nil
}

// projectField is the choice of the project that a key is in; ok is false if the account has no project.
func projectField(r *kit.Request, account string, of *string) (field kit.Field, ok bool, err error) {
	found, err := r.API.ListProjects(r.Context(), account, &adminclient.ListProjectsParams{Limit: new(maxProjects)})
	if err != nil || len(found.Value.Data) == 0 {
		return kit.Field{}, false, err
	}

	field = kit.Field{
		Name:    "project_id",
		Label:   "Project",
		Kind:    "select",
		Options: []kit.Option{{Value: "", Text: "none"}},
		Hint:    "Its limits apply to the key, too. What the key has spent so far stays with its former project.",
	}
	if of != nil {
		field.Value = *of
	}
	for _, p := range found.Value.Data {
		field.Options = append(field.Options, kit.Option{Value: p.ID, Text: p.Name})
	}
	return field, true, nil
}

// maxProjects is the number of projects that a key can be put into by a form: the largest page of the API.
const maxProjects = 500

// readProject reads the field of projectField into a change.
func readProject(in *kit.Input, patch *adminclient.KeyPatch) {
	patch.ProjectID = optional.Null[string]()
	if id := in.Text("project_id"); id != "" {
		patch.ProjectID = optional.Of(id)
	}
}
