package accountapi

import (
	"context"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) CreateProject(
	ctx context.Context,
	call *gen.Call,
	r gen.CreateProjectRequestObject,
) (gen.CreateProjectResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	n := project.New{
		ID:          call.OperationID,
		AccountID:   owner,
		ExternalID:  convert.Text(r.Body.ExternalID),
		Name:        r.Body.Name,
		Description: convert.Text(r.Body.Description),
		Metadata:    convert.Value(r.Body.Metadata),
	}
	if err := n.Validate(); err != nil {
		return nil, err
	}

	p, err := h.Projects.Create(ctx, n)
	if err != nil {
		return nil, err
	}

	call.ETag = p.Tag()
	return gen.CreateProject201JSONResponse(projectView(&p)), nil
}

func (h *Handlers) ListProjects(ctx context.Context, _ *gen.Call, r gen.ListProjectsRequestObject) (gen.ListProjectsResponseObject, error) {
	owner, err := account.ParseID(r.AccountID)
	if err != nil {
		return nil, err
	}

	p, after, err := convert.ReadPageByID(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := h.Accounts.Get(ctx, owner); err != nil {
		return nil, err
	}

	found, err := h.Projects.List(ctx, project.Query{
		AccountID:  owner,
		ExternalID: convert.Text(r.Params.ExternalID),
		Text:       convert.Text(r.Params.Query),
		Deleted:    convert.Value(r.Params.Deleted),
		After:      project.ID(after),
		Limit:      p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(p *project.Project) []byte { return p.ID[:] })
	return gen.ListProjects200JSONResponse{Data: convert.All(found, projectView), NextCursor: cursor}, nil
}

func (h *Handlers) GetProject(ctx context.Context, call *gen.Call, r gen.GetProjectRequestObject) (gen.GetProjectResponseObject, error) {
	id, err := project.ParseID(r.ProjectID)
	if err != nil {
		return nil, err
	}
	p, err := h.Projects.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	call.ETag = p.Tag()
	return gen.GetProject200JSONResponse(projectView(&p)), nil
}

func (h *Handlers) UpdateProject(
	ctx context.Context,
	call *gen.Call,
	r gen.UpdateProjectRequestObject,
) (gen.UpdateProjectResponseObject, error) {
	id, err := project.ParseID(r.ProjectID)
	if err != nil {
		return nil, err
	}

	match, unread := etag.Parse(convert.Text(r.Params.IfMatch))
	patch := project.Patch{
		Match:       match,
		Name:        r.Body.Name,
		Description: r.Body.Description,
		Metadata:    (*map[string]string)(r.Body.Metadata),
	}
	if err := validation.Merge(unread, patch.Validate()); err != nil {
		return nil, err
	}

	p, err := h.Projects.Patch(ctx, id, patch)
	if err != nil {
		return nil, err
	}

	call.ETag = p.Tag()
	return gen.UpdateProject200JSONResponse(projectView(&p)), nil
}

func (h *Handlers) DeleteProject(
	ctx context.Context,
	_ *gen.Call,
	r gen.DeleteProjectRequestObject,
) (gen.DeleteProjectResponseObject, error) {
	id, err := project.ParseID(r.ProjectID)
	if err != nil {
		return nil, err
	}
	match, err := etag.Parse(convert.Text(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	if err := h.Projects.Delete(ctx, id, match); err != nil {
		return nil, err
	}
	return gen.DeleteProject204Response{}, nil
}

// projectID parses the id of a project in a body; nil stands for none.
func projectID(field string, text *string, invalid *validation.Errors) *project.ID {
	if text == nil {
		return nil
	}
	id, err := project.ParseID(*text)
	if err != nil {
		invalid.Add(field, "is not the id of a project")
	}
	return &id
}

func projectView(p *project.Project) gen.Project {
	view := gen.Project{
		ID:          p.ID.String(),
		AccountID:   p.AccountID.String(),
		ExternalID:  convert.Optional(p.ExternalID),
		Name:        p.Name,
		Description: convert.Optional(p.Description),
		DeletedAt:   p.DeletedAt,
		CreatedAt:   p.CreatedAt,
		UpdatedAt:   p.UpdatedAt,
	}
	if len(p.Metadata) > 0 {
		view.Metadata = (*gen.Metadata)(&p.Metadata)
	}
	return view
}
