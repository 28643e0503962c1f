package customerpages

import (
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

type projectsView struct {
	*head
	List  *adminclient.ProjectList
	Pages kit.Pages
}

func accountProjects(r *kit.Request) (*kit.Page, error) {
	h, err := account(r, "projects")
	if err != nil {
		return nil, err
	}
	answer, err := r.API.ListProjects(r.Context(), h.ID, &adminclient.ListProjectsParams{Cursor: kit.Cursor(r), Limit: new(kit.PageSize)})
	if err != nil {
		return nil, err
	}
	data := &projectsView{h, answer.Value, kit.PagesOf(r, answer.Value.NextCursor)}
	return h.page("account_projects", "Projects", "gwctl projects list "+h.ID, data), nil
}

type projectView struct {
	*adminclient.Project
	Account *adminclient.Account
	Limits  *limitsView
	Keys    *adminclient.KeyList
	Pages   kit.Pages
	// Usage is that of the last 30 days; nil if there was none.
	Usage *adminclient.UsageTotal
	// Changes is nil for those who may not see the audit log.
	Changes *adminclient.AuditList
}

// showProject shows a project with its limits, its keys, its usage and its changes.
func showProject(r *kit.Request) (*kit.Page, error) {
	p, owner, _, err := projectOf(r)
	if err != nil {
		return nil, err
	}

	data := &projectView{Project: p, Account: owner}
	if data.Limits, err = limitSection(r, owner, []ownedLimits{limitsOfProject(p), limitsOfAccount(owner)}); err != nil {
		return nil, err
	}
	data.Limits.None = "Neither the project nor its account has a limit that renews."
	if data.Limits.MayChange && p.DeletedAt == nil {
		data.Limits.Add = kit.Path("accounts", owner.ID, "limits", "new") + "?" + kit.Query("project_id", p.ID)
	}

	keys, err := r.API.ListKeys(
		r.Context(),
		p.AccountID,
		&adminclient.ListKeysParams{ProjectID: &p.ID, Cursor: kit.Cursor(r), Limit: new(kit.PageSize)},
	)
	if err != nil {
		return nil, err
	}
	data.Keys, data.Pages = keys.Value, kit.PagesOf(r, keys.Value.NextCursor)
	if err := data.read(r); err != nil {
		return nil, err
	}

	return &kit.Page{
		Template: "project",
		Title:    "Project " + p.Name,
		Crumbs:   projectsOf(owner),
		Command:  "gwctl projects get " + p.ID,
		Data:     data,
	}, nil
}

// read reads the usage and the changes of the project.
func (p *projectView) read(r *kit.Request) error {
	totals, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{
		ProjectID: &p.ID,
		From:      new(time.Now().UTC().AddDate(0, 0, -29).Format(time.DateOnly)),
	})
	if err != nil {
		return err
	}
	if found := totals.Value.Data; len(found) == 1 && found[0].Requests > 0 {
		p.Usage = &found[0]
	}

	if !r.May(kit.Observe) {
		return nil
	}
	changes, err := r.API.ListAudit(r.Context(), &adminclient.ListAuditParams{Object: &p.ID, Limit: new(10)})
	if err != nil {
		return err
	}
	p.Changes, err = kit.Exact(changes)
	return err
}

// projectsOf returns the pages above a project.
func projectsOf(a *adminclient.Account) []kit.Link {
	return append(below(a), kit.Link{Text: "Projects", URL: kit.Path("accounts", a.ID, "projects")})
}

// projectOf reads the project that the address names, and its account.
func projectOf(r *kit.Request) (p *adminclient.Project, a *adminclient.Account, match string, err error) {
	now, err := r.API.GetProject(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, nil, "", err
	}
	owner, err := r.API.GetAccount(r.Context(), now.Value.AccountID)
	if err != nil {
		return nil, nil, "", err
	}
	return now.Value, owner.Value, now.Header.Get("ETag"), nil
}
